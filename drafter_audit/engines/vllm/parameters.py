"""The parameters that vLLM's draft classes make from a config: what no tensor fills keeps its first value, unsaid."""

from __future__ import annotations

from collections.abc import Iterator

from drafter_audit.engines.vllm import reads
from drafter_audit.engines.vllm.case import Case

_PLAIN = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def matrices(case: Case) -> Iterator[str]:
    """Weights and biases, by canonical name. They are made of `torch.empty`: until filled, of what lies in memory."""
    if case.reads_aux:
        yield "fc.weight"
    for layer in _layers(case):
        yield from (f"{layer}.self_attn.{name}.weight" for name in _attention(case))
        yield from (f"{layer}.mlp.{name}.weight" for name in _MLP)
        if case.seen.keys.get("mlp_bias") and case.seen.model_class != "latent":
            yield from (f"{layer}.mlp.{name}.bias" for name in _MLP)
    if case.seen.keys.get("attention_bias"):
        yield from attention_biases(case)
    if not case.since("0.11.1"):
        yield "lm_head.weight"


def attention_biases(case: Case) -> Iterator[str]:
    """The biases that attention_bias true brings; o_proj's too, but in the Qwen3 class."""
    if case.seen.model_class == "latent" or not case.since("0.16.0"):
        return
    names = _PLAIN[:3] if case.seen.model_class == "qwen3" else _PLAIN
    yield from (f"{layer}.self_attn.{name}.bias" for layer in _layers(case) for name in names)


def norms(case: Case) -> Iterator[str]:
    """Norms that are applied. They are made of ones."""
    yield "norm.weight"
    if case.fuses:
        yield from _before_fc(case)
        yield "layers.0.hidden_norm.weight"
    for layer in _layers(case):
        yield from (f"{layer}.{name}.weight" for name in ("input_layernorm", "post_attention_layernorm"))
        if case.seen.model_class == "qwen3":
            yield from (f"{layer}.self_attn.{name}_norm.weight" for name in "qk")
        if case.seen.model_class == "latent":
            queries = ("q_a_layernorm",) if case.spec.architecture.q_lora_rank else ()
            yield from (f"{layer}.self_attn.{name}.weight" for name in (*queries, "kv_a_layernorm"))


def _before_fc(case: Case) -> Iterator[str]:
    if reads.whole_norm(case)[0]:
        yield "input_norm.weight"
    if reads.norm_of_each(case)[0]:
        yield from (f"fc_norm.{slot}.weight" for slot in range(case.slots))


def _layers(case: Case) -> Iterator[str]:
    number = case.seen.keys.get("num_hidden_layers") if case.since("0.11.1") else 1
    count = number if isinstance(number, int) else case.spec.architecture.num_layers or 1
    yield from (f"layers.{layer}" for layer in range(count))


def _attention(case: Case) -> tuple[str, ...]:
    if case.seen.model_class != "latent":
        return _PLAIN
    queries = ("q_a_proj", "q_b_proj") if case.spec.architecture.q_lora_rank else ("q_proj",)
    return (*queries, "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
