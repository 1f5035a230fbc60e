"""Which kind of drafter a checkpoint is: a table of predicates over config and tensors, the first that holds wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drafter_audit.drafter.clues import Clues


@dataclass(frozen=True)
class Traits:
    """What a kind implies for the rest of the audit.

    `is_drafter`: it proposes tokens for a target. `eagle`: its tensors are those of an EAGLE drafter (expected.py lists
    them, roles.py knows no others). `fuses`: fc fuses several target states. `reads_aux`: it reads such states at all.
    `defaults`: engines take [2, L//2, L-3] where no ids are declared.
    """

    is_drafter: bool = True
    eagle: bool = False
    fuses: bool = False
    reads_aux: bool = False
    defaults: bool = False


_EAGLE3 = Traits(eagle=True, fuses=True, reads_aux=True, defaults=True)
TRAITS = {
    "eagle3": _EAGLE3,
    "eagle3_mla": _EAGLE3,
    "eagle3_noaux": Traits(eagle=True),
    "eagle1": Traits(eagle=True),
    "peagle": _EAGLE3,
    "dflash": Traits(reads_aux=True),
    "dspark": Traits(reads_aux=True),
    "mtp": Traits(),
    "medusa": Traits(),
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


def _speculators(*algorithms: str) -> Callable[[Clues], bool]:
    return lambda clues: clues.config.raw.get("speculators_model_type") in algorithms


def _is_dspark(clues: Clues) -> bool:
    keys = ("dspark_target_layer_ids", "dspark_block_size", "markov_rank", "markov_head_type")
    return (
        _speculators("dspark")(clues)
        or clues.config.has(*keys)
        or clues.config.architecture_contains("DSpark")
        or clues.stored("markov_w1", "markov_w2")
    )


def _is_dflash(clues: Clues) -> bool:
    config = clues.config
    blocks = config.has("block_size") and config.has("num_target_layers", "target_layer_ids")
    named = config.architecture_contains("DFlash", "LiLiCorr", "XPress")
    return _speculators("dflash", "dflash2")(clues) or bool(config.section("dflash_config")) or blocks or named


def _is_peagle(clues: Clues) -> bool:
    config = clues.config
    return (
        _speculators("peagle")(clues)
        or "mask_hidden" in clues.tensors
        or config.boolean("parallel_drafting") is True
        or config.architecture_contains("PEagle")
    )


def _is_medusa(clues: Clues) -> bool:
    return clues.config.has("medusa_num_heads", "medusa_num_layers") or clues.stored("medusa_head", "medusa_layers")


def _is_mtp(clues: Clues) -> bool:
    """A multi-token-prediction head on its own; a target that carries one beside its layers stays a language model."""
    if clues.has_weights:
        head = clues.stored("eh_proj", "pre_fc_norm") or any(name.startswith("mtp.") for name in clues.tensors)
        return head and not _reads_two_inputs(clues) and len(clues.layers) <= 1
    return _speculators("mtp")(clues) or clues.config.architecture_contains("MTP", "NextN")


def _reads_two_inputs(clues: Clues) -> bool:
    """Layer 0's attention reads [embedding ; fused state]: the mark of every EAGLE-3 layer."""
    if "layers.0.hidden_norm.weight" in clues.tensors:
        return True
    hidden = clues.dim("layers.0.self_attn.o_proj.weight", 0)
    return hidden is not None and clues.first_layer_input == 2 * hidden


def declares_eagle3(clues: Clues) -> bool:
    """Whether config.json alone speaks of an EAGLE-3 drafter."""
    config = clues.config
    return (
        _speculators("eagle3")(clues)
        or config.architecture_contains("Eagle3")
        or bool(config.eagle.raw)
        or config.has("draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "eagle_layer_ids")
    )


def _is_any_eagle3(clues: Clues) -> bool:
    if not clues.has_weights:
        return declares_eagle3(clues)
    without_aux = clues.config.eagle.boolean("use_aux_hidden_state") is False
    return _reads_two_inputs(clues) or (without_aux and "fc.weight" not in clues.tensors and len(clues.layers) == 1)


def _is_mla(clues: Clues) -> bool:
    if clues.has_weights:
        return clues.stored("self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj")
    return clues.config.has("kv_lora_rank")


def _is_eagle3_noaux(clues: Clues) -> bool:
    if not _is_any_eagle3(clues):
        return False
    declared = clues.config.eagle.boolean("use_aux_hidden_state")
    unfused = clues.has_weights and "fc.weight" not in clues.tensors
    return declared is False or (declared is None and unfused)


def _is_eagle1(clues: Clues) -> bool:
    config = clues.config
    if clues.has_weights:
        rows, columns = clues.dim("fc.weight", 0), clues.dim("fc.weight", 1)
        return rows is not None and columns == 2 * rows and len(clues.layers) >= 1
    named = config.architecture_contains("EagleLlama", "LlamaForCausalLMEagle", "EagleMistral", "Mistral3Eagle")
    one_layer = config.integer("num_hidden_layers", minimum=0) == 1 and config.architecture_contains("ForCausalLM")
    return _speculators("eagle")(clues) or config.text("model_type") == "eagle" or named or one_layer


def _is_lm(clues: Clues) -> bool:
    if clues.has_weights:
        return clues.stored("embed_tokens", "tok_embeddings", "wte") and any(
            "layers." in name or ".h." in name for name in clues.tensors
        )
    return clues.config.architecture_contains("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


_TABLE: tuple[tuple[str, Callable[[Clues], bool], str], ...] = (
    ("dspark", _is_dspark, "DSpark keys, class or Markov tensors"),
    ("dflash", _is_dflash, "dflash_config, or block_size with target layers"),
    ("peagle", _is_peagle, "mask_hidden, parallel_drafting or a P-EAGLE class"),
    ("medusa", _is_medusa, "medusa keys or heads"),
    ("mtp", _is_mtp, "eh_proj or mtp.* without a fused two-input layer"),
    (
        "eagle3_noaux",
        _is_eagle3_noaux,
        "an EAGLE-3 layer fed by the last state alone (no fc, use_aux_hidden_state false)",
    ),
    ("eagle3_mla", lambda c: _is_any_eagle3(c) and _is_mla(c), "an EAGLE-3 layer with latent attention (kv_a_proj)"),
    (
        "eagle3",
        _is_any_eagle3,
        "layer 0 reads [embedding ; fused target states] (hidden_norm, attention input 2 x hidden)",
    ),
    ("eagle1", _is_eagle1, "fc reads [embedding ; last state], one plain layer"),
    ("lm", _is_lm, "embedding and plain decoder layers: a language model, not a drafter"),
)
