"""Whether a drafter can be replayed on a recording: asked of specs and manifest, before anything long is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from drafter_audit.drafter.open import with_target
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.errors import CannotRunError, UsageError
from drafter_audit.measure.shape import Shape
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.needs import check_states
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


def check_vocabulary(spec: DrafterSpec, target: TargetModel | TargetSizes) -> None:
    """Raises CannotRunError where the drafter has no row for some token of the target, whoever lends the embedding."""
    own = spec.architecture.vocab_size
    if own is not None and own < target.vocab_size:
        what = f"its vocabulary is of {own} tokens, the target's of {target.vocab_size}"
        mend = f"name the target that it was trained for instead of {target.ref}, or mend vocab_size in its config.json"
        raise CannotRunError(what, spec.name, mend)


def check_fits(spec: DrafterSpec, wiring: Wiring, manifest: Manifest, steps: int) -> None:
    """Raises UsageError for `steps` that the recording does not look ahead; CannotRunError for a recording of a target
    that cannot be the drafter's, for boundaries that were not recorded, and for a state that no recording holds."""
    if not 1 <= steps <= manifest.lookahead:
        mend = f"ask for 1 to {manifest.lookahead} steps, or record again with a longer --lookahead"
        raise UsageError(f"{steps} steps on a recording that looks {manifest.lookahead} tokens ahead", spec.name, mend)
    _check_slots(spec, wiring, manifest)
    read = wiring.boundaries or ()
    if wiring.last_state == "post_norm" and manifest.num_layers in read and not manifest.last_normed:
        what = "it reads the last state behind the target's final norm, and this recording holds it before that alone"
        raise CannotRunError(what, spec.name, "record it with transformers, or decode with --target")
    apart = "; ".join(_apart(spec, wiring, manifest))
    if apart:
        what = f"the recording is of another target: {apart}"
        raise CannotRunError(
            what, f"{spec.name} on a recording of {manifest.target}", "record the drafter's own target"
        )
    for kept in {manifest.boundaries, *(answer.boundaries for answer in manifest.answers)} - {()}:
        _check_recorded(wiring, kept, spec.name, manifest)


def _check_slots(spec: DrafterSpec, wiring: Wiring, manifest: Manifest) -> None:
    """Raises CannotRunError where no boundaries are known, or not as many as fc reads."""
    declared = spec.aux_layers.declared
    if wiring.boundaries is None and declared:
        what = f"layer ids {list(declared)} of a target of {manifest.num_layers} layers"
        raise CannotRunError(what, spec.name, "correct them in config.json, or record the drafter's own target")
    if wiring.boundaries is None:
        raise CannotRunError("nothing tells which boundaries it reads", spec.name, "name its target with --target")
    check_states(spec, wiring)


def check_verified(manifest: Manifest, shape: Shape) -> None:
    """Raises UsageError for trees on a recording that was sampled: they are verified greedily alone."""
    if not shape.is_chain and manifest.temperature:
        what = f"a tree of top-k {shape.topk} on a recording at temperature {manifest.temperature:g}"
        raise UsageError(what, "--topk", "leave it at 1, or name a recording of greedy answers")


def check_beams(spec: DrafterSpec, topk: int) -> None:
    """Raises UsageError for more beams than there are tokens that it drafts from, where its files tell how many."""
    most = spec.architecture.draft_vocab_size or spec.architecture.vocab_size
    if most is not None and topk > most:
        mend = f"give {most} or less: so many tokens it drafts from"
        raise UsageError(f"a tree of top-k {topk}", f"--topk, {spec.name}", mend)


def states_for(drafter: Drafter, prompt: RecordedPrompt) -> Tensor:
    """The prompt's states as the drafter reads them, [slots, P + N - 1, hidden]. Raises CannotRunError where one is
    missing."""
    wiring, last = drafter.wiring, max(prompt.boundaries, default=0)
    _check_recorded(wiring, prompt.boundaries, drafter.spec.name)
    states = prompt.states[[prompt.boundaries.index(b) for b in wiring.boundaries or ()]]
    if wiring.last_state == "post_norm" and prompt.last_normed is not None:
        for slot in (slot for slot, boundary in enumerate(wiring.boundaries or ()) if boundary == last):
            states[slot] = prompt.last_normed
    return states


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
