"""Which states SGLang captures of a target: one family for each of its model files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from drafter_audit.drafter.boundaries import Ids, default_boundaries
from drafter_audit.drafter.target import Target
from drafter_audit.engines.base import Release, Rule
from drafter_audit.engines.sglang import rules as r

Refusals = tuple[tuple[Rule, str], ...]


@dataclass(frozen=True)
class Family:
    """The target classes that one model file serves.

    `classes` tells since which release each can be captured. `ids` are the rules for declared ids, the first that
    holds counts. `embedding` and `last` are the releases since which boundary 0 and boundary L can be captured, None:
    never. `default_rule` says which default is taken. `faults` are rules
    by which such a target hands out other tensors than the ids name; which of them, `_LOST` tells.
    """

    file: str
    classes: dict[str, str]
    ids: tuple[Rule, ...] = (r.PLUS_ONE,)
    embedding: str | None = r.OLDEST
    last: str | None = None
    default_rule: Rule = r.DEFAULT_IDS
    faults: tuple[Rule, ...] = ()


def _since(*names: str, since: str = r.OLDEST) -> dict[str, str]:
    return dict.fromkeys(names, since)


# Which boundaries a fault spoils, of a target of so many layers.
_LOST: Mapping[Rule, Callable[[int, int | None], bool]] = {
    r.EMBEDDING_OVERWRITTEN: lambda boundary, layers: boundary == 0,
    r.EMBEDDING_OVERWRITTEN_MOE: lambda boundary, layers: boundary == 0,
    r.GEMMA3_STATE: lambda boundary, layers: True,
    r.GEMMA4_STATE: lambda boundary, layers: boundary != layers,
}
_DEEPSEEK = (r.DEEPSEEK_PLUS_ONE, r.FIRST_IS_ONE)

# Found by following set_eagle3_layers_to_capture through the base classes of every EntryClass of each release; where
# boundary 0 and L can be captured, by the lines that append to aux_hidden_states.
FAMILIES = (
    Family(
        "llama.py",
        _since("LlamaForCausalLM", "MistralForCausalLM", "Phi3ForCausalLM", "InternLM3ForCausalLM")
        | _since("TeleFLMForCausalLM", since="0.5.5.post3")
        | _since("Ministral3ForCausalLM", since="0.5.6.post1")
        | _since("IQuestCoderForCausalLM", since="0.5.8"),
        embedding="0.5.22",
    ),
    Family("llama4.py", _since("Llama4ForCausalLM", "Llama4ForConditionalGeneration"), embedding="0.5.21"),
    Family(
        "qwen2.py",
        _since("Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM"),
        faults=(r.EMBEDDING_OVERWRITTEN,),
    ),
    Family(
        "qwen2_moe.py",
        _since("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM") | _since("MellumForCausalLM", since="0.5.16"),
        faults=(r.EMBEDDING_OVERWRITTEN_MOE,),
    ),
    Family("qwen3_next.py", _since("Qwen3NextForCausalLM", since="0.5.9")),
    Family(
        "qwen3_vl.py",
        _since(
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "InternS1ProForConditionalGeneration",
            since="0.5.11",
        )
        | _since("Cosmos3ForConditionalGeneration", since="0.5.20"),
        faults=(r.EMBEDDING_OVERWRITTEN,),
    ),
    Family(
        "qwen3_5.py",
        _since("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration", since="0.5.11")
        | _since("InternS2PreviewForConditionalGeneration", since="0.5.12")
        | _since("InternS2MobiusForConditionalGeneration", since="0.5.18")
        | _since("Qwen4ExpForConditionalGeneration", since="0.5.20"),
    ),
    Family("qwen3_5_text.py", _since("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", since="0.5.22")),
    Family(
        "deepseek_v2.py",
        _since("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", since="0.5.4.post3")
        | _since("MistralLarge3ForCausalLM", since="0.5.6.post1")
        | _since("GlmMoeDsaForCausalLM", since="0.5.9")
        | _since("KimiK25ForConditionalGeneration", since="0.5.10"),
        ids=_DEEPSEEK,
        embedding="0.5.14",
    ),
    Family("glm4_moe_lite.py", _since("Glm4MoeLiteForCausalLM", since="0.5.8"), ids=_DEEPSEEK, embedding="0.5.21"),
    Family("glm4_moe.py", _since("Glm4MoeForCausalLM", since="0.5.5"), embedding="0.5.21"),
    Family("glm5_next.py", _since("Glm5NextForConditionalGeneration", since="0.5.20")),
    Family(
        "gpt_oss.py",
        _since("GptOssForCausalLM"),
        ids=(r.LAST_IS_LAYERS, r.PLUS_ONE),
        embedding="0.5.17",
        last="0.5.17",
        faults=(r.EMBEDDING_OVERWRITTEN,),
    ),
    Family(
        "gemma3_causal.py",
        _since("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", since="0.5.12"),
        last="0.5.12",
        faults=(r.GEMMA3_STATE,),
    ),
    Family(
        "gemma4_causal.py",
        _since("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", since="0.5.12")
        | _since("Gemma4UnifiedForConditionalGeneration", since="0.5.13"),
        last="0.5.12",
        faults=(r.GEMMA4_STATE,),
    ),
    Family("minimax_m2.py", _since("MiniMaxM2ForCausalLM", since="0.5.5.post1"), embedding="0.5.11"),
    Family("minimax_m3.py", _since("MiniMaxM3SparseForCausalLM", since="0.5.16"), last="0.5.23"),
    Family(
        "minimax_m3_vl.py",
        _since("MiniMaxM3SparseForConditionalGeneration", since="0.5.18"),
        last="0.5.23",
        default_rule=r.M3_DEFAULT,
    ),
    Family("apertus.py", _since("ApertusForCausalLM"), embedding="0.5.22"),
    Family(
        "exaone_moe.py",
        _since("ExaoneMoEForCausalLM", since="0.5.9") | _since("ExaoneMoeForCausalLM", since="0.5.22"),
        embedding="0.5.22",
    ),
    Family("longcat_flash.py", _since("LongcatFlashForCausalLM", since="0.5.6"), embedding="0.5.21"),
    Family(
        "bailing_moe.py",
        _since("BailingMoEForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", since="0.5.9")
        | _since("SarvamMoEForCausalLM", since="0.5.10"),
        faults=(r.EMBEDDING_OVERWRITTEN,),
    ),
)  # fmt: skip
_BY_CLASS = {name: (family, since) for family in FAMILIES for name, since in family.classes.items()}

# transformers' model_type -> class, for a target whose config names no class.
_BY_TYPE = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "phi3": "Phi3ForCausalLM",
    "llama4": "Llama4ForConditionalGeneration", "llama4_text": "Llama4ForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration", "qwen3": "Qwen3ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_vl": "Qwen3VLForConditionalGeneration", "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration", "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM", "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration", "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM", "glm4_moe_lite": "Glm4MoeLiteForCausalLM", "gpt_oss": "GptOssForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration", "gemma3_text": "Gemma3ForCausalLM",
    "gemma4": "Gemma4ForConditionalGeneration", "minimax_m2": "MiniMaxM2ForCausalLM",
    "apertus": "ApertusForCausalLM", "longcat_flash": "LongcatFlashForCausalLM",
}  # fmt: skip


@dataclass(frozen=True)
class Captured:
    """The boundaries that reach the drafter, None where they cannot be told, and the rule that set them.

    `refusals` are states that cannot be captured, `notes` what else is to be known, `faults` what the
    release does otherwise than its rule says.
    """

    boundaries: Ids | None
    rule: Rule
    refusals: Refusals = ()
    notes: Refusals = ()
    faults: Refusals = ()


def named_class(target: Target) -> str | None:
    """The target's class: as its config names it, else by model_type; None where neither is known."""
    if target.architectures:
        return next((name for name in target.architectures if name in _BY_CLASS), target.architectures[0])
    return next((_BY_TYPE[name] for name in target.model_types if name in _BY_TYPE), None) or (
        target.model_types[0] if target.model_types else None
    )


def capture(target: Target, release: Release, ids: Ids | None) -> Captured:
    """What is captured of `target` for the ids that SGLang reads, None where it reads none."""
    name = named_class(target)
    if name is None:
        return _of_any_class(release, ids, target.num_layers)
    family, since = _BY_CLASS.get(name, (None, r.OLDEST))
    if family is None or release.number < Version(since):
        later = "" if family is None else f" before {since}"
        words = f"the target's class {name} cannot hand its states to a drafter{later}: the server stops at start"
        return Captured(None, r.NO_CAPTURE, ((r.NO_CAPTURE, words),))
    return captured(family, release, ids, target.num_layers)


def captured(family: Family, release: Release, ids: Ids | None, layers: int | None) -> Captured:
    """The same for a known family; `layers` is the target's, None where unknown."""
    default, rule = _default(family, layers), family.default_rule
    if ids is None:
        faults = _other_states(family, release, default, layers)
        return Captured(default, rule, _missing(family, release, default, layers), faults=faults)
    rule = next(rule for rule in family.ids if rule.holds(release))
    meant = _meant(rule, ids, layers)
    refusals = _missing(family, release, meant, layers)
    faults = (*_lost_in_graphs(release, meant, default), *_other_states(family, release, meant, layers))
    return Captured(_coming(meant, layers), rule, refusals, faults=faults)


def _lost_in_graphs(release: Release, meant: Ids | None, default: Ids | None) -> Refusals:
    if meant is None or default is None or default == meant or not r.GRAPH_DEFAULT.holds(release):
        return ()
    words = (
        f"in CUDA graphs, so in decoding, boundaries {list(default)} are captured; {list(meant)} are in prefill, and "
        "with --disable-cuda-graph"
    )
    return ((r.GRAPH_DEFAULT, words),)


def _other_states(family: Family, release: Release, boundaries: Ids | None, layers: int | None) -> Refusals:
    """Boundaries that are captured, and yet reach fc as something else."""
    lost = {rule: [b for b in boundaries or () if _LOST[rule](b, layers)] for rule in family.faults}
    return tuple(
        (rule, f"what is captured for {'boundary' if len(lost[rule]) == 1 else 'boundaries'} "
               f"{', '.join(map(str, lost[rule]))} is not what fc reads")
        for rule in family.faults if lost[rule] and rule.holds(release)
    )  # fmt: skip


def ids_for(target: Target, release: Release, boundaries: Ids) -> Ids | None:
    """Ids by which SGLang captures `boundaries`, None where it cannot. Outputs of layers are tried first, as trainers
    write them; then boundaries; then boundaries with the first one moved to the end, for a rule that looks at it."""
    ascending = tuple(sorted(boundaries))
    for ids in (tuple(b - 1 for b in ascending), ascending, (*ascending[1:], *ascending[:1])):
        found = capture(target, release, ids)
        if found.boundaries == ascending and not found.refusals:
            return ids
    return None


def _of_any_class(release: Release, ids: Ids | None, layers: int | None) -> Captured:
    """What every class would capture, where the target is unknown and all agree; as of one that can."""
    found = {captured(family, release, ids, layers).boundaries for family in FAMILIES}
    if len(found) == 1 and (same := found.pop()) is not None:
        words = f"the target's class is unknown; all of them would capture boundaries {list(same)}"
        return Captured(same, r.UNKNOWN_TARGET, (), ((r.UNKNOWN_TARGET, words),))
    words = "the target's class is unknown, and they differ in which states they would capture"
    return Captured(None, r.UNKNOWN_TARGET, (), ((r.UNKNOWN_TARGET, words),))


def _default(family: Family, layers: int | None) -> Ids | None:
    if layers is None:
        return None
    shift = 1 if family.default_rule is r.M3_DEFAULT else 0
    return tuple(sorted(b + shift for b in default_boundaries(layers)))


def _meant(rule: Rule, ids: Sequence[int], layers: int | None) -> Ids | None:
    """The boundaries that ids name by a rule, ascending as they are captured; None where it needs the layer count."""
    if rule is r.LAST_IS_LAYERS and layers is None:
        return None
    verbatim = (rule is r.FIRST_IS_ONE and ids[0] != 1) or (rule is r.LAST_IS_LAYERS and max(ids) == layers)
    return tuple(sorted(i + (0 if verbatim else 1) for i in ids))


def _coming(boundaries: Ids | None, layers: int | None) -> Ids | None:
    """Those that exist: what lies outside the target is never reached."""
    return None if boundaries is None else tuple(b for b in boundaries if _why(b, layers) is None)


def _missing(family: Family, release: Release, boundaries: Ids | None, layers: int | None) -> Refusals:
    """States among `boundaries` that the release does not capture on that family."""
    if boundaries is None:
        return ()
    found = [(r.NOT_CAPTURED, f"boundary {b} {why}") for b in sorted(set(boundaries)) if (why := _why(b, layers))]
    if len(set(boundaries)) < len(boundaries):
        found.append((r.NOT_CAPTURED, f"boundaries {list(boundaries)} repeat, and each is captured once"))
    if layers in boundaries and not _begun(family.last, release):
        found.append((r.NOT_CAPTURED, f"boundary {layers}, the last layer's output, is not captured by {family.file}"))
    if 0 in boundaries and not _begun(family.embedding, release):
        found.append((r.EMBEDDING_STATE, f"boundary 0, the embedding output, stops {family.file} at the first batch"))
    return tuple(found)


def _why(boundary: int, layers: int | None) -> str | None:
    if boundary < 0:
        return "does not exist and is never captured; the embedding output is boundary 0"
    return f"lies beyond the target's {layers} layers" if layers is not None and boundary > layers else None


def _begun(since: str | None, release: Release) -> bool:
    return since is not None and release.number >= Version(since)
