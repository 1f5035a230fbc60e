"""The role of each tensor, stored or missing, by the training rule of the dialect that wrote it.

Source of the rules: the trainers' own code, as of 2026-08: SpecForge modeling/draft/base.py (freeze_embedding),
speculators model.py (DraftVocabMixin), ModelOpt plugins/hf_eagle.py and hf_spec_export.py, TorchSpec eagle3_trainer.py,
AngelSlim train_eagle3_online.py, EAGLE traineagle3/cnets.py. A rule says what a trainer does; only a comparison with
the target's weights proves what was done (evidence.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.drafter.architecture import Architecture
from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.expected import borrowed_tensors, expected_tensors, stand_ins
from drafter_audit.drafter.kinds import Kind
from drafter_audit.drafter.names import canonical, layer_index

Role = Literal["trainable", "frozen", "buffer", "unknown", "borrowed", "missing"]
STORED_ROLES: tuple[Role, ...] = ("trainable", "frozen", "buffer", "unknown")

_BUFFERS = {
    "d2t": "draft-to-target vocabulary map",
    "t2d": "mask of the target tokens in the draft vocabulary",
}
_ROPE_BUFFER = re.compile(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$")
_EMBEDDING = re.compile(r"^(embed_tokens|tok_embeddings)\.")
_HEAD = re.compile(r"^lm_head\.")
_LEFTOVER = re.compile(r"^(verifier_lm_head|verifier_norm|target_lm_head|.+\.lm_head|.+_lm_head)\.")
LEFTOVER = "leftover"  # of training: a second head or norm that only the trainer used
SECOND_COPY = "the same tensor is stored under another prefix too"
UNKNOWN_PART = "no known part of an EAGLE drafter"
_BODY = re.compile(
    r"^(fc|input_norm|fc_norm\.\d+|norm|hidden_norm|enorm|hnorm|eh_proj)\.(weight|bias)$"
    r"|^(embed|hidden|lm_head)_layernorm\.weight$"  # HASS and BaldEagle
    r"|^mask_hidden$|^layers\.\d+\.|^parallel_draft_heads\."
)
_SHARED = re.compile(r"(^|\.)(embed_tokens|shared_head\.head)\.weight$")  # of an MTP layer: DeepSeek-V3, GLM
_KEEPS_EMBEDDING = frozenset({"peagle", "eagle1"})  # P-EAGLE trains it; EAGLE-1 files hold it
# What such a drafter consists of, where its layout is not described tensor by tensor.
_BODIES = {
    "dflash": ": a DFlash trainer trains all but the target's embedding and head",
    "dspark": ": a DSpark trainer trains all but the target's embedding and head",
    "medusa": ": Medusa heads are trained on a target that stays as it is",
    "mtp": ": trained with its target, or after it",
}
_FREEZES_EMBEDDING = frozenset({"specforge", "speculators", "modelopt", "eagle", "angelslim", "torchspec", "nemo"})
_TRAINS_HEAD = frozenset({"specforge", "eagle", "angelslim", "torchspec", "nemo"})


@dataclass(frozen=True)
class TensorRole:
    """A tensor with its role and why. For a tensor that is not stored, `dtype` is None and `nbytes` 0.

    `elements` are those stored; `logical` the parameters they stand for, equal unless weights are packed. `shape` and
    `dtype` are the stored ones; `packed` names the format of a packed weight.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    elements: int
    logical: int
    nbytes: int
    role: Role
    reason: str
    packed: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "elements": self.elements,
            "logical": self.logical,
            "bytes": self.nbytes,
            "role": self.role,
            "reason": self.reason,
            "packed": self.packed,
        }


def assign_roles(clues: Clues, arch: Architecture, *, kind: Kind, dialect: str) -> tuple[TensorRole, ...]:
    """A role for each stored tensor, then one for each tensor that the kind needs and the file lacks."""
    own_head = clues.config.eagle.boolean("has_lm_head")
    rule = _Rule(kind, dialect, arch, clues.config.boolean("embed_requires_grad"), own_head)
    if clues.table is None:
        return tuple(_from_config(arch, rule))
    stored = [_stored(tensor, clues, rule) for tensor in clues.table]
    return (*stored, *_absent(clues, arch, rule))


def _stored(tensor: TensorInfo, clues: Clues, rule: _Rule) -> TensorRole:
    name, shape, elements = tensor.name, tensor.shape, tensor.elements
    if name in clues.packing.companions:
        reason = "quantisation scale, zero point or index"
        return TensorRole(name, shape, tensor.dtype, elements, elements, tensor.nbytes, "buffer", reason)
    weight = clues.packing.weights.get(name)
    if weight is None:
        role, reason = _role(canonical(name), shape, tensor, clues, rule)
        return TensorRole(name, shape, tensor.dtype, elements, elements, tensor.nbytes, role, reason)
    role, reason = _role(canonical(weight.name), weight.shape or (), tensor, clues, rule)
    return TensorRole(name, shape, tensor.dtype, elements, weight.logical, tensor.nbytes, role, reason, weight.label)


def _role(name: str, shape: tuple[int, ...], tensor: TensorInfo, clues: Clues, rule: _Rule) -> tuple[Role, str]:
    """The rule's word, but for the second of two tensors that have one canonical name."""
    if rule.kind.traits.eagle and clues.tensors.get(name) is not tensor:
        return ("frozen", LEFTOVER) if _HEAD.match(name) else ("unknown", SECOND_COPY)
    return rule.of(name, shape)


def _absent(clues: Clues, arch: Architecture, rule: _Rule) -> Iterator[TensorRole]:
    for name, shape in expected_tensors(arch, rule.kind.name).items():
        if name not in clues.tensors and not clues.tensors.keys() & set(stand_ins(name)):
            role, reason = rule.of_absent(name)
            yield _unread(name, shape, None, role, reason)
    for name, shape in borrowed_tensors(arch, rule.kind.name).items():
        if not any(other.endswith(name) for other in clues.tensors):
            yield _unread(name, shape, None, "borrowed", "not stored: this kind drafts with the target's")


def _from_config(arch: Architecture, rule: _Rule) -> Iterator[TensorRole]:
    """Roles of the tensors that config.json implies, where no weights were read."""
    for name, shape in expected_tensors(arch, rule.kind.name).items():
        if rule.leaves_out(name):
            yield _unread(name, shape, None, "borrowed", "taken from the target at load")
            continue
        role, reason = rule.of(name, shape)
        yield _unread(name, shape, arch.dtype, role, reason)


def _unread(name: str, shape: tuple[int, ...], dtype: str | None, role: Role, reason: str) -> TensorRole:
    return TensorRole(name, shape, dtype, prod(shape), prod(shape), 0, role, reason)


@dataclass(frozen=True)
class _Rule:
    """One dialect's training rule, for one checkpoint."""

    kind: Kind
    dialect: str
    arch: Architecture
    embed_requires_grad: bool | None
    has_lm_head: bool | None

    def leaves_out(self, name: str) -> bool:
        """Whether this kind has no such tensor of its own, or this dialect's usual export (SpecForge's to_sglang,
        ModelOpt, EAGLE) leaves it out."""
        if _HEAD.match(name):
            return self.kind.name == "eagle1"
        same_width = self.arch.target_hidden_size == self.arch.hidden_size
        exporter = self.dialect in {"specforge", "modelopt", "eagle"} and self.kind.name not in _KEEPS_EMBEDDING
        return bool(_EMBEDDING.match(name)) and exporter and same_width

    def of(self, name: str, shape: tuple[int, ...]) -> tuple[Role, str]:
        if name in _BUFFERS:
            return "buffer", _BUFFERS[name]
        if _ROPE_BUFFER.search(name):
            return "buffer", "rotary table"
        if not self.kind.traits.is_drafter:
            return "unknown", "not known to be a drafter: no training rule applies"
        if self.kind.traits.eagle and _LEFTOVER.match(name):
            return "frozen", LEFTOVER
        if self.kind.name == "mtp" and layer_index(name) is not None and _SHARED.search(name):
            return "frozen", "a copy of what the prediction layer shares with its target"
        if _EMBEDDING.match(name):
            return self._embedding()
        if _HEAD.match(name):
            return self._head(shape)
        if self.kind.traits.eagle and not _BODY.match(name):
            return "unknown", UNKNOWN_PART
        return "trainable", f"part of the drafter's body{_BODIES.get(self.kind.name, '')}"

    def _embedding(self) -> tuple[Role, str]:
        if self.embed_requires_grad is not None:
            role: Role = "trainable" if self.embed_requires_grad else "frozen"
            return role, f"config.json: embed_requires_grad is {str(self.embed_requires_grad).lower()}"
        if self.kind.name == "peagle":
            return "trainable", "P-EAGLE trains the embedding"
        if self.dialect in _FREEZES_EMBEDDING:
            return "frozen", f"{self.dialect} freezes the embedding, a copy of the target's"
        return "unknown", "the trainer is unknown, so whether the embedding was trained is too"

    def _head(self, shape: tuple[int, ...]) -> tuple[Role, str]:
        if self.dialect == "speculators":
            return "frozen", "speculators freezes the head: the target's rows, selected by t2d"
        if self.dialect == "modelopt":
            return self._modelopt_head(shape)
        if self.dialect in _TRAINS_HEAD:
            return "trainable", f"{self.dialect} trains the head from a fresh start"
        return "unknown", "the trainer is unknown, so whether the head was trained is too"

    def _modelopt_head(self, shape: tuple[int, ...]) -> tuple[Role, str]:
        """Its exporter copies the base head where the drafter has none of its own."""
        rows = shape[0] if shape else self.arch.draft_vocab_size
        reduced = bool(rows and self.arch.vocab_size and rows < self.arch.vocab_size)
        if reduced or self.has_lm_head:
            return "trainable", "modelopt trains its own head over a draft vocabulary"
        return "frozen", "modelopt exports the base model's head where the drafter has none"

    def of_absent(self, name: str) -> tuple[Role, str]:
        if _EMBEDDING.match(name):
            if self.arch.target_hidden_size != self.arch.hidden_size:
                return "missing", "the target's embedding has another width, so it cannot be borrowed"
            return "borrowed", "not stored: the engine takes the target's embedding at load"
        if _HEAD.match(name):
            if self.kind.name == "eagle1" or not self.arch.reduced_vocabulary:
                return "borrowed", "not stored: the target's head serves, the draft vocabulary is not reduced"
            return "missing", "the target's head cannot serve a reduced draft vocabulary"
        return "missing", "not in the file, and nothing can stand in for it"
