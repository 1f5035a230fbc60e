"""The one EAGLE network: weights under their canonical names, a shape and a `Wiring` make it; no dialect does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from drafter_audit.drafter.architecture import Architecture
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.errors import CannotRunError
from drafter_audit.model.layers import (
    Activation,
    Attend,
    Attention,
    GroupedAttention,
    LatentAttention,
    Layer,
    Linear,
    LowRankQueries,
    Mlp,
    Norm,
    Part,
    joined_pair,
)
from drafter_audit.model.rope import Rotary, rotary, score_factor


@dataclass(frozen=True)
class Network:
    """Embedding, fusion, layers, norm and head.

    `fc` fuses the target's states, behind `input_norm` over all at once or `fc_norms` over each; `pair` joins embedding
    and state at every step instead (EAGLE-1's fc, or TensorRT-LLM's eh_proj behind `pair_norm`). `final_norm` stands
    before the head if `norms_head`, and before the next step if `norms_feedback`.
    """

    embedding: Tensor
    embedding_scale: float
    fc: Linear | None
    input_norm: Norm | None
    fc_norms: tuple[Norm, ...]
    pair: Linear | None
    pair_norm: Norm | None
    hidden_first: bool
    layers: tuple[Layer, ...]
    rope: Rotary
    final_norm: Norm | None
    norms_head: bool
    norms_feedback: bool
    head: Linear

    def fuse(self, states: Tensor) -> Tensor:
        """The target's states [slots, T, target_hidden], in slot order -> the first hidden input [T, hidden]."""
        whole = states.transpose(0, 1).flatten(1)
        if self.input_norm is not None:
            whole = self.input_norm(whole)
        if self.fc_norms:
            chunks = whole.chunk(len(self.fc_norms), dim=-1)
            whole = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norms, chunks, strict=True)], dim=-1)
        return whole if self.fc is None else self.fc(whole)

    def step(
        self, ids: Tensor, hidden: Tensor, positions: Tensor, attend: Callable[[int], Attend]
    ) -> tuple[Tensor, Tensor]:
        """One step at T positions: tokens [T] beside hidden inputs [T, hidden].

        Returns what the head reads and the next step's hidden input, both [T, hidden]. `attend` gives each layer its
        own.
        """
        embedded = functional.embedding(ids, self.embedding)
        embedded = embedded if self.embedding_scale == 1.0 else embedded * self.embedding_scale
        turn = self.rope.at(positions, hidden.dtype)
        if self.pair is not None:
            beside = embedded if self.pair_norm is None else self.pair_norm(embedded)
            hidden = self.pair(joined_pair(beside, hidden, hidden_first=self.hidden_first))
        for index, layer in enumerate(self.layers):
            hidden = layer(embedded, hidden, turn, attend(index))
        normed = hidden if self.final_norm is None else self.final_norm(hidden)
        return normed if self.norms_head else hidden, normed if self.norms_feedback else hidden


def build_network(weights: Mapping[str, Tensor], arch: Architecture, kind: str, wiring: Wiring) -> Network:
    """The network of tensors under their canonical names, as `tensors_needed` lists them; embedding and head are under
    `embed_tokens.weight` and `lm_head.weight`, wherever they came from. Raises CannotRunError."""
    part = Part(weights, arch.rms_norm_eps)
    latent = "kv_b_proj" in part.below("layers.0.self_attn")
    device = weights["embed_tokens.weight"].device
    paired = "fc" if kind == "eagle1" else "eh_proj" if "eh_proj" in part else None
    count = arch.num_layers or 1
    return Network(
        embedding=weights["embed_tokens.weight"],
        embedding_scale=1.0 if wiring.embedding_scale is None else wiring.embedding_scale,
        fc=part.linear("fc") if "fc" in part and paired != "fc" else None,
        input_norm=part.norm("input_norm") if wiring.pre_fc_norm.startswith("whole") else None,
        fc_norms=_fc_norms(part) if wiring.pre_fc_norm.endswith("per_state") else (),
        pair=part.linear(paired) if paired else None,
        pair_norm=part.norm("enorm") if paired == "eh_proj" else None,
        hidden_first=wiring.concat == "hidden_first",
        layers=tuple(_layer(part, arch, wiring, index) for index in range(count)),
        rope=rotary(arch, wiring, latent=latent, device=device),
        final_norm=part.norm_if_any("norm"),
        norms_head=wiring.final_norm,
        norms_feedback=wiring.feedback == "post_norm",
        head=part.linear("lm_head"),
    )


def _fc_norms(part: Part) -> tuple[Norm, ...]:
    slots = range(sum(name.startswith("fc_norm.") for name in part.weights))
    return tuple(part.norm(f"fc_norm.{slot}") for slot in slots)


def _layer(part: Part, arch: Architecture, wiring: Wiring, index: int) -> Layer:
    below = part.below(f"layers.{index}")
    reads_pair = _reads_pair(below)
    norms = _deeper_norms if index else _first_norms
    return Layer(
        attention=_attention(below.below("self_attn"), arch, wiring),
        mlp=_mlp(below.below("mlp"), arch.hidden_act),
        after=below.norm("post_attention_layernorm"),
        state_norms=norms(below, wiring, reads_pair=reads_pair),
        embedding_norm=below.norm("input_layernorm") if reads_pair else None,
        hidden_first=wiring.concat == "hidden_first",
        normed_residual=index == 0 and wiring.residual == "post_norm",
    )


def _reads_pair(layer: Part) -> bool:
    """Whether the attention reads [embedding ; state], twice as wide as the state: that of an EAGLE-3 drafter's first
    layer does, and all where TensorRT-LLM's next_layer_regular is off."""
    attention = layer.below("self_attn")
    first = attention.linear("q_a_proj" if "q_a_proj" in attention else "q_proj")
    return first.weight.shape[1] == 2 * layer.norm("post_attention_layernorm").weight.shape[0]


def _first_norms(layer: Part, wiring: Wiring, *, reads_pair: bool) -> tuple[Norm, ...]:
    """Of the state before the first attention. Where that reads no embedding and the state has no norm of its own,
    input_layernorm is the plain layer's, if it has one (EAGLE-1 on DeepSeek's layer: TensorRT-LLM
    modeling_speculative.py, MistralLarge3DraftModel; ModelOpt without aux states: modeling_eagle.py)."""
    if wiring.hidden_norm == "none":
        return (layer.norm("input_layernorm"),) if "input_layernorm" in layer and not reads_pair else ()
    names = ("hidden_norm",) if wiring.hidden_norm == "hidden_norm" else ("input_layernorm", "hidden_norm")
    return tuple(layer.norm(name) for name in names)


def _deeper_norms(layer: Part, wiring: Wiring, *, reads_pair: bool) -> tuple[Norm, ...]:
    """A deeper layer's norm is input_layernorm (vLLM, speculators, ModelOpt) or hidden_norm (SGLang, TensorRT-LLM);
    where it reads the embedding too, that one's is input_layernorm (TensorRT-LLM modeling_speculative.py)."""
    return (layer.norm("hidden_norm" if reads_pair or "input_layernorm" not in layer else "input_layernorm"),)


def _attention(part: Part, arch: Architecture, wiring: Wiring) -> Attention:
    if "kv_b_proj" not in part:
        q, k, v, o = (part.linear(f"{name}_proj") for name in "qkvo")
        return GroupedAttention(q, k, v, o, arch.head_dim or 0, part.norm_if_any("q_norm"), part.norm_if_any("k_norm"))
    nope, rope, value = arch.qk_nope_head_dim or 0, arch.qk_rope_head_dim or 0, arch.v_head_dim or 0
    queries: Callable[[Tensor], Tensor] = (
        LowRankQueries(part.linear("q_a_proj"), part.norm("q_a_layernorm"), part.linear("q_b_proj"))
        if "q_b_proj" in part
        else part.linear("q_proj")
    )
    return LatentAttention(
        queries=queries,
        kv_a=part.linear("kv_a_proj_with_mqa"),
        kv_a_norm=part.norm("kv_a_layernorm"),
        kv_b=part.linear("kv_b_proj"),
        o=part.linear("o_proj"),
        nope=nope,
        rope=rope,
        value=value,
        scale=(nope + rope) ** -0.5 * score_factor(wiring),
    )


def _mlp(part: Part, activation: str) -> Mlp:
    return Mlp(part.linear("gate_proj"), part.linear("up_proj"), part.linear("down_proj"), _activation(activation))


def _activation(name: str) -> Activation:
    if name == "silu":
        return functional.silu
    from transformers.activations import ACT2FN

    if name not in ACT2FN:
        raise CannotRunError(f"hidden_act {name!r}", "config.json", "set it to a name that transformers knows")
    found: Activation = ACT2FN[name]
    return found
