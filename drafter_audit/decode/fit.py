"""Whether a drafter can be replayed on a recording: asked of specs and manifest, before anything long is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from drafter_audit.drafter.open import with_target
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.errors import CannotRunError, UsageError
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.sizes import TargetSizes
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.recording import RecordedPrompt


def informed(spec: DrafterSpec, by: Manifest | TargetModel | TargetSizes) -> DrafterSpec:
    """`spec`, read again with the sizes of a recorded or a running target where its files do not lead to the target's
    own: what layer ids mean depends on the number of layers."""
    if spec.target.num_layers is not None:
        return spec
    ref = spec.target.ref or (by.target if isinstance(by, Manifest) else by.ref)
    sizes = {"num_layers": by.num_layers, "hidden_size": by.hidden_size, "vocab_size": by.vocab_size}
    return with_target(spec, replace(spec.target, ref=ref, **sizes))  # type: ignore[arg-type]


def check_fits(spec: DrafterSpec, wiring: Wiring, manifest: Manifest, steps: int) -> None:
    """Raises UsageError for `steps` that the recording does not look ahead; CannotRunError for a recording of a target
    that cannot be the drafter's, for boundaries that were not recorded, and for a state that no recording holds."""
    if not 1 <= steps <= manifest.lookahead:
        mend = f"ask for 1 to {manifest.lookahead} steps, or record again with a longer --lookahead"
        raise UsageError(f"{steps} steps on a recording that looks {manifest.lookahead} tokens ahead", spec.name, mend)
    if wiring.boundaries is None:
        raise CannotRunError("nothing tells which boundaries it reads", spec.name, "name its target with --target")
    if wiring.last_state == "post_norm" and manifest.num_layers in wiring.boundaries:
        what = "it reads the last state behind the target's final norm, and a recording holds it before that"
        raise CannotRunError(what, spec.name, "decode with --target")
    apart = "; ".join(_apart(spec, wiring, manifest))
    if apart:
        what = f"the recording is of another target: {apart}"
        raise CannotRunError(
            what, f"{spec.name} on a recording of {manifest.target}", "record the drafter's own target"
        )
    for kept in {manifest.boundaries, *(answer.boundaries for answer in manifest.answers)} - {()}:
        _check_recorded(wiring, kept, spec.name, manifest)


def slots_of(drafter: Drafter, prompt: RecordedPrompt) -> list[int]:
    """Where in the prompt's states each slot of the drafter lies. Raises CannotRunError where one was not recorded."""
    _check_recorded(drafter.wiring, prompt.boundaries, drafter.spec.name)
    return [prompt.boundaries.index(b) for b in drafter.wiring.boundaries or ()]


def _check_recorded(wiring: Wiring, recorded: tuple[int, ...], name: str, manifest: Manifest | None = None) -> None:
    wanted = wiring.boundaries or ()
    missing = sorted({boundary for boundary in wanted if boundary not in recorded})
    if missing:
        kept = ",".join(map(str, sorted({*wanted, *recorded})))
        if manifest is not None and not manifest.answers:
            what = f"it reads boundaries {sorted(set(wanted))}, of which {missing} are not in the dumps"
            raise CannotRunError(what, name, "dump them too, or take a drafter of these taps")
        of = "" if manifest is None else f" --target {manifest.target} --prompts {manifest.prompts_name}"
        what = f"it reads boundaries {sorted(set(wanted))}, of which {missing} were not recorded"
        raise CannotRunError(what, name, f"record them: drafter-audit record{of} --boundaries {kept} -o DIR")


def _apart(spec: DrafterSpec, wiring: Wiring, manifest: Manifest) -> Iterator[str]:
    """In which sizes the drafter, or what its files say of its target, and the recorded target differ."""
    arch, layers = spec.architecture, spec.target.num_layers
    width, highest = arch.target_hidden_size or arch.hidden_size, max(wiring.boundaries or (0,))
    if width != manifest.hidden_size:
        yield f"it reads states of width {width}, recorded are {manifest.hidden_size}"
    if (arch.vocab_size or 0) < manifest.vocab_size:
        yield f"its vocabulary is of {arch.vocab_size} tokens, the recorded target's of {manifest.vocab_size}"
    if layers not in (None, manifest.num_layers):
        yield f"its target has {layers} layers, the recorded one {manifest.num_layers}"
    elif highest > manifest.num_layers:
        yield f"it reads boundary {highest}, the recorded target has {manifest.num_layers} layers"
