"""The story of layer ids [2, 30, 58], and of a tap on the embedding output, from the command line.

A trainer wrote [2, 30, 58] and meant outputs of layers, boundaries 3, 31 and 59 of a 61-layer DeepSeek-type target.
SGLang served it right until 0.5.12.post1; since pull request 25454 (0.5.13) a list that does not begin with 1 is taken
as boundaries. vLLM's runner V1 takes the key as boundaries, V2 does not read it; TensorRT-LLM reads no ids at all;
llama.cpp reads them at the top level, and keeps no layer inputs of such a target.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.cli.main import main
from drafter_audit.engines.base import merged
from tests.checkpoints import KIMI_CONFIG, kimi_tensors, read_peer, write_checkpoint, write_peer
from tests.findings.engines import NESTED, write_target

ENGINES = ("sglang@0.5.12.post1", "sglang@0.5.13", "sglang@0.5.23", "vllm@0.33.0", "tensorrt-llm", "llama.cpp")
MEANT = [3, 31, 59]
DEFAULT = [2, 30, 58]  # 2, L//2 and L-3 of 61 layers: what the three ids look like, taken as boundaries
SGL_OLD, SGL_NEW, SGL_NEWEST = (("sglang", version, None) for version in ("0.5.12.post1", "0.5.13", "0.5.23"))
V1, V2 = (("vllm", "0.33.0", runner) for runner in ("v1", "v2"))
LLAMA_TARGET = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 7168,
                "num_hidden_layers": 32, "vocab_size": 163840, "max_position_embeddings": 131072}  # fmt: skip
Key = tuple[str, str, str | None]
Report = dict[str, Any]


class Story:
    """Lints the drafter of Kimi-K2 with some keys changed, on a target, for every engine of the story."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.count = folder, capsys, 0

    def text(
        self, config: Report, *options: str, target: Report | None = None, engines: Sequence[str] = ENGINES
    ) -> str:
        self.count += 1
        place = self.folder / str(self.count)
        ref = write_checkpoint(place / "drafter", config, kimi_tensors())
        on = write_target(place / "target", target) if target else write_target(place / "target")
        named = [part for engine in engines for part in ("--engine", engine)]
        main(["lint", ref, "--target", on, *named, *options])
        return self.capsys.readouterr().out

    def report(self, config: Report, *options: str, target: Report | None = None) -> Report:
        return dict(json.loads(self.text(config, "--format", "json", *options, target=target)))

    def engines(self, config: Report, *options: str, target: Report | None = None) -> dict[Key, Report]:
        return keyed(self.report(config, *options, target=target))


def keyed(report: Report) -> dict[Key, Report]:
    return {(one["name"], one["version"], one["runner"]): one for one in report["engines"]}


@pytest.fixture
def story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Story:
    return Story(tmp_path, capsys)


def nested(*ids: int) -> Report:
    return {**KIMI_CONFIG, "eagle_config": {**KIMI_CONFIG["eagle_config"], NESTED: list(ids)}}


def top(*ids: int) -> Report:
    return {**{key: value for key, value in KIMI_CONFIG.items() if key != "eagle_config"}, NESTED: list(ids)}


def apart(engines: dict[Key, Report]) -> set[Key]:
    return {key for key, one in engines.items() if "boundaries" in one["differs"]}


# --- [2, 30, 58]


def test_as_written_the_ids_look_like_boundaries_and_only_the_old_release_departs(story: Story) -> None:
    report = story.report(nested(2, 30, 58))
    engines = keyed(report)
    assert report["aux_layers"]["boundaries"] == DEFAULT
    assert apart(engines) == {SGL_OLD}
    assert engines[SGL_OLD]["boundaries"] == MEANT
    assert "IDS-AMBIG" in {finding["code"] for finding in report["findings"]}


def test_read_as_outputs_every_engine_but_the_old_release_departs(story: Story) -> None:
    report = story.report(nested(2, 30, 58), "--reading", "output_of_layer")
    engines = keyed(report)
    assert report["aux_layers"]["boundaries"] == MEANT
    assert apart(engines) == set(engines) - {SGL_OLD}
    assert {tuple(engines[key]["boundaries"]) for key in apart(engines)} == {tuple(DEFAULT)}
    told = {
        (finding["evidence"]["engine"], finding["evidence"]["version"])
        for finding in report["findings"]
        if finding["code"] == "ENGINE-IDS"
    }
    assert told == {key[:2] for key in apart(engines)}


@pytest.mark.parametrize(
    ("key", "config"),
    [
        (SGL_NEW, {"eagle_config": {NESTED: MEANT}}),
        (SGL_NEWEST, {"eagle_config": {NESTED: MEANT}}),
        (V1, {NESTED: MEANT}),
        (V2, {NESTED: MEANT}),
    ],
)
def test_the_edit_mends_it(story: Story, key: Key, config: Report) -> None:
    before = story.engines(nested(2, 30, 58), "--reading", "output_of_layer")[key]
    edit = before["config"]
    assert {name: value for name, value in edit.items() if name != "drafter_audit"} == config
    assert edit["drafter_audit"] == {"boundaries": MEANT}  # ids that begin with 3 no longer tell what they mean
    after = story.engines(merged(nested(2, 30, 58), edit))[key]
    assert (after["boundaries"], after["differs"], after["config"]) == (MEANT, [], {})


def test_the_edit_for_the_new_release_is_wrong_for_the_old_one(story: Story) -> None:
    edit = story.engines(nested(2, 30, 58), "--reading", "output_of_layer")[SGL_NEW]["config"]
    assert story.engines(merged(nested(2, 30, 58), edit))[SGL_OLD]["boundaries"] == [4, 32, 60]


def test_tensorrt_llm_takes_layers_at_launch_alone(story: Story) -> None:
    engines = story.engines(nested(2, 30, 58), "--reading", "output_of_layer")
    (found,) = (one for key, one in engines.items() if key[0] == "tensorrt-llm")
    assert (found["config"], found["unmended"]) == ({}, ["boundaries"])
    assert found["launch"] == {"speculative_config": {"eagle3_layers_to_capture": [2, 30, 58]}}


def test_llama_cpp_reads_the_edit_and_still_cannot_serve_such_a_target(story: Story) -> None:
    engines = story.engines(nested(2, 30, 58), "--reading", "output_of_layer")
    (found,) = (one for key, one in engines.items() if key[0] == "llama.cpp")
    assert (found["loads"], found["config"][NESTED]) == (False, MEANT)
    assert "deepseek_v3" in found["refusals"][0]


# --- the embedding output


@pytest.mark.parametrize(
    "config", [nested(-1, 30, 58), top(-1, 30, 58), top(0, 31, 59)], ids=["nested", "top", "top 0"]
)
def test_a_tap_on_the_embedding_is_named_and_stands_as_0(story: Story, config: Report) -> None:
    report = story.report(config)
    assert report["aux_layers"]["boundaries"] == [0, 31, 59]
    (tap,) = (finding for finding in report["findings"] if finding["code"] == "IDS-EMBEDDING")
    assert "embedding output" in tap["what"]
    assert "boundaries: [0 (embedding output), 31, 59]" in story.text(config)


def test_engines_that_capture_the_embedding_name_it(story: Story) -> None:
    """DeepSeek-type targets of SGLang since 0.5.14, by id 0 of a list that does not begin with 1."""
    engines = story.engines(nested(0, 31, 59), "--reading", "boundary")
    assert engines[SGL_NEWEST]["boundaries"] == engines[SGL_NEWEST]["wiring"]["boundaries"] == [0, 31, 59]
    table = story.text(nested(0, 31, 59), "--reading", "boundary", engines=["sglang"])
    assert "[0 (embedding output), 31, 59]" in next(line for line in table.splitlines() if "0.5.23" in line)


def test_engines_that_cannot_capture_it_say_so(story: Story) -> None:
    engines = story.engines(nested(0, 31, 59), "--reading", "boundary")
    for key in (SGL_NEW, V1):
        assert engines[key]["loads"] is False
        assert "boundary 0, the embedding output," in " ".join(engines[key]["refusals"])
    report = story.report(nested(-1, 30, 58))
    notes = [finding["what"] for finding in report["findings"] if finding["code"] == "ENGINE-NOTE"]
    assert any(note.startswith("tensorrt-llm") and "embedding output" in note for note in notes)


def test_on_a_llama_target_every_engine_that_captures_it_shows_0(story: Story) -> None:
    """SGLang since 0.5.22, vLLM and llama.cpp; -1 is mended to 0 where ids are boundaries."""
    engines = story.engines(nested(-1, 15, 28), target=LLAMA_TARGET)
    assert engines[SGL_NEWEST]["boundaries"] == [0, 16, 29]
    assert engines[SGL_NEW]["loads"] is False
    for key in (V1, V2, ("llama.cpp", "11312", None)):
        edited = merged(nested(-1, 15, 28), engines[key]["config"])
        after = story.engines(edited, target=LLAMA_TARGET)[key]
        assert (after["boundaries"], after["loads"], after["differs"]) == ([0, 16, 29], True, [])


def test_speculators_format_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Boundaries 0, 3 and 5 of a target of 6 layers, as that format writes them."""
    config, tensors, metadata = read_peer("speculators_eagle3")
    ref = write_checkpoint(tmp_path / "drafter", {**config, NESTED: [0, 3, 5]}, tensors, metadata)
    target = write_peer(tmp_path / "target", "tiny_llama")
    arguments = ["lint", ref, "--target", target, "--engine", "vllm@0.33.0", "--engine", "llama.cpp"]
    main(arguments)
    assert capsys.readouterr().out.count("[0 (embedding output), 3, 5]") >= 4  # declared, and in three rows
    main([*arguments, "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    assert report["aux_layers"]["boundaries"] == [0, 3, 5]
    assert {tuple(one["boundaries"]) for one in report["engines"]} == {(0, 3, 5)}


def test_compare_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write_target(tmp_path / "target")
    ours = write_checkpoint(tmp_path / "ours", nested(-1, 30, 58), kimi_tensors())
    theirs = write_checkpoint(tmp_path / "theirs", nested(1, 29, 57), kimi_tensors())
    main(["compare", ours, theirs, "--target", target])
    assert "[0 (embedding output), 31, 59]" in capsys.readouterr().out
    main(["compare", ours, theirs, "--target", target, "--format", "json"])
    first = json.loads(capsys.readouterr().out)["drafters"][0]
    assert first["aux_layers"]["boundaries"] == [0, 31, 59]
