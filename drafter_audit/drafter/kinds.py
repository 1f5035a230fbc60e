"""Which kind of drafter a checkpoint is: a table of predicates over config and tensors, the first that holds wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drafter_audit.drafter import signatures as s
from drafter_audit.drafter.clues import Clues


@dataclass(frozen=True)
class Traits:
    """What a kind implies for the rest of the audit.

    `is_drafter`: it proposes tokens for a target. `eagle`: its tensors are those of an EAGLE drafter (expected.py lists
    them, roles.py knows no others). `fuses`: fc fuses several target states. `reads_aux`: it reads such states at all.
    `defaults`: engines take [2, L//2, L-3] where no ids are declared. `borrows`: it has neither embedding nor head of
    its own, the engine gives it the target's. `own_depth`: num_hidden_layers is its own, not its target's.
    """

    is_drafter: bool = True
    eagle: bool = False
    fuses: bool = False
    reads_aux: bool = False
    defaults: bool = False
    borrows: bool = False
    own_depth: bool = True


_EAGLE3 = Traits(eagle=True, fuses=True, reads_aux=True, defaults=True)
TRAITS = {
    "eagle3": _EAGLE3,
    "eagle3_mla": _EAGLE3,
    "eagle3_noaux": Traits(eagle=True),
    "eagle1": Traits(eagle=True),
    "peagle": _EAGLE3,
    "dflash": Traits(reads_aux=True, borrows=True),
    "dspark": Traits(reads_aux=True, borrows=True),
    "mtp": Traits(own_depth=False),
    "medusa": Traits(own_depth=False),
    "lm": Traits(is_drafter=False),
    "unknown": Traits(is_drafter=False, reads_aux=True),
}
KINDS = tuple(TRAITS)


@dataclass(frozen=True)
class Kind:
    """A name from the closed list, and the signature that gave it."""

    name: str
    reason: str

    @property
    def traits(self) -> Traits:
        return TRAITS[self.name]


def detect_kind(clues: Clues) -> Kind:
    """The kind of checkpoint; `unknown` where no signature fits."""
    for name, predicate, reason in _TABLE:
        if predicate(clues):
            return Kind(name, reason)
    return Kind("unknown", "no known signature in config.json or in the tensors")


_TABLE: tuple[tuple[str, Callable[[Clues], bool], str], ...] = (
    (
        "unknown",
        s.is_hydra,
        "hydra_* keys or heads: Hydra heads, each fed by the one before; a drafter, of a kind that is not audited here",
    ),
    (
        "unknown",
        s.is_mlp_speculator,
        "model_type mlp_speculator: an MLP speculator; a drafter, of a kind that is not audited here",
    ),
    (
        "lm",
        s.is_target_with_head,
        "a language model that carries prediction layers (mtp, nextn, DSpark) beside its own",
    ),
    ("dspark", s.is_dspark, "DSpark keys, class or Markov tensors"),
    ("dflash", s.is_dflash, "DFlash keys or class, or fc and hidden_norm outside the layers"),
    ("peagle", s.is_peagle, "mask_hidden, parallel_drafting or a P-EAGLE class"),
    ("medusa", s.is_medusa, "Medusa keys, class or heads"),
    ("mtp", s.is_mtp, "a prediction layer alone (eh_proj, mtp.*), or a class or model_type of one"),
    (
        "eagle3_noaux",
        s.is_eagle3_noaux,
        "an EAGLE-3 layer fed by the last state alone (no fc, use_aux_hidden_state false)",
    ),
    ("eagle3_mla", lambda c: s.is_any_eagle3(c) and s.is_mla(c), "an EAGLE-3 layer with latent attention (kv_a_proj)"),
    (
        "eagle3",
        s.is_any_eagle3,
        "layer 0 reads [embedding ; fused target states] (hidden_norm, attention input 2 x hidden)",
    ),
    ("eagle1", s.is_eagle1, "fc reads [embedding ; last state], one plain layer"),
    (
        "lm",
        s.is_pard,
        "pard_token: a PARD drafter, a whole language model that drafts several tokens at once; no EAGLE drafter",
    ),
    (
        "lm",
        s.is_lm,
        "embedding and plain decoder layers, no fc, attention input of hidden width: a language model, not a drafter",
    ),
)


def kind_table() -> tuple[tuple[str, str], ...]:
    """Each kind with its signature, in the order in which they are tried; `unknown` is also what fits none."""
    return tuple((name, reason) for name, _, reason in _TABLE)
