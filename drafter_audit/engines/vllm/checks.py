"""Why vLLM would not load a drafter, or would stop at the first request; and what else is worth knowing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drafter_audit.engines.base import Rule
from drafter_audit.engines.vllm.case import Case
from drafter_audit.engines.vllm.parameters import attention_biases
from drafter_audit.engines.vllm.rules import BY_NAME
from drafter_audit.engines.vllm.seen import too_new
from drafter_audit.engines.vllm.targets import gated

Said = Iterator[tuple[Rule, str]]

_COMMON = r"embed_tokens\.weight|fc\.weight|norm\.weight|lm_head\.weight|d2t|.*t2d.*|.*rotary_emb\.\w+"
_LAYER = r"layers\.\d+\.(?:(?:input_layernorm|post_attention_layernorm|hidden_norm)\.weight|"
_MLP = r"mlp\.(?:gate|up|down)_proj\.weight|"
_PLAIN = r"self_attn\.(?:q|k|v|o)_proj\.weight"
_LATENT = (
    r"self_attn\.(?:q_proj|q_a_proj|q_b_proj|kv_b_proj|o_proj|kv_a_proj_with_mqa|q_a_layernorm|kv_a_layernorm)\.weight"
)
_IN = ("q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa")
_SHOWN = 3
_RAISES_ROPE = frozenset({"default", "linear", "llama3", "ntk", "proportional"})


def refusals(case: Case) -> Said:
    """Each rule by which it does not run, with what it meets in this drafter."""
    yield from _target(case)
    yield from _config(case)
    yield from _kind(case)
    if case.fuses:
        yield from _ids(case)
        yield from _width(case)
    if case.spec.clues.has_weights:
        yield from _tensors(case)
        yield from _vocabulary(case)


def _target(case: Case) -> Said:
    gate = gated(case.spec.target, case.release)
    if gate:
        yield BY_NAME["target_gated"], f"a target of model_type {gate} is turned away"
    elif case.supported is False:
        yield BY_NAME["target_unsupported"], f"{case.target} has no support for EAGLE-3 in {case.release.version}"


def _config(case: Case) -> Said:
    seen = case.seen
    if seen.bad_type:
        yield BY_NAME["speculators_type"], f"transformer_layer_config.model_type is {seen.bad_type}"
    elif seen.model_class is None:
        new = seen.translated and too_new(seen.translated, case.release)
        words = f"speculators_model_type {seen.translated}" if new else " ".join(seen.names) or "no class name"
        yield BY_NAME["architecture_unknown"], f"{words} is not known to {case.release.version}"
    if seen.translated and _unmarked(case):
        yield BY_NAME["speculators_unmarked"], "it has neither model_type nor speculators_config"
    if "target_hidden_size" in seen.keys and seen.keys["target_hidden_size"] is None and case.fuses:
        yield BY_NAME["target_hidden_size_null"], "target_hidden_size is null"
    rows, told = case.spec.sizes.measured.get("draft_vocab_size"), seen.keys.get("draft_vocab_size")
    whole = told or seen.keys.get("vocab_size")
    if rows and whole and rows != whole and case.spec.clues.dim("lm_head.weight", 0):
        yield BY_NAME["head_rows"], f"lm_head stores {rows} rows, the config calls for {whole}"


def _unmarked(case: Case) -> bool:
    """A bundled record may leave the section out, a real config may not."""
    return case.spec.source != "bundled" and not case.spec.config.raw.get("speculators_config")


def _kind(case: Case) -> Said:
    if case.spec.kind.name == "peagle":
        if not case.since("0.16.0"):
            yield BY_NAME["parallel_since"], "it is a P-EAGLE drafter"
        elif case.v2:
            yield BY_NAME["parallel_not_v2"], "it is a P-EAGLE drafter"
        names = {"pard_token", "ptd_token_id"} | ({"mask_token_id"} if case.since("0.28.0") else set())
        if case.since("0.16.0") and not names & {*case.seen.keys}:
            yield BY_NAME["parallel_token"], f"config.json has none of {', '.join(sorted(names))}"
    if not case.reads_aux and case.v2 and not case.since("0.33.0"):
        yield BY_NAME["noaux_fails_v2"], "three states arrive where one is expected"


def _ids(case: Case) -> Said:
    ids, layers, reach = case.ids[0] or (), case.layers, case.reach
    outside = [i for i in ids if i < 0 or (layers is not None and i > layers)]
    if outside:
        embedding = "; the embedding output is boundary 0" if outside[0] == -1 else ""
        yield BY_NAME["ids_outside"], f"id {outside[0]} is no boundary of the target{embedding}"
    if layers in ids and not reach.last:
        yield BY_NAME["last_unreached"], f"boundary {layers}, the last layer's output, is not captured"
    if 0 in ids and reach.embedding == "fails":
        yield BY_NAME["embedding_fails"], f"boundary 0, the embedding output, stops {case.target or 'the target'}"
    if 0 in ids and reach.embedding == "never":
        yield BY_NAME["embedding_unreached"], "boundary 0, the embedding output, is not captured"
    if len(set(ids)) < len(ids):
        yield BY_NAME["ids_repeated"], f"ids {list(ids)} name {len(set(ids))} boundaries"


def _width(case: Case) -> Said:
    """fc's width by config, against what is stored and against what is captured."""
    slots, told, states = case.slots, case.told_width, case.ids[0]
    if told is None:
        return
    stored, wide = case.spec.clues.dim("fc.weight", 1), case.state_width
    if stored is not None and stored != slots * told:
        rule = BY_NAME["slots_counted" if case.since("0.22.0") else "slots_three"]
        yield rule, f"fc stores {stored} columns, {slots} states of {told} are expected"
    elif states is not None and wide is not None and len(states) * wide != slots * told:
        yield BY_NAME["states_misfit"], f"{len(states)} states of {wide} are captured, fc takes {slots} of {told}"


def some(names: list[str]) -> str:
    """The first of them, and how many more."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def placeless(case: Case) -> list[str]:
    """Stored tensors that the draft class has no parameter for and does not skip by name."""
    known = re.compile(_known(case))
    names = [name for name in _stored(case) if name not in _prefixed(case)]
    return [name for name in names if not known.fullmatch(name.replace("midlayer.", "layers.0."))]


def _stored(case: Case) -> list[str]:
    companions = case.spec.clues.packing.companions
    return [tensor.name for tensor in case.spec.table or () if tensor.name not in companions]


def _prefixed(case: Case) -> list[str]:
    return [name for name in _stored(case) if name.startswith("model.") and "lm_head" not in name]


def _tensors(case: Case) -> Said:
    prefixed = _prefixed(case)
    if prefixed:
        yield BY_NAME["prefix_doubled"], f"{len(prefixed)} names begin with model., such as {prefixed[0]}"
    if case.seen.model_class is None or case.spec.clues.packing.weights:
        return
    skips = BY_NAME["bias_skipped"].holds(case.release)
    unknown = sorted(name for name in placeless(case) if not (skips and name.endswith(".bias")))
    lenient = case.seen.model_class == "latent" and not case.since("0.25.0")
    if unknown and not lenient:
        has, it = ("has", "it") if len(unknown) == 1 else ("have", "them")
        yield BY_NAME["tensor_unknown"], f"{some(unknown)} {has} no place in the draft model; drop {it} from the file"
    yield from _deeper(case)


def _deeper(case: Case) -> Said:
    """Layers after the first, of which each reads the hidden state alone."""
    clues, hidden = case.spec.clues, case.spec.architecture.hidden_size
    deeper = sorted(layer for layer in clues.layers if layer > 0)
    if deeper and not case.since("0.11.1"):
        yield BY_NAME["one_layer"], f"{deeper[-1] + 1} layers are stored"
        return
    found = ((layer, name, clues.dim(f"layers.{layer}.self_attn.{name}.weight", 1)) for layer in deeper for name in _IN)
    for layer, name, wide in found:
        if wide and wide != hidden:
            yield BY_NAME["deeper_width"], f"{name} of layer {layer} reads {wide} columns, a state has {hidden}"
            return


def _known(case: Case) -> str:
    """The stored names that the draft class has a parameter for, or skips."""
    keys, latent = case.seen.keys, case.seen.model_class == "latent"
    parts = [_COMMON, _LAYER + _MLP + (_LATENT if latent else _PLAIN) + ")"]
    parts += [re.escape(name) for name in attention_biases(case)] if keys.get("attention_bias") else []
    parts += [r"layers\.\d+\.mlp\.(?:gate|up|down)_proj\.bias"] if keys.get("mlp_bias") and not latent else []
    parts += [r"layers\.\d+\.self_attn\.[qk]_norm\.weight"] if case.seen.model_class == "qwen3" else []
    parts += [r"input_norm\.weight"] if not latent and case.since("0.18.0") else []
    parts += [r"fc_norm\.\d+\.weight"] if keys.get("fc_norm") and case.since("0.22.0") else []
    parts += [r"mask_hidden"] if not latent and case.since("0.16.0") else []
    return "|".join(parts)


def _vocabulary(case: Case) -> Said:
    clues, arch = case.spec.clues, case.spec.architecture
    target_vocab = case.spec.target.vocab_size or arch.vocab_size
    whole = arch.draft_vocab_size is not None and arch.draft_vocab_size == target_vocab
    if whole and "d2t" in clues.tensors and case.since("0.30.0"):
        yield BY_NAME["map_unneeded"], "d2t is stored, and the draft vocabulary is the target's"
    rows, told = clues.dim("embed_tokens.weight", 0), case.seen.keys.get("vocab_size")
    if rows and told and rows != told:
        yield BY_NAME["embedding_rows"], f"embed_tokens stores {rows} rows, vocab_size is {told}"
    wide = case.spec.target.hidden_size
    if "embed_tokens.weight" not in clues.tensors and wide and wide != arch.hidden_size:
        yield (
            BY_NAME["embedding_width"],
            f"embed_tokens is missing, the target's is {wide} wide, not {arch.hidden_size}",
        )


def notes(case: Case) -> Said:
    """Rules to know of that change no knob."""
    for name in ("runner_v1_default", "runner_by_target", "runner_v2_default"):
        if BY_NAME[name].holds(case.release):
            yield BY_NAME[name], BY_NAME[name].text
    if case.supported is None:
        yield BY_NAME["target_unlisted"], f"the target's class is {case.target or 'not known'}"
    yield from _method(case)
    yield from _positions(case)


def _method(case: Case) -> Said:
    """What the path means, where no method is given; a bundled record has none."""
    name, rule = case.spec.ref.lower(), BY_NAME["method_by_name"]
    if "eagle-" in name:
        yield rule, 'name the method ("eagle3"): the path holds "eagle-" and is taken for EAGLE-1'
    elif "eagle3" not in name and case.spec.source != "bundled":
        yield rule, 'name the method ("eagle3"): the path holds no "eagle3" and is taken for a plain draft model'


def _positions(case: Case) -> Said:
    ours, theirs = case.spec.architecture.max_position_embeddings, case.spec.target.max_position_embeddings
    if not ours or not theirs or ours >= theirs:
        return
    kept = case.since("0.33.0") and case.spec.architecture.rope.type not in _RAISES_ROPE
    name = "positions_short" if not case.since("0.27.0") else "positions_limit" if kept else "positions_raised"
    yield BY_NAME[name], f"max_position_embeddings is {ours}, the target's {theirs}"
