"""The script that makes the bundled records: what it makes of notes, what it leaves out, what it refuses."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.facts import registry

pytest.importorskip("tomlkit", reason="it is in the extra `dev`")

from reference_models import build, convert

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "reference_models"
NOTES = ROOT / "tests" / "data" / "registry"
GITHUB = "https://github.com/someone-else/project/pull/7"


def run(folder: Path, drafters: Path, targets: Path, by_hand: Path | None = None) -> dict[str, str]:
    """The records made, name -> text."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    arguments = [str(drafters), str(targets), "--out", str(out), "--by-hand", str(by_hand or folder)]
    assert build.main(arguments) == 0
    return {path.stem: path.read_text(encoding="utf-8") for path in out.glob("*.toml")}


def notes(folder: Path, *drafters: dict[str, Any], targets: tuple[dict[str, Any], ...] = ()) -> tuple[Path, Path]:
    for name, objects in (("drafters", drafters), ("targets", targets)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(raw) + "\n" for raw in objects))
    return folder / "drafters.jsonl", folder / "targets.jsonl"


def note(**fields: Any) -> dict[str, Any]:
    return {
        "repo_id": "Some-Org/Drafter",
        "target": "org/target",
        "sources": ["https://huggingface.co/Some-Org/Drafter"],
        "confidence": "high",
        "results": [],
        **fields,
    }


def made(folder: Path, **fields: Any) -> registry.Record:
    texts = run(folder, *notes(folder, note(**fields)))
    return registry.parse(texts["some-org-drafter"], "some-org-drafter")


def test_the_examples_in_the_script_are_right():
    assert doctest.testmod(convert).failed == 0
    assert doctest.testmod(convert).attempted >= 4


def test_the_bundled_records_come_out_byte_for_byte(tmp_path):
    texts = run(tmp_path, NOTES / "drafters.jsonl", NOTES / "targets.jsonl", RECORDS / "by_hand")
    assert len(texts) == 14
    bundled = {name: (RECORDS / f"{name}.toml").read_text(encoding="utf-8") for name in texts}
    assert texts == bundled


def test_the_order_of_the_notes_does_not_matter(tmp_path):
    first = run(tmp_path, NOTES / "drafters.jsonl", NOTES / "targets.jsonl")
    turned = [json.loads(line) for line in (NOTES / "drafters.jsonl").read_text().splitlines()][::-1]
    turned = [dict(reversed(raw.items())) for raw in turned]
    second = run(tmp_path, notes(tmp_path, *turned)[0], NOTES / "targets.jsonl")
    assert first == second


@pytest.mark.parametrize(
    ("written", "count"),
    [("1.4M", 1_400_000), ("~300k", 300_000), ("135K", 135_000), ("148112 rows", 148_112), ("~100k prompts", 100_000),
     ("600K samples, 1B tokens", 600_000)],
)  # fmt: skip
def test_samples_are_numbers(tmp_path, written, count):
    assert made(tmp_path, training={"samples": written}).training.samples == count


@pytest.mark.parametrize("written", ["2 phases x 20k steps (~300k samples each)", "240k math", "many", "1.4.2M"])
def test_samples_that_can_be_read_in_two_ways_are_left_out(tmp_path, written):
    record = made(tmp_path, training={"samples": written, "framework": "SpecForge"})
    assert (record.training.samples, record.framework) == (None, "SpecForge")


@pytest.mark.parametrize("dataset", ["first this; then that", "word " * 30])
def test_a_sentence_is_no_dataset(tmp_path, dataset):
    assert made(tmp_path, training={"samples": "1M", "dataset": dataset}).training.dataset is None


@pytest.mark.parametrize(
    ("written", "target", "confidence"),
    [("org/target", "org/target", "high"), ("org/target (by name)", "org/target", "medium"),
     ("a model of theirs", None, None), ("target", None, None)],
)  # fmt: skip
def test_a_target_is_a_repository_or_none(tmp_path, written, target, confidence):
    record = made(tmp_path, target=written, hf_param_count="2B")
    assert record.target == target
    assert (record.provenance["target"].confidence if target else None) == confidence


def test_counts_keep_what_was_written(tmp_path):
    published = made(tmp_path, hf_param_count="6.08M (list page)").published_parameters
    assert (published.count, published.written) == (6_080_000, "6.08M")


def test_a_mirror_is_second_hand_and_names_the_page(tmp_path):
    sources = ["https://mirror.example/hf/Some-Org/Drafter/blob/main/README.md (mirror)"]
    record = made(tmp_path, sources=sources, license="CC BY 4.0", hf_param_count="1B")
    assert record.license == "cc-by-4.0"
    origin = record.provenance["license"]
    assert origin.source == "https://huggingface.co/Some-Org/Drafter/blob/main/README.md"
    assert origin.confidence == "medium"


def test_who_measured_is_told(tmp_path):
    by_author = made(tmp_path, results=[{"benchmark": "GSM8K", "accept_len": 2.5}])
    elsewhere = made(tmp_path, sources=[GITHUB], results=[{"benchmark": "GSM8K", "accept_len": 2.5}])
    third = made(tmp_path, results=[{"benchmark": "GSM8K", "accept_len": 2.5, "measured_by": "other card"}])
    dashboard = "https://github.com/x/y/spec_bundle/data.json"
    rows = [{"benchmark": "GSM8K", "accept_len": 2.5, "source": "SpecBundle dashboard"}]
    bundle = made(tmp_path, sources=["https://huggingface.co/Some-Org/Drafter", dashboard], results=rows)
    publishers = [record.accept_len[0].publisher for record in (by_author, elsewhere, third, bundle)]
    assert publishers == ["author", "someone-else/project", "other", "SpecBundle"]
    assert bundle.accept_len[0].source.endswith(dashboard)


@pytest.mark.parametrize("key", ["steps", "num_speculative_tokens", "k", "draft_length"])
def test_rows_beyond_their_settings_are_dropped_and_told(tmp_path, key, capsys):
    results = [{"benchmark": "fine", "accept_len": 4.0, key: 3}, {"benchmark": "beyond", "accept_len": 4.1, key: 3}]
    record = made(tmp_path, results=[*results, {"benchmark": "below", "accept_len": 0.9}, {"benchmark": "tps"}])
    assert [(row.benchmark, row.steps) for row in record.accept_len] == [("fine", 3)]
    told = capsys.readouterr().err
    assert "Some-Org/Drafter, beyond: 4.1 is not from 1 to 4" in told
    assert "left out: 2 accept_len rows beyond what their settings allow" in told
    assert "left out: 1 results without an accept_len" in told


def test_a_row_for_each_number_of_steps(tmp_path):
    record = made(tmp_path, results=[{"benchmark": "GSM8K", "accept_len_by_k": {"1": 1.8, "3": 2.9}}])
    assert [(row.steps, row.value) for row in record.accept_len] == [(1, 1.8), (3, 2.9)]


def test_only_a_published_config_is_one(tmp_path):
    config = {"architectures": ["A"], "hidden_size": 64, "rope_scaling": None}
    published = made(tmp_path, config=config)
    trainers = made(tmp_path, config_from_repo={"source": GITHUB, **config}, config={"hidden_size": 32})
    claimed = made(tmp_path, config_claims=config, config_partial=config, config_template=config, hf_param_count="1B")
    assert (published.config_origin, dict(published.config)) == ("published", config)
    assert trainers.config_origin == "trainer_repo"
    assert (trainers.config["hidden_size"], trainers.config["architectures"]) == (32, ["A"])
    assert (trainers.provenance["config_origin"].confidence, trainers.provenance["config_origin"].source) == (
        "medium",
        GITHUB,
    )
    assert (claimed.config_origin, claimed.config) == (None, {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"repo_id": "trainer:configs/a.json", "kind": "training_config_template"}, "training templates"),
     ({"repo_id": "(custom, unnamed) something"}, "notes without a repository id"),
     ({"repo_id": "Some Drafter"}, "notes without a repository id"),
     ({"license": "mit"}, "drafters without config, results, training or count")],
)  # fmt: skip
def test_what_is_left_out_is_counted(tmp_path, fields, reason, capsys):
    assert run(tmp_path, *notes(tmp_path, note(**fields))) == {}
    assert f"left out: 1 {reason}\n" in capsys.readouterr().err


def test_groups_by_hand_win_and_their_rows_replace_those_of_the_publisher(tmp_path):
    dashboard = {"benchmark": "b", "accept_len": 2.5, "source": "SpecBundle dashboard"}
    (tmp_path / "some-org-drafter.toml").write_text(
        '[license]\nid = "mit"\nsource = "https://example.org/a"\nconfidence = "high"\n'
        '[[accept_len]]\nbenchmark = "a"\nvalue = 2.0\nsteps = 3\npublisher = "author"\n'
        'source = "https://example.org/a"\nconfidence = "low"\n'
    )
    record = made(tmp_path, license="gpl", results=[{"benchmark": "a", "accept_len": 2.0}, dashboard])
    assert record.license == "mit"
    assert [(row.publisher, row.steps) for row in record.accept_len] == [("author", 3), ("SpecBundle", None)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"hiden_size": 1}, "drafters.jsonl:1: Some-Org/Drafter: unknown field 'hiden_size'"),
     ({"license": 3}, "drafters.jsonl:1: Some-Org/Drafter: license is 3, not str"),
     ({"results": {}}, "drafters.jsonl:1: Some-Org/Drafter: results is {}, not list"),
     ({"results": [{"benchmark": "a", "steps": "3"}]}, "Some-Org/Drafter: results: steps is '3', not int"),
     ({"results": [{"benchmark": "a", "steps": True}]}, "Some-Org/Drafter: results: steps is True, not int"),
     ({"results": [{"benchmark": "a", "accept_length": 2}]}, "results: unknown field 'accept_length'"),
     ({"results": [4]}, "Some-Org/Drafter: results: not an object"),
     ({"confidence": "certain"}, "confidence is 'certain'"),
     ({"sources": ["a card"], "hf_param_count": "1B"}, "Some-Org/Drafter: none of its sources is a URL")],
)  # fmt: skip
def test_notes_of_another_form_are_refused_in_one_line(tmp_path, fields, message, capsys):
    drafters, targets = notes(tmp_path, note(**fields))
    assert build.main([str(drafters), str(targets), "--out", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not list(tmp_path.glob("*.toml"))


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_what_is_no_json_object_is_refused(tmp_path, text, capsys):
    drafters, targets = notes(tmp_path)
    drafters.write_text(text + "\n")
    assert build.main([str(drafters), str(targets), "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: drafters.jsonl:1: ")


def test_one_repository_twice_is_refused(tmp_path, capsys):
    twice = [note(hf_param_count="1B"), note(hf_param_count="2B", repo_id="some-org/drafter")]
    drafters, targets = notes(tmp_path, *twice)
    assert build.main([str(drafters), str(targets), "--out", str(tmp_path)]) == 1
    assert "described twice" in capsys.readouterr().err


def target_note(**fields: Any) -> dict[str, Any]:
    whole = {"repo_id": "org/target", "role": "target", "source": ["https://example.org/config.json"]}
    return {**whole, "confidence": "high", "config": {"hidden_size": 8}, "quantization": None, **fields}


def test_targets_keep_nesting_and_quantisation_without_summaries(tmp_path):
    quantization = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore_count": 93,
        "ignore_first": ["a"],
        "modules_to_not_convert": {"count": 2, "first": ["a"]},
        "weights": {"num_bits": 4, "type": "float", "strategy": None},
    }
    raw = target_note(
        quantization=quantization,
        text_config={"num_hidden_layers": 3, "layer_types_first8": ["full"], "layer_types_summary": {"full": 3}},
        hf_quant_config={"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "exclude_modules": {"count": 4}},
    )
    text = run(tmp_path, *notes(tmp_path, targets=(raw,)))["org-target"]
    record = registry.parse(text, "org-target")
    assert record.config == {
        "hidden_size": 8,
        "text_config": {"num_hidden_layers": 3},
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}},
        },
    }
    assert record.hf_quant_config == {"quant_algo": "NVFP4"}


@pytest.mark.parametrize(("confidence", "told"), [("high", True), ("medium", False)])
def test_no_quantisation_counts_only_where_the_file_was_seen(tmp_path, confidence, told):
    text = run(tmp_path, *notes(tmp_path, targets=(target_note(confidence=confidence),)))["org-target"]
    assert ("quantization_config" in registry.parse(text, "org-target").config) is told
