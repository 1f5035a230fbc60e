"""Layer ids to boundaries. The vectors are what frameworks' own code and published drafters establish."""

from __future__ import annotations

from typing import Any

import pytest

from drafter_audit.drafter.boundaries import AuxLayers, default_boundaries, read_aux_layers
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.errors import ConfigError

KEY = "eagle_aux_hidden_state_layer_ids"


def read(
    config: dict[str, Any],
    layers: int | None,
    *,
    kind: str = "eagle3",
    dialect: str = "specforge",
    slots: int | None = 3,
) -> AuxLayers:
    return read_aux_layers(
        ConfigView(config, "config.json"), kind=kind, dialect=dialect, num_layers=layers, slots=slots
    )


def nested(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {KEY: list(ids)}}


@pytest.mark.parametrize(
    ("ids", "layers", "boundaries", "reading", "confidence", "alternative"),
    [
        pytest.param((1, 15, 28), 32, (2, 16, 29), "output_of_layer", "high", None, id="usual outputs, Llama"),
        pytest.param((2, 16, 29), 32, (2, 16, 29), "boundary", "medium", (3, 17, 30), id="usual boundaries, Llama"),
        pytest.param((1, 29, 57), 61, (2, 30, 58), "output_of_layer", "high", None, id="usual outputs, Kimi"),
        pytest.param((2, 30, 58), 61, (2, 30, 58), "boundary", "medium", (3, 31, 59), id="usual boundaries, Kimi"),
        pytest.param((3, 30, 58), 61, (4, 31, 59), "output_of_layer", "low", (3, 30, 58), id="no rule decides"),
        pytest.param((24, 30, 36), 36, (24, 30, 36), "boundary", "high", None, id="the last one is L"),
        pytest.param((1, 17, 32), 36, (2, 18, 33), "output_of_layer", "high", None, id="usual outputs, gpt-oss-120b"),
        pytest.param((1, 11, 21), 24, (2, 12, 22), "output_of_layer", "medium", (1, 11, 21), id="begins with 1"),
        pytest.param((28, 1, 15), 32, (2, 16, 29), "output_of_layer", "high", None, id="unsorted, engines sort"),
        pytest.param((-1, 15, 28), 32, (0, 16, 29), "output_of_layer", "high", None, id="embedding output as -1"),
        pytest.param((0, 30, 58), 61, (0, 30, 58), "boundary", "medium", (1, 31, 59), id="embedding output as 0"),
        pytest.param((0, 20, 50), 61, (1, 21, 51), "output_of_layer", "low", (0, 20, 50), id="0, and no usual list"),
        pytest.param((2, 46, 90), 93, (2, 46, 90), "boundary", "medium", (3, 47, 91), id="usual boundaries, Kimi-K3"),
        pytest.param((1, 17, 33), 36, (2, 18, 34), "output_of_layer", "medium", (1, 17, 33), id="published, 36 layers"),
    ],
)  # fmt: skip
def test_nested_ids(
    ids: tuple[int, ...],
    layers: int,
    boundaries: tuple[int, ...],
    reading: str,
    confidence: str,
    alternative: tuple[int, ...] | None,
) -> None:
    aux = read(nested(*ids), layers)
    assert (aux.boundaries, aux.reading, aux.confidence) == (boundaries, reading, confidence)
    assert [a.boundaries for a in aux.alternatives] == ([] if alternative is None else [alternative])
    assert aux.declared == ids
    assert aux.key == f"eagle_config.{KEY}"


@pytest.mark.parametrize("layers", [32, 61, 36, 24, 48])
def test_no_ids_read_as_the_default_that_explicit_default_ids_name(layers: int) -> None:
    absent = read({}, layers)
    assert (absent.reading, absent.declared, absent.key) == ("default", None, None)
    assert absent.boundaries == (2, layers // 2, layers - 3) == default_boundaries(layers)
    outputs = [b - 1 for b in absent.boundaries]
    assert read(nested(*outputs), layers).boundaries == absent.boundaries


def test_speculators_ids_are_boundaries() -> None:
    aux = read({KEY: [2, 18, 33], "speculators_model_type": "eagle3"}, 36, dialect="speculators")
    assert (aux.boundaries, aux.reading, aux.confidence, aux.key) == ((2, 18, 33), "boundary", "high", KEY)
    assert aux.alternatives == ()


def test_speculators_with_the_usual_output_ids_keeps_an_alternative() -> None:
    aux = read({KEY: [1, 23, 44]}, 48, dialect="speculators")
    assert (aux.boundaries, aux.confidence) == ((1, 23, 44), "high")
    assert [(a.reading, a.boundaries) for a in aux.alternatives] == [("output_of_layer", (2, 24, 45))]


def test_speculators_null_is_the_default() -> None:
    assert read({KEY: None}, 36, dialect="speculators").boundaries == (2, 18, 33)


@pytest.mark.parametrize("place", ["dflash_config", None])
def test_dflash_ids_are_outputs(place: str | None) -> None:
    ids = {"target_layer_ids": [1, 9, 17, 25, 33]}
    aux = read({place: ids} if place else ids, 36, kind="dflash", dialect="unknown", slots=None)
    assert (aux.boundaries, aux.reading, aux.confidence) == ((2, 10, 18, 26, 34), "output_of_layer", "high")


def test_top_level_ids_of_no_known_format_keep_both_readings() -> None:
    aux = read({KEY: [3, 17, 30]}, 32)
    assert (aux.boundaries, aux.reading, aux.confidence) == ((3, 17, 30), "boundary", "medium")
    assert [a.boundaries for a in aux.alternatives] == [(4, 18, 31)]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"eagle_layer_ids": [1, 15, 28]}, "eagle_layer_ids"),
        ({"eagle_config": {"eagle_layer_ids": [1, 15, 28]}}, "eagle_config.eagle_layer_ids"),
        ({"eagle_config": {"layer_ids": [1, 15, 28]}}, "eagle_config.layer_ids"),
        ({"text_config": {"eagle_config": {KEY: [1, 15, 28]}}}, f"eagle_config.{KEY}"),
        ({"text_config": {KEY: [1, 15, 28]}}, f"text_config.{KEY}"),
        ({"llm_config": {KEY: [1, 15, 28]}}, f"llm_config.{KEY}"),
    ],
)
def test_users_own_names_are_read_like_the_long_one(config: dict[str, Any], key: str) -> None:
    aux = read(config, 32)
    assert (aux.key, aux.declared, aux.boundaries) == (key, (1, 15, 28), (2, 16, 29))


def test_two_keys_that_disagree_are_both_told() -> None:
    aux = read({**nested(1, 15, 28), KEY: [2, 17, 29]}, 32)
    assert aux.declared == (1, 15, 28)
    assert aux.others == ((KEY, (2, 17, 29)),)


def test_two_keys_that_mean_the_same_boundaries_agree() -> None:
    """Outputs of layers where SGLang reads, boundaries where vLLM does: one config for both."""
    assert read({**nested(1, 15, 28), KEY: [2, 16, 29]}, 32).others == ()


def test_ids_beyond_the_target_have_no_boundaries() -> None:
    assert read(nested(1, 15, 33), 32).boundaries is None


def test_without_a_layer_count_nothing_is_certain() -> None:
    aux = read(nested(2, 30, 58), None)
    assert (aux.boundaries, aux.confidence) == ((3, 31, 59), "low")
    assert [a.boundaries for a in aux.alternatives] == [(2, 30, 58)]
    assert read({}, None).boundaries is None


@pytest.mark.parametrize(("layers", "boundaries"), [(6, None), (7, (2, 3, 4)), (8, (2, 4, 5))])
def test_the_default_needs_room(layers: int, boundaries: tuple[int, ...] | None) -> None:
    assert read({}, layers).boundaries == boundaries


def test_the_default_needs_three_slots() -> None:
    assert read({}, 36, slots=5).boundaries is None


@pytest.mark.parametrize("dialect", ["angelslim", "torchspec", "nemo"])
def test_trainers_that_concatenate_in_list_order_keep_it(dialect: str) -> None:
    aux = read(nested(28, 1, 15), 32, dialect=dialect)
    assert (aux.boundaries, aux.confidence) == ((29, 2, 16), "low")
    assert [a.boundaries for a in aux.alternatives] == [(2, 16, 29)]


@pytest.mark.parametrize("ids", ["2,30,58", [2, 30, "58"], [True, 2, 3], [1.0, 2.0, 3.0], [], {"low": 2}])
def test_ids_of_a_wrong_type_are_an_error(ids: object) -> None:
    with pytest.raises(ConfigError, match=KEY):
        read({"eagle_config": {KEY: ids}}, 32)


@pytest.mark.parametrize("kind", ["eagle1", "eagle3_noaux", "medusa", "lm"])
def test_kinds_without_aux_states_have_no_boundaries(kind: str) -> None:
    assert read({}, 32, kind=kind).boundaries is None
