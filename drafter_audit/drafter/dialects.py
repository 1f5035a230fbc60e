"""Which trainer wrote a checkpoint, by fingerprint, and what that trainer trains, freezes and leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.config_view import ConfigView

DIALECTS = ("specforge", "speculators", "modelopt", "eagle", "angelslim", "torchspec", "nemo", "gguf", "unknown")

# Concatenate the aux states in the order of the config's list; all others sort by layer (AngelSlim
# target_model_wrapper.py, TorchSpec eagle3_target_model.py, NeMo target.py).
LIST_ORDER = frozenset({"angelslim", "torchspec", "nemo"})

NOTE = "drafter_audit"
"""Section of config.json in which an edit leaves what the config no longer tells by itself."""

_MODELOPT_KEYS = ("next_layer_regular", "parallel_draft_step")  # its other keys are copied by TorchSpec's templates


@dataclass(frozen=True)
class Dialect:
    """A name from the closed list, and the fingerprint that gave it."""

    name: str
    reason: str


def detect_dialect(clues: Clues) -> Dialect:
    """The trainer that wrote the checkpoint; `unknown` where no fingerprint fits.

    An edit that takes a fingerprint away notes the trainer. Raises ConfigError where the note names none.
    """
    noted = ConfigView(clues.config.section(NOTE), f"{clues.config.where}: {NOTE}")
    if (name := noted.text("dialect")) is not None:
        if name not in DIALECTS:
            raise noted.wrong("dialect", name, f"one of {', '.join(DIALECTS)}")
        return Dialect(name, f"config.json notes it under {NOTE}.dialect")
    for name, predicate, reason in _TABLE:
        if predicate(clues):
            return Dialect(name, reason)
    return Dialect("unknown", "no known trainer's fingerprint")


def _is_gguf(clues: Clues) -> bool:
    return clues.table is not None and clues.table.gguf


def _is_speculators(clues: Clues) -> bool:
    raw = clues.config.raw
    named = any(name.endswith("Speculator") for name in clues.config.architectures)
    return named or any(key in raw for key in ("speculators_model_type", "speculators_config", "speculators_version"))


def _is_torchspec(clues: Clues) -> bool:
    stamped = "_torchspec_version" in clues.config.raw or "torchspec_version" in clues.metadata
    return stamped or (clues.stored("kv_a_proj_with_mqa") and _stored_as(clues, "midlayer."))


def _is_modelopt(clues: Clues) -> bool:
    return any(key in clues.config.eagle.raw for key in _MODELOPT_KEYS)


def _is_angelslim(clues: Clues) -> bool:
    return "Eagle3LlamaForCausalLM" in clues.config.architectures or "modal_type" in clues.config.raw


def _is_nemo(clues: Clues) -> bool:
    keyed = any(key in clues.config.raw for key in ("down_sample_ratio", "num_depths"))
    prefixed = _stored_as(clues, "model.fc.", "model.layers.0.hidden_norm.")
    return keyed or (prefixed and not _stored_as(clues, "fc.", "layers.", "midlayer."))


def _is_eagle(clues: Clues) -> bool:
    """The authors' own trainer writes the class name of a plain Llama and its old transformers version."""
    one_layer = clues.config.integer("num_hidden_layers", minimum=0) == 1
    plain = clues.config.architectures == ("LlamaForCausalLM",) and one_layer
    old = (clues.config.text("transformers_version") or "").startswith(("4.28.", "4.31.", "4.32."))
    return plain and (old or _stored_as(clues, "midlayer."))


def _is_specforge(clues: Clues) -> bool:
    if clues.config.architecture_contains("PEagleDraftModel"):
        return True
    if clues.has_weights:
        return _stored_as(clues, "midlayer.")
    return clues.config.architecture_contains("LlamaForCausalLMEagle3")


def _stored_as(clues: Clues, *prefixes: str) -> bool:
    return any(tensor.name.startswith(prefixes) for tensor in clues.table or ())


_TABLE: tuple[tuple[str, Callable[[Clues], bool], str], ...] = (
    ("gguf", _is_gguf, "a GGUF file: who trained it is not told"),
    ("speculators", _is_speculators, "speculators_* keys in config.json, or a class name in Speculator"),
    ("torchspec", _is_torchspec, "_torchspec_version, or a latent-attention midlayer"),
    ("modelopt", _is_modelopt, "ModelOpt's export keys in eagle_config"),
    ("angelslim", _is_angelslim, "the class name Eagle3LlamaForCausalLM, or modal_type"),
    ("nemo", _is_nemo, "model.-prefixed fused layer, or NeMo's P-EAGLE keys"),
    ("eagle", _is_eagle, "plain Llama class with one layer, as the EAGLE authors' trainer writes"),
    ("specforge", _is_specforge, "midlayer.* under LlamaForCausalLMEagle3"),
)
