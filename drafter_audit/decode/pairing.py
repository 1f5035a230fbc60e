"""Whether a drafter, a target and prompts fit together, asked before any long work; and which states the one reads of
the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from drafter_audit.decode.settings import Settings
from drafter_audit.errors import CannotRunError, InputsError
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt


@dataclass(frozen=True)
class Wanted:
    """The states that a drafter reads: of `boundaries`, distinct and ascending, slot s takes number `slots[s]`; those
    of the last boundary behind the target's final norm where `normed`."""

    boundaries: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    normed: bool = False


def wanted_states(drafter: Drafter, target: TargetModel) -> Wanted:
    """What `drafter.wiring` reads of that target. Raises CannotRunError where the two do not fit."""
    read, name = drafter.wiring.boundaries, drafter.spec.name
    if read is None:
        raise CannotRunError("which states it reads is not known", name, "set its layer ids, or pass a wiring")
    if not all(0 <= boundary <= target.num_layers for boundary in read):
        what = f"boundaries {list(read)} of a target with {target.num_layers} layers"
        raise CannotRunError(what, name, f"pass its own target instead of {target.ref}, or mend its layer ids")
    if drafter.states_shape != (len(read), target.hidden_size):
        slots, width = drafter.states_shape
        what = f"{slots} states of width {width} where {target.ref} gives {len(read)} of width {target.hidden_size}"
        raise CannotRunError(what, name, "pass the target that it was trained for")
    _check_vocabulary(drafter, target)
    distinct = tuple(sorted(set(read)))
    normed = drafter.wiring.last_state == "post_norm" and target.num_layers in distinct
    return Wanted(distinct, tuple(distinct.index(boundary) for boundary in read), normed)


def _check_vocabulary(drafter: Drafter, target: TargetModel) -> None:
    """Every token of the target can be embedded, and every draft is one of them."""
    rows = len(drafter.network.embedding)
    mend = f"pass the target that it was trained for instead of {target.ref}"
    if rows < target.vocab_size:
        what = f"an embedding of {rows} rows for a target of {target.vocab_size} tokens"
        raise CannotRunError(what, drafter.spec.name, mend)
    drafts = drafter.target_ids(torch.arange(len(drafter.network.head.weight)))
    if int(drafts.min()) < 0 or int(drafts.max()) >= target.vocab_size:
        what = f"it drafts tokens {int(drafts.min())}..{int(drafts.max())}, the target has {target.vocab_size}"
        raise CannotRunError(what, drafter.spec.name, mend)


def check_prompts(prompts: Sequence[TokenPrompt], target: TargetModel, settings: Settings) -> None:
    """Raises InputsError for no prompt, an empty one, one of unknown tokens, and one that leaves the target's context
    no room for the answer and the drafts beyond it."""
    if not prompts:
        raise InputsError("no prompt", "the prompt set", "give at least one")
    room = target.max_positions
    beyond = settings.max_new_tokens + settings.steps - 1
    for prompt in prompts:
        if not prompt.ids or min(prompt.ids) < 0 or max(prompt.ids) >= target.vocab_size:
            what = f"{len(prompt.ids)} tokens, not all of them of the target's {target.vocab_size}"
            raise InputsError(what, f"prompt {prompt.id}", "give at least one, of the target's own tokenizer")
        if room is not None and len(prompt.ids) + beyond > room:
            what = f"{len(prompt.ids)} tokens, {beyond} to follow, in a context of {room}"
            raise InputsError(what, f"prompt {prompt.id}", "lower --max-new-tokens, or leave the prompt out")
