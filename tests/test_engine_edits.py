"""What holds of every edit that an engine proposes, over configs drawn at random.

An edit is of how engines read a drafter: the drafter itself stays what it was, and the user's keys stay unless they are
in the way. The properties are the issue's own; nothing here is taken from the engines' answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafter_audit.drafter.open import with_config
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.engines import engine_of, read_releases
from drafter_audit.engines.base import Effect, Release, merged
from drafter_audit.engines.serving import serve
from drafter_audit.errors import ConfigError
from tests.engine_drafters import CONFIG, HIDDEN, VOCAB, drafter, tensors

NAMED = ("sglang@0.5.10", "sglang@0.5.13", "sglang", "vllm", "tensorrt-llm@1.1.0", "tensorrt-llm", "llama.cpp")
RELEASES = read_releases(NAMED)
SECTION, NOTE = "eagle_config", "drafter_audit"
ROPE = ("rope_theta", "rope_scaling", "rope_parameters")
STORED: dict[str, dict[str, tuple[int, ...]]] = {
    "plain": {},
    "input_norm": {"input_norm__weight": (3 * HIDDEN,)},
    "fc_norm": {f"fc_norm__{slot}__weight": (HIDDEN,) for slot in range(3)},
    "embedding": {"embed_tokens__weight": (VOCAB, HIDDEN)},
}
TARGETS = ("llama", "qwen3", "deepseek_v3", "gpt_oss")

_switch = st.booleans()
_ids = st.sampled_from([[1, 15, 28], [2, 16, 29], [3, 16, 29], [-1, 15, 28], [0, 16, 29], [28, 1, 15], [2, 16, 32]])
_scaling = st.sampled_from([None, {"rope_type": "linear", "factor": 2.0}, {"type": "yarn", "factor": 4.0}])
_TOP: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("norm_before_fc", "fc_norm", "use_aux_norm", "norm_output", "norm_before_residual"), _switch),
    **dict.fromkeys(("tie_word_embeddings", "bias", "attention_bias"), _switch),
    "eagle_aux_hidden_state_layer_ids": _ids,
    "draft_vocab_size": st.sampled_from([128, VOCAB, None]),
    "target_hidden_size": st.sampled_from([HIDDEN, None]),
    "num_aux_hidden_states": st.sampled_from([3, 4, None]),
    "rope_theta": st.sampled_from([10000.0, 500000.0]),
    "rope_scaling": _scaling,
    "rope_parameters": st.sampled_from([None, {"rope_type": "default", "rope_theta": 500000.0}]),
    "architectures": st.sampled_from([["LlamaForCausalLMEagle3"], ["Eagle3LlamaForCausalLM"], ["LlamaForCausalLM"]]),
    "team": st.just("ours"),
}
_NESTED: dict[str, st.SearchStrategy[Any]] = {
    "eagle_aux_hidden_state_layer_ids": _ids,
    **dict.fromkeys(("use_aux_hidden_state", "norm_before_fc", "return_hidden_post_norm"), _switch),
    "remark": st.just("ours"),
}
_section = st.fixed_dictionaries({}, optional=_NESTED)
_changes = st.fixed_dictionaries({}, optional={**_TOP, SECTION: st.none() | _section})
_dropped = st.sets(st.sampled_from(["draft_vocab_size", "rope_theta", "tie_word_embeddings"]))


@pytest.fixture(scope="module")
def drafters(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], DrafterSpec]:
    folder: Path = tmp_path_factory.mktemp("edits")
    return {
        (stored, target): drafter(folder / stored / target, None, tensors(**extra), model_type=target)
        for stored, extra in STORED.items()
        for target in TARGETS
    }


def badness(declared: Wiring, effect: Effect) -> tuple[int, int, int]:
    differs = () if effect.wiring is None else declared.differs(effect.wiring)
    return len(effect.refusals), len(differs), len(effect.ignored)


def leaves(edit: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Paths of what an edit sets, but for the note that it adds of its own."""
    return [
        (key, *inner)
        for key, value in edit.items()
        if key != NOTE
        for inner in ([(name,) for name in value] if key == SECTION and isinstance(value, dict) else [()])
    ]


def at(config: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        config = config.get(key) if isinstance(config, dict) else None
    return config


def without(edit: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The edit without one of its leaves, and without a section that is then empty."""
    rest: dict[str, Any] = json.loads(json.dumps(edit))
    del (rest if len(path) == 1 else rest[path[0]])[path[-1]]
    return {key: value for key, value in rest.items() if value != {}}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stored=st.sampled_from([*STORED]),
    target=st.sampled_from(TARGETS),
    release=st.sampled_from(RELEASES),
    changes=_changes,
    dropped=_dropped,
)
def test_every_edit(
    drafters: Mapping[tuple[str, str], DrafterSpec],
    stored: str,
    target: str,
    release: Release,
    changes: dict[str, Any],
    dropped: set[str],
) -> None:
    raw = {key: value for key, value in CONFIG.items() if key not in dropped} | changes
    try:
        spec = with_config(drafters[stored, target], raw, told=False)
    except ConfigError:  # rope without what its type needs: no drafter to speak of
        return
    declared = declared_wiring(spec)
    served = serve(engine_of(release), spec, release)
    if declared is None or not served.edit:
        return
    edit, written = served.edit, merged(raw, served.edit)
    assert json.loads(json.dumps(edit, allow_nan=False)) == edit

    alone = with_config(spec, written, told=False)  # as whoever opens the written folder reads it
    assert declared_wiring(alone) == declared
    after = serve(engine_of(release), alone, release)
    assert after.edit == {}
    gained = badness(declared, after.effect)
    assert gained < badness(declared, served.effect)

    for path in leaves(edit):
        less = with_config(spec, merged(raw, without(edit, path)))
        loses = declared_wiring(less) != declared
        assert loses or badness(declared, engine_of(release).effect(less, release)) > gained, f"{path} gains nothing"
        if at(edit, path) is None and at(raw, path) is not None:
            assert path[0] in ROPE, f"{path} is dropped"
            assert any(written.get(key) is not None for key in ROPE if key != path[0])
    assert written.get("team") == raw.get("team")
    assert at(written, (SECTION, "remark")) == at(raw, (SECTION, "remark"))
