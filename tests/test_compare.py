"""Differences in meaning and the conclusions drawn from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import drafter_audit
from drafter_audit.audit.compare import Comparison
from drafter_audit.errors import ProjectFileError, UsageError
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, kimi_tensors, read_peer, write_checkpoint, write_peer
from tests.hub import Hub, write_sparse

TOML = """\
[[drafter]]
target = "{target}"
  [drafter.training]
  dataset = "{dataset}"
  samples = {samples}
"""


def kimi(folder: Path, *, facts: str = "", **config: Any) -> str:
    ref = write_checkpoint(folder, {**KIMI_CONFIG, **config}, kimi_tensors())
    if facts:
        (folder / "drafter-audit.toml").write_text(facts)
    return ref


def accept_len(
    value: float, *, steps: int = 3, topk: int = 1, tokens: int = 4, benchmark: str = "", **more: object
) -> str:
    named = {"benchmark": benchmark} if benchmark else {}
    fields = {"value": value, "steps": steps, "topk": topk, "num_draft_tokens": tokens, **named, **more}
    lines = (
        f"{name} = {value!r}" if not isinstance(value, str) else f'{name} = "{value}"' for name, value in fields.items()
    )
    return "[[drafter.accept_len]]\n" + "\n".join(lines) + "\n"


def facts(*rows: str, samples: int = 1000, target: str = "moonshotai/Kimi-K2.5", throughput: str = "") -> str:
    return TOML.format(target=target, dataset="d", samples=samples) + throughput + "".join(rows)


def fields(comparison: Comparison) -> dict[str, tuple[Any, ...]]:
    return {difference.field: difference.values for difference in comparison.differences}


def numbers(comparison: Comparison, code: str) -> dict[str, Any] | None:
    return next((dict(c.numbers) for c in comparison.conclusions if c.code == code), None)


def test_a_drafter_equals_itself(tmp_path: Path) -> None:
    ref = kimi(tmp_path / "a", facts=facts(accept_len(2.5)))
    comparison = drafter_audit.compare([ref, ref])
    assert comparison.differences == ()
    assert numbers(comparison, "same_architecture") == {"same": True}
    assert numbers(comparison, "largest_difference") is None


@pytest.mark.parametrize(
    "rewritten",
    [
        pytest.param(
            {"rope_theta": None, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
            id="rope of transformers 5",
        ),
        pytest.param(
            {"norm_before_residual": False, "norm_output": False, "fc_norm": False}, id="defaults written out"
        ),
        pytest.param({"dtype": None, "torch_dtype": "bfloat16"}, id="torch_dtype"),
        pytest.param({"head_dim": 128, "rms_norm_eps": 1e-6, "use_cache": True}, id="keys without meaning here"),
        pytest.param({"num_aux_hidden_states": 3, "target_hidden_size": 7168}, id="derived sizes written out"),
        pytest.param(
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}}, id="the same states by output ids"
        ),
    ],
)
def test_layout_and_defaults_are_no_difference(tmp_path: Path, rewritten: dict[str, Any]) -> None:
    story = facts(target="moonshotai/Kimi-K2.5")
    comparison = drafter_audit.compare(
        [kimi(tmp_path / "a", facts=story), kimi(tmp_path / "b", facts=story, **rewritten)]
    )
    assert fields(comparison) == {}


def test_renamed_tensors_are_no_difference_in_shape(tmp_path: Path) -> None:
    """speculators' own conversion of a SpecForge checkpoint: the same network; only the training rule differs."""
    config, tensors, _ = read_peer("tiny_llama")
    target = write_checkpoint(tmp_path / "target", {**config, "hidden_size": 128}, tensors)  # only its config is read
    refs = [write_peer(tmp_path / name, name) for name in ("specforge_trained", "speculators_converted")]
    comparison = drafter_audit.compare(refs, target=target)
    assert numbers(comparison, "same_architecture") == {"same": True}
    assert set(fields(comparison)) == {"parameters.trainable", "parameters.frozen"}


@pytest.mark.parametrize(
    ("changed", "field", "same"),
    [
        ({"norm_output": True}, "architecture.norm_output", False),
        ({"norm_before_residual": True}, "architecture.norm_before_residual", False),
        ({"rope_theta": 50000.0}, "architecture.rope", True),
        ({"max_position_embeddings": 2048}, "architecture.max_position_embeddings", True),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 31, 59]}}, "aux_layers.boundaries", True),
    ],
)
def test_what_differs_in_meaning(tmp_path: Path, changed: dict[str, Any], field: str, same: bool) -> None:
    story = facts()
    comparison = drafter_audit.compare(
        [kimi(tmp_path / "a", facts=story), kimi(tmp_path / "b", facts=story, **changed)]
    )
    assert list(fields(comparison)) == [field]
    assert all(difference.why for difference in comparison.differences)
    assert numbers(comparison, "same_architecture") == {"same": same}
    # A limit on positions explains no acceptance.
    largest = None if field.endswith("max_position_embeddings") else field
    assert (numbers(comparison, "largest_difference") or {}).get("field") == largest


def test_only_what_makes_the_network_is_named_as_another_architecture(tmp_path: Path) -> None:
    changed = {"norm_output": True, "rope_theta": 5e4, "max_position_embeddings": 2048}
    comparison = drafter_audit.compare([kimi(tmp_path / "a"), kimi(tmp_path / "b", **changed)])
    assert comparison.conclusions[0].text == "Not the same architecture: norm_output differs."


def test_target_names_are_compared_without_case(tmp_path: Path) -> None:
    pair = [
        kimi(tmp_path / name, facts=facts(target=f"moonshotai/{model}"))
        for name, model in (("a", "Kimi-K2.5"), ("b", "kimi-k2.5"))
    ]
    assert fields(drafter_audit.compare(pair)) == {}


def pair_of(tmp_path: Path, theirs: str, ours: str) -> Comparison:
    return drafter_audit.compare([kimi(tmp_path / "theirs", facts=theirs), kimi(tmp_path / "ours", facts=ours)])


def test_more_steps_can_be_bounded_too(tmp_path: Path) -> None:
    comparison = pair_of(tmp_path, facts(accept_len(2.0, steps=2, tokens=3)), facts(accept_len(2.6, steps=4, tokens=5)))
    gap = numbers(comparison, "accept_len_gap") or {}
    assert (gap["bounded_low"], gap["bounded_high"]) == (2.0, 3.0)


@pytest.mark.parametrize(("topk", "tokens"), [(4, 8), (2, 4)])
def test_a_tree_cannot_be_bounded(tmp_path: Path, topk: int, tokens: int) -> None:
    comparison = pair_of(
        tmp_path, facts(accept_len(3.0, topk=topk, tokens=tokens)), facts(accept_len(2.1, steps=2, tokens=3))
    )
    gap = numbers(comparison, "accept_len_gap") or {}
    assert (gap["theirs_low"], gap["bounded_low"], gap["bounded_high"]) == (3.0, None, None)
    assert "topk" in (numbers(comparison, "not_comparable") or {})["reasons"]
    assert numbers(comparison, "what_if") is None


def test_fewer_draft_tokens_than_steps_shorten_the_chain(tmp_path: Path) -> None:
    """With top-k 1, num_draft_tokens - 1 drafts are verified: 2 and 2 is a chain of one."""
    comparison = pair_of(tmp_path, facts(accept_len(3.0)), facts(accept_len(1.6, steps=2, tokens=2)))
    gap = numbers(comparison, "accept_len_gap") or {}
    assert gap["bounded_low"] == pytest.approx(1 + (3.0 - 1) / 3)
    assert gap["bounded_high"] == 2.0


def test_rows_of_a_shared_benchmark_are_set_against_each_other(tmp_path: Path) -> None:
    theirs = facts(accept_len(3.4, benchmark="GSM8K"), accept_len(2.4, benchmark="MT-Bench"))
    comparison = pair_of(
        tmp_path, theirs, facts(accept_len(2.0, benchmark="mtbench"), accept_len(3.0, benchmark="C-Eval"))
    )
    gap = numbers(comparison, "accept_len_gap") or {}
    assert (gap["ours"], gap["theirs_low"], gap["theirs_high"]) == (2.0, 2.4, 2.4)
    reasons = (numbers(comparison, "not_comparable") or {"reasons": []})["reasons"]
    assert "benchmark" not in reasons


def test_different_benchmarks_are_not_comparable(tmp_path: Path) -> None:
    comparison = pair_of(
        tmp_path, facts(accept_len(3.4, benchmark="GSM8K")), facts(accept_len(2.0, benchmark="MT-Bench"))
    )
    assert (numbers(comparison, "not_comparable") or {})["reasons"] == ["benchmark"]


def test_rows_at_our_own_step_count_are_preferred(tmp_path: Path) -> None:
    theirs = facts(accept_len(4.1, steps=5, tokens=6), accept_len(2.4, steps=2, tokens=3), accept_len(3.0))
    gap = numbers(pair_of(tmp_path, theirs, facts(accept_len(2.1, steps=2, tokens=3))), "accept_len_gap") or {}
    assert (gap["theirs_low"], gap["theirs_high"], gap["bounded_low"], gap["bounded_high"]) == (2.4, 2.4, 2.4, 2.4)


def test_nothing_is_concluded_from_what_is_not_stated(tmp_path: Path) -> None:
    comparison = drafter_audit.compare([kimi(tmp_path / "a"), kimi(tmp_path / "b")])
    assert {conclusion.code for conclusion in comparison.conclusions} == {"same_architecture", "size_difference"}


def test_samples_ratio_names_who_has_more(tmp_path: Path) -> None:
    comparison = pair_of(tmp_path, facts(samples=1000), facts(samples=4000))
    ratio = numbers(comparison, "samples_ratio") or {}
    assert (ratio["ratio"], ratio["samples"]) == (4.0, [1000, 4000])
    assert ratio["more"].endswith("ours")


def test_signs_are_last_minus_first(tmp_path: Path) -> None:
    small = kimi(tmp_path / "small")
    large = write_checkpoint(tmp_path / "large", KIMI_CONFIG, {**kimi_tensors(), **EMBEDDING})
    down = numbers(drafter_audit.compare([large, small]), "size_difference") or {}
    up = numbers(drafter_audit.compare([small, large]), "size_difference") or {}
    assert (down["stored"], down["not_trainable"], down["trainable"]) == (-1_174_405_120, -1_174_405_120, 0)
    assert (up["stored"], up["not_trainable"], up["trainable"]) == (1_174_405_120, 1_174_405_120, 0)


def test_three_drafters_are_each_set_against_the_last(tmp_path: Path) -> None:
    refs = [kimi(tmp_path / name, facts=facts(samples=count)) for name, count in (("a", 100), ("b", 200), ("c", 400))]
    comparison = drafter_audit.compare(refs)
    ratios = [c.numbers["ratio"] for c in comparison.conclusions if c.code == "samples_ratio"]
    assert ratios == [4.0, 2.0]
    assert fields(comparison) == {"training.samples": (100, 200, 400)}


def test_one_reference_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least two"):
        drafter_audit.compare([str(tmp_path)])


def test_an_equal_setting_needs_no_bound_be_it_a_tree(tmp_path: Path) -> None:
    tree = {"topk": 4, "tokens": 8}
    throughput = "  [drafter.throughput]\n  tokens_per_s = 100.0\n"
    ours = facts(accept_len(2.0, **tree), throughput=throughput)
    comparison = pair_of(tmp_path, facts(accept_len(3.0, **tree)), ours)
    gap = numbers(comparison, "accept_len_gap") or {}
    assert (gap["bounded_low"], gap["bounded_high"]) == (3.0, 3.0)
    assert (numbers(comparison, "what_if") or {})["tokens_per_s_low"] == pytest.approx(150.0)


def test_a_figure_beyond_what_its_draft_tokens_allow_is_refused(tmp_path: Path) -> None:
    """Three draft tokens, the target's own among them, cannot make 3.9 tokens a round."""
    with pytest.raises(ProjectFileError, match="a round emits 3 at most"):
        pair_of(tmp_path, facts(accept_len(3.9, steps=5, tokens=3)), facts(accept_len(2.1, steps=2, tokens=3)))


def test_rows_measured_differently_are_not_one_figure(tmp_path: Path) -> None:
    mixed = facts(accept_len(3.0, temperature=0.0, engine="sglang"), accept_len(2.0, temperature=1.0, engine="vllm"))
    comparison = pair_of(tmp_path, mixed, facts(accept_len(2.5, temperature=0.0, engine="sglang")))
    assert set((numbers(comparison, "not_comparable") or {})["reasons"]) == {"temperature", "engine"}


def test_the_largest_difference_is_that_of_the_pair(tmp_path: Path) -> None:
    refs = [kimi(tmp_path / "a", rope_theta=5e4), kimi(tmp_path / "b"), kimi(tmp_path / "c")]
    largest = [c.numbers for c in drafter_audit.compare(refs).conclusions if c.code == "largest_difference"]
    assert [(one["field"], one["against"]) for one in largest] == [("architecture.rope", refs[0])]


def test_renamed_keys_of_an_unknown_trainer_are_no_difference(tmp_path: Path) -> None:
    """`layers.0.*` has no fingerprint: whether the head was trained is open then, which is not a difference."""
    renamed = {name.replace("midlayer.", "layers.0."): shape for name, shape in kimi_tensors().items()}
    refs = [kimi(tmp_path / "a"), write_checkpoint(tmp_path / "b", KIMI_CONFIG, renamed)]
    comparison = drafter_audit.compare(refs)
    assert comparison.differences == ()
    size = next(c for c in comparison.conclusions if c.code == "size_difference")
    assert "How many of them are trainable is not known" in size.text


def test_what_is_not_stated_is_no_difference(tmp_path: Path) -> None:
    assert drafter_audit.compare([kimi(tmp_path / "a", facts=facts()), kimi(tmp_path / "b")]).differences == ()


def test_without_a_target_only_ids_that_no_reading_brings_together_differ(tmp_path: Path) -> None:
    def with_ids(name: str, *ids: int) -> str:
        return kimi(tmp_path / name, eagle_config={"eagle_aux_hidden_state_layer_ids": list(ids)})

    usual, outputs, others = with_ids("a", 2, 30, 58), with_ids("b", 1, 29, 57), with_ids("c", 5, 20, 40)
    assert fields(drafter_audit.compare([usual, outputs])) == {}
    assert list(fields(drafter_audit.compare([usual, others]))) == ["aux_layers.boundaries"]


def test_a_config_without_weights_is_not_taken_for_a_drafter_that_was_counted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(KIMI_CONFIG))
    comparison = drafter_audit.compare([str(tmp_path), "aq-medai-kimi-k2-instruct-eagle3"])
    severities = [next(f.severity for f in found if f.code == "NO-WEIGHTS") for found in comparison.findings]
    assert severities == ["warning", "info"]


def test_each_comparison_counts_its_own_requests(hub: Hub, tmp_path: Path) -> None:
    weights = write_sparse(tmp_path / "w.safetensors", kimi_tensors())
    hub.add_repo(
        "some-org/drafter", files={"config.json": json.dumps(KIMI_CONFIG).encode(), "model.safetensors": weights}
    )
    local = kimi(tmp_path / "local")
    first = drafter_audit.compare(["some-org/drafter", local]).hub
    assert 0 < first.requests == len(hub.requests)
    assert drafter_audit.compare([local, local]).hub.requests == 0
