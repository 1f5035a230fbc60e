"""vLLM itself, on a CPU: what `bench`, `sweep` and `wiring` say of its server is what its own counters were, kept
beside, and what the reference loop counts. The environment: engines_run/README.md. `make test-engines` runs it.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.bench.launching import free_port, wait_until_healthy
from drafter_audit.cli.main import main
from drafter_audit.process import running
from tests.engines_run.figures import keep
from tests.engines_run.marks import REAL_VLLM
from tests.engines_run.vllm_counters import SETTINGS
from tests.engines_run.vllm_pair import DRAFTER, ENGINE, KEPT, MAX_NEW_TOKENS, STEPS, TARGET

pytestmark = REAL_VLLM

RECORD: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
REQUESTS: list[dict[str, Any]] = RECORD["as_saved"]["requests"]
MENDED: list[dict[str, Any]] = RECORD["mended"]["requests"]
ARGS = "--dtype float32 --enforce-eager --max-num-seqs 1 --no-enable-prefix-caching"
WRONG_IDS = [3, 7, 10]  # it was trained with boundaries 2, 6, 9
# Its own process for the engine, as users have it; nothing of this project on its path.
VARIABLES = {**SETTINGS, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "PYTHONPATH": ""}
ALL_EQUAL = {"paired": 16, "same_text": 16, "same": 16}


def prompt_file(folder: Path) -> str:
    path = folder / "prompts.jsonl"
    rows = [{"id": each["id"], "token_ids": each["prompt"]} for each in REQUESTS]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same prompts, recorded by transformers."""
    folder = tmp_path_factory.mktemp("vllm")
    made = ("--max-new-tokens", str(MAX_NEW_TOKENS), "--boundaries", "all", "-o", str(folder / "recording"))
    assert main(["record", "tiny", "--target", "tiny-target", "--prompts", prompt_file(folder), *made]) == 0
    return str(folder / "recording")


def started(command: str, *more: str) -> list[str]:
    """The words of a command that starts servers."""
    engine = ("--engine", "vllm", "--engine-python", os.environ["VLLM_PYTHON"], "--format", "json")
    env = (word for name, value in VARIABLES.items() for word in ("--env", f"{name}={value}"))
    return [command, "tiny", "--target", "tiny-target", *engine, *env, *more]


@contextmanager
def serving(drafter: Path, folder: Path) -> Iterator[str]:
    """The URL of a server that somebody started by hand."""
    port = free_port()
    drafting = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": STEPS}
    command = [
        *(os.environ["VLLM_PYTHON"], "-m", "vllm.entrypoints.openai.api_server", "--model", str(TARGET)),
        *("--port", str(port), "--speculative-config", json.dumps(drafting), *ARGS.split()),
    ]
    with running(command, folder / "server.log", VARIABLES) as server:
        wait_until_healthy(server, lambda: answers(port), 300, lambda *_: None)
        yield f"http://127.0.0.1:{port}"


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
    except OSError:
        return False
    return True


def told(capsys: pytest.CaptureFixture[str], words: list[str], code: int) -> dict[str, Any]:
    found = main(words)
    printed = capsys.readouterr()
    assert found == code, printed.err
    result: dict[str, Any] = json.loads(printed.out)
    return result


def attached(drafter: Path, url: str, recording: str, *more: str) -> list[str]:
    asked = ("--target", str(TARGET), "--engine", "vllm", "--url", url, "--reference", recording, "--format", "json")
    return ["bench", str(drafter), *asked, *more]


def per_request(result: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    return {each["id"]: (each["rounds"], each["accepted"], each["tokens"]) for each in result["per_prompt"]}


def as_kept(requests: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    return {each["id"]: (each["drafts"], each["accepted"], len(each["tokens"])) for each in requests}


def accept_len(requests: list[dict[str, Any]]) -> float:
    return 1 + sum(each["accepted"] for each in requests) / sum(each["drafts"] for each in requests)


def with_config(folder: Path, **keys: object) -> Path:
    """The drafter with another config.json."""
    folder.mkdir()
    config = json.loads((DRAFTER / "config.json").read_text(encoding="utf-8"))
    del config["eagle_config"]
    (folder / "config.json").write_text(json.dumps({**config, **keys}))
    (folder / "model.safetensors").symlink_to(DRAFTER / "model.safetensors")
    return folder


def test_launched_as_saved_it_loses_by_the_wiring_that_it_claims(recording, tmp_path, capsys) -> None:
    """Its counts are those kept, request by request and by position; the reference so wired counts the very same."""
    launch = ("--launch", "--logs", str(tmp_path), "--steps", str(STEPS), "--engine-args", ARGS)
    result = told(capsys, started("bench", *launch, "--reference", recording), 1)
    keep("launched, config as saved", result)
    assert per_request(result) == as_kept(REQUESTS)
    assert result["per_position_counts"] == [sum(each["per_position"][i] for each in REQUESTS) for i in range(STEPS)]
    assert result["engine"]["not_verified"] == []
    found = result["reference"]
    assert (result["verdict"], found["differs"], found["release"]) == ("engine", ["boundaries"], f"{ENGINE} (v1)")
    assert (found["difference"], found["requests"]) == (0, ALL_EQUAL)
    assert found["claim_cost"] == pytest.approx(accept_len(REQUESTS) - accept_len(MENDED))


def test_launched_with_counts_of_each_request(tmp_path, capsys) -> None:
    launch = ("--launch", "--logs", str(tmp_path), "--steps", str(STEPS), "--prompts", prompt_file(tmp_path))
    args = f"{ARGS} --per-request-spec-decode-metrics summary"
    more = ("--max-new-tokens", str(MAX_NEW_TOKENS), "--engine-args", args)
    assert per_request(told(capsys, started("bench", *launch, *more), 0)) == as_kept(REQUESTS)


def test_attached_and_mended_it_equals_the_reference(recording, tmp_path, capsys) -> None:
    """To the token, and in every request's rounds."""
    lint = ("--engine", ENGINE, "--write-config", str(tmp_path / "mended"), "--fail-on", "never", "-o", os.devnull)
    assert main(["lint", str(DRAFTER), "--target", str(TARGET), *lint]) == 0
    with serving(tmp_path / "mended", tmp_path) as url:
        result = told(capsys, attached(tmp_path / "mended", url, recording), 0)
    keep("attached, config as `lint --write-config` mends it", result)
    found = result["reference"]
    assert per_request(result) == as_kept(MENDED)
    assert (result["verdict"], found["differs"], found["opens_at"]) == ("healthy", [], None)
    assert (found["difference"], found["requests"]) == (0, ALL_EQUAL)


def test_a_wrong_id_list_is_found(recording, tmp_path, capsys) -> None:
    """Served on purpose: the engine does what it says with it, so the drafter's config is at fault, and `wiring` finds
    the list. Served in the place of another, it is a gap of the engine's from the first draft on."""
    wrong = with_config(tmp_path / "wrong", eagle_aux_hidden_state_layer_ids=WRONG_IDS)
    right = with_config(tmp_path / "right", eagle_aux_hidden_state_layer_ids=[2, 6, 9])
    with serving(wrong, tmp_path) as url:
        honest = told(capsys, attached(wrong, url, recording), 0)
        swapped = told(capsys, attached(right, url, recording, "--served-drafter", str(wrong)), 1)
    keep("attached, a wrong id list", honest)
    keep("attached, the wrong list served in the place of the right one", swapped)
    assert (honest["verdict"], honest["reference"]["requests"]) == ("healthy", ALL_EQUAL)
    opens = swapped["reference"]["opens_at"]
    assert (swapped["verdict"], swapped["reference"]["differs"], opens["position"]) == ("engine", [], 0)
    assert opens["round"] is not None
    reached = honest["accept_len"]
    judged = ("--recording", recording, "--engine", ENGINE, "--engine-accept-len", str(reached), "--format", "json")
    result = told(capsys, ["wiring", str(wrong), "--target", str(TARGET), *judged], 1)
    assert result["verdict"] == "miswired"
    assert [(fault["knob"], fault["to"]) for fault in result["faults"]] == [("boundaries", [2, 6, 9])]
    claim = result["engines"][0]
    assert (claim["boundaries"], claim["below"]) == (WRONG_IDS, False)
    assert claim["accept_len"] == pytest.approx(reached)


def test_a_sweep_over_its_servers(recording, tmp_path, capsys) -> None:
    """Plain, and 1 to 5 steps; every step count accepts what the replay, so wired, does."""
    out = ("--out", str(tmp_path / "night"), "--steps", "1-5", "--engine-args", ARGS, "--prompts")
    more = (prompt_file(tmp_path), "--max-new-tokens", str(MAX_NEW_TOKENS))
    result = told(capsys, started("sweep", *out, *more), 0)
    keep("swept, config as saved", result)
    assert [row["status"] for row in (*result["plain"], *result["rows"])] == ["done"] * 6
    rounds, accepted = (sum(each[name] for each in REQUESTS) for name in ("drafts", "accepted"))
    assert (result["rows"][STEPS - 1]["rounds"], result["rows"][STEPS - 1]["accepted"]) == (rounds, accepted)
    taken = {"eagle_aux_hidden_state_layer_ids": [1, 5, 8], "drafter_audit": {"boundaries": [1, 5, 8]}}
    one_off = with_config(tmp_path / "one-off", **taken)
    replay = ["sweep", str(one_off), "--target", str(TARGET), "--recording", recording, "--steps", "1-5"]
    known = told(capsys, [*replay, "--format", "json"], 0)
    names = ("steps", "rounds", "accepted")
    assert [[row[name] for name in names] for row in result["rows"]] == [
        [row[name] for name in names] for row in known["rows"]
    ]
    assert result["break_even_accept_len"] > 0
