"""SGLang's classes for drafters: which one a config names, what it needs, and which stored tensors it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from packaging.version import Version

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.expected import stand_ins
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.rope import Rope, read_rope
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines.base import Release, Rule
from drafter_audit.engines.sglang import rules as r

Layout = Literal["llama", "latent", "eagle1"]
_IDS = "eagle_aux_hidden_state_layer_ids"

# Class -> what it runs, and the first release that has it.
CLASSES: Mapping[str, tuple[Layout, str]] = {
    "LlamaForCausalLMEagle3": ("llama", r.OLDEST),
    "Eagle3DeepseekV2ForCausalLM": ("latent", "0.5.12"),
    "LlamaForCausalLMEagle": ("eagle1", r.OLDEST),
    "Qwen2ForCausalLMEagle": ("eagle1", r.OLDEST),
    "MistralForCausalLMEagle": ("eagle1", "0.5.11"),
}
_LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_PLAIN = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True)
class Draft:
    """A drafter under the class `name` of a release, as that class would read its config.json: the top level alone."""

    spec: DrafterSpec
    release: Release
    name: str

    @property
    def layout(self) -> Layout:
        return CLASSES[self.name][0]

    @property
    def raw(self) -> Mapping[str, Any]:
        return self.spec.config.raw

    @cached_property
    def eagle(self) -> Mapping[str, Any]:
        section = self.raw.get("eagle_config")
        return section if isinstance(section, Mapping) else {}

    @property
    def ids(self) -> Ids | None:
        """The ids that are read, verbatim."""
        return ConfigView(self.eagle, f"{self.spec.config.where}: eagle_config").layer_ids(_IDS)

    @property
    def uses_aux(self) -> bool:
        return r.AUX_ALWAYS.holds(self.release) or bool(self.eagle.get("use_aux_hidden_state", True))

    @property
    def slots(self) -> int:
        """How many states fc is built for."""
        if self.since("0.5.12") and self.layout == "llama" and self.raw.get("num_aux_hidden_states") is not None:
            return int(self.raw["num_aux_hidden_states"])
        ids = self.ids or (self.raw.get(_IDS) if self.layout == "latent" else None)
        return len(ids) if ids and self.since("0.5.12") else 3

    @property
    def hidden(self) -> int:
        return int(self.raw.get("hidden_size") or self.spec.architecture.hidden_size or 0)

    @property
    def state_width(self) -> int:
        """The width of one state, as the config tells it."""
        return int(self.raw.get("target_hidden_size") or self.hidden)

    @property
    def skips_fc(self) -> bool:
        """States that are as wide as the embedding go past fc."""
        wide = self.state_width * (self.slots if self.uses_aux else 1)
        return wide == self.hidden

    @property
    def layers(self) -> int:
        return int(self.raw.get("num_hidden_layers") or self.spec.architecture.num_layers or 1)

    @property
    def tied(self) -> bool:
        return bool(self.raw.get("tie_word_embeddings"))

    @property
    def takes_targets_head(self) -> bool:
        return not self.tied and self.raw.get("draft_vocab_size") is None

    @property
    def shares_embedding(self) -> bool:
        return self.takes_targets_head or self.state_width == self.hidden

    @property
    def rope(self) -> Rope:
        """The rope settings that are read, of the two layouts in which they may be written."""
        old, theta = self.raw.get("rope_scaling"), self.raw.get("rope_theta")
        told = old if r.ROPE_OLD.holds(self.release) else old or self.raw.get("rope_parameters")
        read = told if isinstance(told, Mapping) else {}
        inner = None if r.ROPE_OLD.holds(self.release) else read.get("rope_theta")
        base = theta if inner is None else inner
        flat = {
            "rope_theta": base,
            "rope_scaling": {k: v for k, v in read.items() if k != "rope_theta"} or None,
        }
        return read_rope(ConfigView(flat, self.spec.config.where))

    def since(self, version: str) -> bool:
        return self.release.number >= Version(version)

    def flag(self, key: str, *, nested: bool = False) -> bool:
        """A switch, nested in eagle_config before the top level where `nested`."""
        return bool(self.eagle[key] if nested and key in self.eagle else self.raw.get(key))

    @cached_property
    def stored(self) -> tuple[str, ...] | None:
        """Names of the stored tensors, packed weights under the name they have unpacked; None where none were read."""
        if self.spec.table is None:
            return None
        packing = self.spec.clues.packing
        names = (tensor.name for tensor in self.spec.table if tensor.name not in packing.companions)
        return tuple(packing.weights[name].name if name in packing.weights else name for name in names)

    def taken(self, name: str) -> str | None:
        """The canonical name of the parameter that a stored tensor goes to, None where there is none."""
        bare = name.removeprefix("model.")
        if self.layout == "eagle1":
            return canonical(name) if not name.startswith("model.") else None
        if bare != name and (self.layout == "latent" or bare.startswith("lm_head.")):
            return None
        if bare.startswith("layers.") and self.layout == "llama" and not self.since("0.5.12"):
            return None  # the only layer is called midlayer there
        found = canonical(bare)
        return found if found in self.parameters else None

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Canonical names of all parameters of the class, norms included."""
        norms = {"norm.weight", "input_norm.weight"} | {f"fc_norm.{slot}.weight" for slot in range(self.slots)}
        for layer in range(self.layers):
            names = ("input_layernorm", "post_attention_layernorm", "hidden_norm", "self_attn.q_a_layernorm",
                     "self_attn.kv_a_layernorm")  # fmt: skip
            norms |= {f"layers.{layer}.{name}.weight" for name in names}
        fused = {f"layers.{layer}.{name}.weight" for layer in range(self.layers)
                 for name in ("self_attn.qkv_proj", "mlp.gate_up_proj")}  # fmt: skip
        return frozenset({*norms, *fused, *self.linears(), "embed_tokens.weight", "lm_head.weight"})

    def linears(self) -> Iterator[str]:
        """Canonical names of the weights that have no use but as trained."""
        if self.layout == "eagle1" or not self.skips_fc:
            yield "fc.weight"
        if self.raw.get("bias") or self.layout == "eagle1":
            yield "fc.bias"
        attention = _LATENT if self.layout == "latent" else _PLAIN
        for layer in range(self.layers):
            yield from (f"layers.{layer}.self_attn.{name}.weight" for name in attention)
            yield from (f"layers.{layer}.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
        if self.layout != "eagle1" and not self.tied and not self.takes_targets_head:
            yield "lm_head.weight"
        if self.layout != "eagle1" and not self.shares_embedding:
            yield "embed_tokens.weight"

    @cached_property
    def filled(self) -> frozenset[str]:
        return frozenset(taken for name in self.stored or () if (taken := self.taken(name)) is not None)

    @property
    def unfilled(self) -> tuple[str, ...]:
        """Weights that no stored tensor fills."""
        if self.stored is None:
            return ()
        return tuple(n for n in self.linears() if n not in self.filled and not set(stand_ins(n)) & self.filled)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Stored tensors of consequence that go nowhere."""
        silent = ("d2t", "t2d")
        return tuple(
            name
            for name in self.stored or ()
            if self.taken(name) is None and canonical(name) not in silent and "rotary_emb" not in name
        )


def named_draft(spec: DrafterSpec, release: Release) -> Draft | None:
    """The drafter under the first class of its config that the release has; None where it has none."""
    for name in spec.config.architectures:
        if name in CLASSES and release.number >= Version(CLASSES[name][1]):
            return Draft(spec, release, name)
    return None


def class_for(spec: DrafterSpec, release: Release) -> str | None:
    """The class that suits the drafter's kind, None where the release has none."""
    wanted: dict[str, Layout] = {"eagle3": "llama", "eagle3_noaux": "llama", "eagle3_mla": "latent", "eagle1": "eagle1"}
    layout = wanted.get(spec.kind.name)
    return next(
        (name for name, (own, since) in CLASSES.items() if own == layout and release.number >= Version(since)), None
    )


def obstacles(draft: Draft) -> Iterator[tuple[Rule, str]]:
    """Why the drafter would not load, or would load as something else."""
    if not draft.raw.get("model_type"):
        yield r.MODEL_TYPE, "config.json has no model_type, and transformers does not know what it is of"
    if draft.layout != "eagle1":
        yield from _class_obstacles(draft)
    if draft.unfilled:
        left = ", ".join(draft.unfilled[:3]) + (f" and {len(draft.unfilled) - 3} more" if draft.unfilled[3:] else "")
        head = "lm_head.weight" in draft.unfilled and not draft.spec.architecture.reduced_vocabulary
        instead = "; with draft_vocab_size null the head is the target's" if head else ""
        yield r.UNFILLED, f"no stored tensor fills {left}: it serves, without a word, whatever memory held{instead}"
    yield from _context(draft)


def _class_obstacles(draft: Draft) -> Iterator[tuple[Rule, str]]:
    if draft.layers != 1 and (draft.layout == "latent" or not draft.since("0.5.12")):
        yield r.ONE_LAYER, f"it has {draft.layers} layers, and the class {draft.name} of this release takes one"
    if draft.layout == "latent" and draft.raw.get("q_lora_rank") is None:
        yield r.Q_LORA, "q_lora_rank is not set"
    if draft.layout == "llama" and "draft_vocab_size" not in draft.raw:
        yield r.DRAFT_VOCAB_KEY, "config.json has no draft_vocab_size"
    if draft.layout == "llama" and "target_hidden_size" in draft.raw and draft.raw["target_hidden_size"] is None:
        yield r.TARGET_WIDTH_NULL, "target_hidden_size is null, and null times a number is an error"
    yield from _shapes(draft)


def _shapes(draft: Draft) -> Iterator[tuple[Rule, str]]:
    clues, built = draft.spec.clues, draft.state_width * draft.slots
    reads, rows = clues.dim("fc.weight", 1), clues.dim("lm_head.weight", 0)
    if reads is not None and reads != built and not (draft.skips_fc and not draft.uses_aux):
        yield r.FC_WIDTH, f"fc.weight reads {reads}, and fc is built for {draft.slots} x {draft.state_width} = {built}"
    wide = draft.spec.target.hidden_size
    if wide is not None and wide != draft.state_width:
        yield r.FC_WIDTH, f"the target's states are {wide} wide, and fc is built for states of {draft.state_width}"
    told = draft.raw.get("draft_vocab_size")
    if rows is not None and told is not None and rows != told and not draft.tied:
        yield r.HEAD_ROWS, f"lm_head.weight has {rows} rows, and the head is built for draft_vocab_size {told}"


def _context(draft: Draft) -> Iterator[tuple[Rule, str]]:
    target = draft.spec.target
    own = _reach(draft.raw.get("max_position_embeddings"), draft.rope)
    targets = _reach(target.max_position_embeddings, target.rope)
    if own and targets and own < targets:
        words = f"its context is {own} tokens, the target's {targets}: the server stops at start"
        yield r.CONTEXT, f"{words}, unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 is set"


def _reach(positions: int | None, rope: Rope | None) -> int | None:
    """The context length that SGLang derives: the positions, times a scaling's factor where it names no original
    (utils/hf_transformers/common.py, get_context_length)."""
    scaling = dict(rope.scaling) if rope else {}
    factor = scaling.get("factor")
    stretched = rope is not None and rope.type != "llama3" and "original_max_position_embeddings" not in scaling
    return int(positions * factor) if positions and stretched and isinstance(factor, float) else positions
