"""`lint --write-config`: the config that one engine needs, all else linked, and the way back."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.lint import lint
from drafter_audit.cli.main import main
from drafter_audit.drafter.open import open_drafter
from tests.checkpoints import KIMI_CONFIG, kimi_tensors, write_checkpoint
from tests.findings.engines import NESTED, write_target
from tests.hub import Hub

ENGINE = "llama.cpp"  # reads layer ids at the top level only, as boundaries
GGUF = Path(__file__).parent / "data" / "gguf" / "drafter.gguf"
IDS = [1, 9, 57]  # outputs of layers: boundaries 2, 10 and 58
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "vocab_size": 163840,
    "num_attention_heads": 64,
}


@pytest.fixture
def target(tmp_path: Path) -> str:
    return write_target(tmp_path / "target", LLAMA)


@pytest.fixture
def ours(tmp_path: Path) -> str:
    config = {**KIMI_CONFIG, "eagle_config": {**KIMI_CONFIG["eagle_config"], NESTED: IDS}}
    ref = write_checkpoint(tmp_path / "ours", config, kimi_tensors())
    (tmp_path / "ours" / "extra").mkdir()
    (tmp_path / "ours" / "extra" / "notes.txt").write_text("kept")
    return ref


def write(target: str, ref: str, folder: Path, *more: str, engine: str = ENGINE) -> int:
    return main(["lint", ref, "--target", target, "--engine", engine, "--write-config", str(folder), "--fail-on",
                 "never", *more])  # fmt: skip


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def test_the_round_trip_leaves_no_difference(ours: str, target: str, tmp_path: Path) -> None:
    before = lint(ours, target=target, engines=[ENGINE], level="target_config")
    assert [difference.knob for difference in before.engines[0].differs] == ["boundaries"]
    assert write(target, ours, tmp_path / "out") == 0
    after = lint(str(tmp_path / "out"), target=target, engines=[ENGINE], level="target_config")
    assert after.engines[0].differs == ()
    assert after.engines[0].boundaries == after.spec.aux_layers.boundaries == (2, 10, 58)


def test_the_note_says_what_the_ids_stand_for(ours: str, target: str, tmp_path: Path) -> None:
    write(target, ours, tmp_path / "out")
    note = config_of(tmp_path / "out")["drafter_audit"]
    assert note["boundaries"] == [2, 10, 58]
    assert note["written_for"].startswith("llama.cpp@")
    assert open_drafter(str(tmp_path / "out")).aux_layers.confidence == "high"


def test_the_note_holds_for_other_commands(
    ours: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The edited drafter is the same drafter: links are followed, and nothing differs in meaning."""
    out = str(tmp_path / "out")
    write(target, ours, tmp_path / "out")
    capsys.readouterr()
    assert main(["compare", ours, out, "--target", target, "--exit-code"]) == 0
    assert main(["params", out, "--format", "json"]) == 0
    told = capsys.readouterr().out
    stored = json.loads(told[told.index("{") :])["drafters"][0]["parameters"]["stored"]
    assert stored == open_drafter(ours).parameters.stored


def test_all_else_is_a_link_to_the_file_itself(ours: str, target: str, tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / "b1"  # the Hub's cache holds links to blobs
    blob.parent.mkdir()
    os.rename(Path(ours) / "model.safetensors", blob)
    (Path(ours) / "model.safetensors").symlink_to(blob)
    write(target, ours, tmp_path / "out")
    entries = {entry.name: entry for entry in (tmp_path / "out").iterdir()}
    assert sorted(entries) == ["config.json", "config.json.diff", "extra", "model.safetensors"]
    assert os.readlink(entries["model.safetensors"]) == str(blob.resolve())
    assert os.readlink(entries["extra"]) == str((Path(ours) / "extra").resolve())
    assert (entries["extra"] / "notes.txt").read_text() == "kept"
    assert not entries["config.json"].is_symlink()
    assert "drafter_audit" not in config_of(Path(ours))


def test_the_diff_is_printed_and_kept(
    ours: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(ours) / "config.json").write_text(json.dumps(config_of(Path(ours)), indent=4) + "\n")
    write(target, ours, tmp_path / "out")
    diff = (tmp_path / "out" / "config.json.diff").read_text()
    assert diff in capsys.readouterr().out
    changed = [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert any(NESTED in line for line in changed)
    assert not any("hidden_size" in line for line in changed)  # the layout is kept: only what changed is shown


def test_json_holds_the_diff(ours: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(target, ours, tmp_path / "out", "--format", "json")
    written = json.loads(capsys.readouterr().out)["written"]
    assert written["diff"] == (tmp_path / "out" / "config.json.diff").read_text()
    assert written["folder"] == str(tmp_path / "out")


def test_nothing_to_mend_is_said_and_written_as_it_is(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eagle = {"use_aux_hidden_state": True}
    ref = write_checkpoint(tmp_path / "d", {**KIMI_CONFIG, "eagle_config": eagle, NESTED: [2, 30, 58]}, kimi_tensors())
    write(target, ref, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").read_bytes() == (tmp_path / "d" / "config.json").read_bytes()
    assert (tmp_path / "out" / "config.json.diff").read_text() == ""
    assert "no edit gains anything" in " ".join(capsys.readouterr().out.split())


def test_what_no_edit_mends_is_told(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ref = write_checkpoint(tmp_path / "d", {**KIMI_CONFIG, "norm_output": True}, kimi_tensors())
    write(target, ref, tmp_path / "out")
    assert "No edit mends feedback under llama.cpp" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--write-config", "OURS"], "the drafter's own folder"),
        (["--write-config", "OURS/inside"], "the drafter's own folder"),
        (["--write-config", "FULL"], "not empty"),
        (["--write-config", "FULL/file"], "no folder"),
        (["--write-config", "OUT", "--engine", "sglang"], "one engine release"),
        (["--write-config", "OUT", "--engine", "all"], "one engine release"),
    ],
)
def test_usage(
    ours: str, target: str, tmp_path: Path, change: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    places = {"OURS": ours, "FULL": str(tmp_path / "full"), "OUT": str(tmp_path / "out")}
    for name, path in places.items():
        change = [word.replace(name, path) for word in change]
    before = sorted(Path(ours).iterdir())
    assert main(["lint", ours, "--engine", ENGINE, *change]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert not (tmp_path / "out").exists()
    assert sorted(Path(ours).iterdir()) == before


def test_an_engine_must_be_named(ours: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", ours, "--write-config", str(tmp_path / "out")]) == 2
    assert "--engine" in capsys.readouterr().err


def test_a_hub_drafter_must_be_downloaded(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add_repo("org/drafter", files={"config.json": json.dumps(KIMI_CONFIG).encode()})
    assert main(["lint", "org/drafter", "--engine", ENGINE, "--write-config", str(tmp_path / "out")]) == 2
    assert "hf download org/drafter" in capsys.readouterr().err


def test_what_the_user_says_of_the_ids_is_kept_where_nothing_else_changes(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the note a second run would read them the other way."""
    ref = write_checkpoint(tmp_path / "d", {**KIMI_CONFIG, "eagle_config": {NESTED: [2, 30, 58]}}, kimi_tensors())
    write(target, ref, tmp_path / "out", "--reading", "output_of_layer", engine="sglang@0.5.3")
    assert config_of(tmp_path / "out")["drafter_audit"] == {"boundaries": [3, 31, 59]}
    assert "a note of what its layer ids mean" in " ".join(capsys.readouterr().out.split())


def test_one_line_is_spread_before_it_is_set_against_the_new_one(ours: str, target: str, tmp_path: Path) -> None:
    assert (Path(ours) / "config.json").read_text().count("\n") == 0
    write(target, ours, tmp_path / "out")
    diff = (tmp_path / "out" / "config.json.diff").read_text().splitlines()
    changed = [line for line in diff if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert not any("hidden_size" in line for line in changed)
    assert all(len(line) < 80 for line in diff)
    assert (tmp_path / "out" / "config.json").read_text().startswith('{\n  "')


def test_hidden_files_are_left_out(ours: str, target: str, tmp_path: Path) -> None:
    """A linked .git would make git take the new folder for the drafter's own work tree."""
    (Path(ours) / ".git").mkdir()
    (Path(ours) / ".gitattributes").write_text("*.safetensors filter=lfs")
    write(target, ours, tmp_path / "out")
    assert not [entry.name for entry in (tmp_path / "out").iterdir() if entry.name.startswith(".")]


@pytest.mark.parametrize("made", [True, False])
def test_a_report_that_cannot_be_written_leaves_no_folder(ours: str, target: str, tmp_path: Path, made: bool) -> None:
    """Else the same command, mended, would be refused: the folder is not empty."""
    out = tmp_path / "deep" / "out"
    if made:
        out.mkdir(parents=True)
    assert write(target, ours, out, "-o", str(tmp_path / "nowhere" / "report")) == 2
    assert list(out.iterdir()) == [] if made else not (tmp_path / "deep").exists()
    assert (Path(ours) / "model.safetensors").is_file()
    assert (Path(ours) / "extra" / "notes.txt").read_text() == "kept"
    assert write(target, ours, out, "-o", str(tmp_path / "report")) == 0


def test_a_report_never_goes_through_a_link(ours: str, target: str, tmp_path: Path) -> None:
    before = (Path(ours) / "extra" / "notes.txt").read_bytes()
    assert write(target, ours, tmp_path / "out", "-o", str(tmp_path / "out" / "extra" / "notes.txt")) == 2
    assert (Path(ours) / "extra" / "notes.txt").read_bytes() == before
    assert not (tmp_path / "out").exists()


def test_a_linked_project_file_still_finds_its_target(ours: str, target: str, tmp_path: Path) -> None:
    """A path in it is relative to where it lies, which is not where the link does."""
    (Path(ours) / "drafter-audit.toml").write_text('[[drafter]]\ntarget = "../target"\n')
    out = tmp_path / "far" / "away"
    assert main(["lint", ours, "--engine", ENGINE, "--write-config", str(out), "--fail-on", "never"]) == 0
    assert lint(str(out)).spec.target.num_layers == 61


def test_unknown_boundaries_are_not_called_right(ours: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(ours) / "config.json").write_text(json.dumps({**KIMI_CONFIG, "eagle_config": {}}))
    command = ["lint", ours, "--engine", "sglang@0.5.23", "--write-config", str(tmp_path / "out")]
    assert main([*command, "--fail-on", "never"]) == 0
    assert "may still differ" in " ".join(capsys.readouterr().out.split())


def test_a_gguf_has_no_config_to_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "g").mkdir()
    shutil.copy(GGUF, tmp_path / "g" / "drafter.gguf")
    assert main(["lint", str(tmp_path / "g"), "--engine", ENGINE, "--write-config", str(tmp_path / "out")]) == 2
    assert "no config.json to mend" in capsys.readouterr().err


def test_a_lone_weight_file_means_its_folder(ours: str, target: str, tmp_path: Path) -> None:
    assert write(target, f"{ours}/model.safetensors", tmp_path / "out") == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["config.json", "config.json.diff", "extra", "model.safetensors"]


def test_a_linked_config_is_replaced_by_a_file(ours: str, target: str, tmp_path: Path) -> None:
    """As in the Hub's cache: the blob behind the link must not change."""
    blob = tmp_path / "blob"
    os.rename(Path(ours) / "config.json", blob)
    (Path(ours) / "config.json").symlink_to(blob)
    before = blob.read_bytes()
    assert write(target, ours, tmp_path / "out") == 0
    assert blob.read_bytes() == before
    assert not (tmp_path / "out" / "config.json").is_symlink()


def test_an_empty_folder_will_do(ours: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert write(target, ours, tmp_path / "out") == 0
    assert (tmp_path / "out" / "config.json").is_file()


@pytest.mark.parametrize("engine", ["vllm@0.33.0", "sglang@0.5.23", "sglang@0.5.11"])
@pytest.mark.parametrize("ids", [[1, 29, 57], [1, 9, 57], [3, 30, 58]])
def test_the_round_trip_under_other_engines(tmp_path: Path, engine: str, ids: list[int]) -> None:
    """Ids that mean outputs of layers on Kimi's target: both runners of vLLM, and SGLang before and after its rule."""
    config = {**KIMI_CONFIG, "eagle_config": {NESTED: ids}}
    ref = write_checkpoint(tmp_path / "d", config, kimi_tensors())
    target, out = write_target(tmp_path / "t"), str(tmp_path / "out")
    command = ["lint", ref, "--target", target, "--engine", engine, "--reading", "output_of_layer"]
    assert main([*command, "--write-config", out, "--fail-on", "never"]) == 0
    after = lint(out, target=target, engines=[engine], level="target_config")
    assert after.spec.aux_layers.boundaries == tuple(i + 1 for i in ids)
    assert {served.boundaries for served in after.engines} == {tuple(i + 1 for i in ids)}
    assert [served.differs for served in after.engines] == [()] * len(after.engines)
    assert not [finding for finding in after.findings if finding.code in ("ENGINE-IDS", "ENGINE-LOAD")]
