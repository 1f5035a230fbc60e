"""The options with which commands load a target, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from drafter_audit.cli.commands import every_command
from drafter_audit.cli.target_options import TargetOptions, runs_target, target_options
from drafter_audit.errors import UsageError
from tests.tiny_targets import write_family


@click.command()
@click.option("--recording")
@target_options
@click.pass_context
def probe(context: click.Context, recording: str | None, target: TargetOptions) -> None:
    """Hands on what it was given."""
    context.obj.append(target)


def given(*arguments: str) -> TargetOptions:
    found: list[TargetOptions] = []
    done = CliRunner().invoke(probe, list(arguments), obj=found, standalone_mode=False)
    if done.exception:
        raise done.exception
    return found[0]


def test_what_is_not_given_is_left_to_the_loader() -> None:
    assert given() == TargetOptions(
        ref=None, dtype=None, device_map=None, offload_folder=None, trust_remote_code=False, rank_timeout=1800.0
    )


def test_every_option_reaches_the_loader(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path / "target")
    (tmp_path / "map.json").write_text(json.dumps({"model": "cpu", "lm_head": "disk"}))
    options = given(
        *("--target", ref, "--dtype", "bfloat16", "--device-map", str(tmp_path / "map.json")),
        *("--offload-folder", str(tmp_path / "offload"), "--trust-remote-code"),
    )
    assert options.trust_remote_code
    target = options.load("another/target")
    assert (target.ref, target.dtype) == (ref, "bfloat16")
    assert target.model.lm_head.weight.device.type == "meta"


def test_a_target_that_is_not_named_is_the_declared_one(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    assert given("--device-map", "cpu").load(ref).ref == ref
    with pytest.raises(UsageError, match="no target is named, --target, name the target's repository or folder"):
        given().load()
    with pytest.raises(UsageError, match="no target is named"):
        given("--target", "").load()


@pytest.mark.parametrize("written", [None, "", "[]", "{}", '"auto"', '{"model": null}', '{"model": [0]}', "\ud800"])
def test_a_file_that_is_no_device_map(written: str | None, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    if written is not None:
        path.write_bytes(written.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match="no device map"):
        given("--device-map", str(path))


def test_only_a_rank_among_others_is_told_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="one process waits for no other rank, --rank-timeout, start it as torchrun"):
        given("--rank-timeout", "5")
    for name, value in {"TORCHELASTIC_RUN_ID": "one", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert given("--rank-timeout", "5").rank_timeout == 5.0


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan"])
def test_a_rank_waits_for_some_time(seconds: str) -> None:
    with pytest.raises(click.BadParameter):
        given("--rank-timeout", seconds)


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [((), True), (("--recording", "rec"), False), (("--recording=rec",), False), (("--target", "recording"), True)],
)
def test_a_command_with_these_options_runs_a_target_unless_it_reads_a_recording(
    arguments: tuple[str, ...], runs: bool
) -> None:
    assert runs_target(probe, arguments) == runs


def test_commands_on_files_run_no_target() -> None:
    assert not any(runs_target(every_command()[name], ()) for name in ("compare", "lint", "models", "params"))
    assert not runs_target(None, ())
