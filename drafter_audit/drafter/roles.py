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
from drafter_audit.drafter.expected import expected_tensors
from drafter_audit.drafter.names import canonical

Role = Literal["trainable", "frozen", "buffer", "unknown", "borrowed", "missing"]
STORED_ROLES: tuple[Role, ...] = ("trainable", "frozen", "buffer", "unknown")

_BUFFERS = {
    "d2t": "draft-to-target vocabulary map",
    "t2d": "mask of the target tokens in the draft vocabulary",
}
_ROPE_BUFFER = re.compile(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$")
# Companions of packed weights (GPTQ, AWQ, compressed-tensors, fp8): they describe weights, they are none.
_QUANT_BUFFER = re.compile(r"(_scale|_scale_inv|_scale_2|_zero_point|weight_shape|\.scales|\.qzeros|\.g_idx)$")
_EMBEDDING = re.compile(r"^(embed_tokens|tok_embeddings)\.")
_HEAD = re.compile(r"^lm_head\.")
_LEFTOVER = re.compile(r"^(verifier_lm_head|verifier_norm|target_lm_head|.+\.lm_head|.+_lm_head)\.")
LEFTOVER = "leftover"  # of training: a second head or norm that only the trainer used
UNKNOWN_PART = "no known part of an EAGLE drafter"
_EAGLE_KINDS = frozenset({"eagle3", "eagle3_mla", "eagle3_noaux", "eagle1", "peagle"})
_BODY = re.compile(
    r"^(fc|input_norm|fc_norm\.\d+|norm|hidden_norm|enorm|hnorm|eh_proj)\.(weight|bias|weight_packed|qweight)$"
    r"|^mask_hidden$|^layers\.\d+\."
)
_TRAINS_EMBEDDING = frozenset({"peagle"})
_FREEZES_EMBEDDING = frozenset({"specforge", "speculators", "modelopt", "eagle", "angelslim", "torchspec", "nemo"})
_TRAINS_HEAD = frozenset({"specforge", "eagle", "angelslim", "torchspec", "nemo"})


@dataclass(frozen=True)
class TensorRole:
    """A tensor with its role and why. For a tensor that is not stored, `dtype` is None and `nbytes` 0.

    `elements` are those stored; `logical` the parameters they stand for, equal unless weights are packed.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    elements: int
    nbytes: int
    role: Role
    reason: str

    @property
    def logical(self) -> int:
        return self.elements

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
        }


def assign_roles(clues: Clues, arch: Architecture, *, kind: str, dialect: str) -> tuple[TensorRole, ...]:
    """A role for each stored tensor, then one for each tensor that the kind needs and the file lacks."""
    rule = _Rule(kind, dialect, arch, embed_requires_grad=clues.config.boolean("embed_requires_grad"),
                 has_lm_head=clues.config.eagle.boolean("has_lm_head"))  # fmt: skip
    if clues.table is None:
        return tuple(_from_config(clues, arch, rule))
    stored = [_stored(tensor, rule) for tensor in clues.table]
    return (*stored, *_absent(clues, arch, rule))


def _stored(tensor: TensorInfo, rule: _Rule) -> TensorRole:
    role, reason = rule.of(canonical(tensor.name), tensor.shape)
    return TensorRole(tensor.name, tensor.shape, tensor.dtype, tensor.elements, tensor.nbytes, role, reason)


def _absent(clues: Clues, arch: Architecture, rule: _Rule) -> Iterator[TensorRole]:
    without_norm = clues.config.eagle.boolean("use_last_layernorm") is False  # ModelOpt's switch
    for name, shape in expected_tensors(arch, rule.kind).items():
        if name == "norm.weight" and without_norm:
            continue
        # A packed weight is stored under other names (weight_packed, qweight).
        packed = any(stored.startswith(name.removesuffix("weight")) for stored in clues.tensors)
        if name not in clues.tensors and not packed:
            role, reason = rule.of_absent(name)
            yield TensorRole(name, shape, None, prod(shape), 0, role, reason)


def _from_config(clues: Clues, arch: Architecture, rule: _Rule) -> Iterator[TensorRole]:
    """Roles of the tensors that config.json implies, where no weights were read."""
    for name, shape in expected_tensors(arch, rule.kind).items():
        if _EMBEDDING.match(name) and rule.leaves_embedding_out:
            yield TensorRole(name, shape, None, prod(shape), 0, "borrowed", "taken from the target at load")
            continue
        role, reason = rule.of(name, shape)
        yield TensorRole(name, shape, arch.dtype, prod(shape), 0, role, reason)


@dataclass(frozen=True)
class _Rule:
    """One dialect's training rule, for one checkpoint."""

    kind: str
    dialect: str
    arch: Architecture
    embed_requires_grad: bool | None
    has_lm_head: bool | None

    @property
    def leaves_embedding_out(self) -> bool:
        """Whether this dialect's usual export has no embedding (SpecForge's to_sglang, ModelOpt, EAGLE)."""
        same_width = self.arch.target_hidden_size == self.arch.hidden_size
        return self.dialect in {"specforge", "modelopt", "eagle"} and self.kind != "peagle" and same_width

    def of(self, name: str, shape: tuple[int, ...]) -> tuple[Role, str]:
        if name in _BUFFERS:
            return "buffer", _BUFFERS[name]
        if _ROPE_BUFFER.search(name):
            return "buffer", "rotary table"
        if _QUANT_BUFFER.search(name):
            return "buffer", "quantisation scale, zero point or index"
        if self.kind in {"lm", "unknown"}:
            return "unknown", "not known to be a drafter: no training rule applies"
        if _LEFTOVER.match(name):
            return "frozen", LEFTOVER
        if _EMBEDDING.match(name):
            return self._embedding()
        if _HEAD.match(name):
            return self._head(shape)
        if self.kind in _EAGLE_KINDS and not _BODY.match(name):
            return "unknown", UNKNOWN_PART
        return "trainable", "part of the drafter's body"

    def _embedding(self) -> tuple[Role, str]:
        if self.embed_requires_grad is not None:
            role: Role = "trainable" if self.embed_requires_grad else "frozen"
            return role, f"config.json: embed_requires_grad is {str(self.embed_requires_grad).lower()}"
        if self.kind in _TRAINS_EMBEDDING:
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
        reduced = bool(shape) and self.arch.vocab_size is not None and shape[0] < self.arch.vocab_size
        if reduced or self.has_lm_head:
            return "trainable", "modelopt trains its own head over a draft vocabulary"
        return "frozen", "modelopt exports the base model's head where the drafter has none"

    def of_absent(self, name: str) -> tuple[Role, str]:
        if _EMBEDDING.match(name):
            if self.arch.target_hidden_size != self.arch.hidden_size:
                return "missing", "the target's embedding has another width, so it cannot be borrowed"
            return "borrowed", "not stored: the engine takes the target's embedding at load"
        if _HEAD.match(name):
            if self.arch.draft_vocab_size == self.arch.vocab_size:
                return "borrowed", "not stored: the target's head serves, the vocabularies are equal"
            return "missing", "the target's head cannot serve a reduced draft vocabulary"
        return "missing", "not in the file, and nothing can stand in for it"
