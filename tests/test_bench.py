"""`bench` over real HTTP, on stand-ins of SGLang and vLLM that are processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.bench.believe import Expected, check, same_model
from drafter_audit.bench.counting import counted
from drafter_audit.bench.metrics import Counters
from drafter_audit.bench.names import wire_of
from drafter_audit.bench.wire import Answer, Counts, Served, Start, Told
from drafter_audit.cli.main import main
from drafter_audit.errors import ServerError
from drafter_audit.measure.shape import shape_of
from tests.engine_servers import (
    DRAFTER,
    PROMPTS,
    TARGET,
    WARM_UP,
    engine_python,
    expected,
    launch,
    prompt_file,
    serving,
)


def run(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict[str, Any]:
    code = main(words)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    told: dict[str, Any] = json.loads(printed.out)
    return told


def refused(capsys: pytest.CaptureFixture[str], words: list[str], code: int = 3) -> str:
    assert main(words) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1
    return lines[0]


def attach(folder: Path, engine: str, url: str, *more: str) -> list[str]:
    way = ("--engine", engine, "--url", url, "--prompts", prompt_file(folder), "--format", "json")
    return ["bench", "tiny", "--target", "tiny-target", *way, *more]


# --- what is counted


WHOLE = {"rounds", "accepted", "histogram", "tokens"}
BY_RELEASE = [
    *[("sglang", {"release": release}, (), False, WHOLE) for release in ("0.5.12", "0.5.16", "0.5.23")],
    ("sglang", {"release": "0.5.8"}, (), False, WHOLE - {"histogram"}),
    ("sglang", {"release": "0.5.23"}, (), True, WHOLE),
    ("vllm", {}, (), False, WHOLE),
    ("vllm", {}, ("--engine-args", "--data-parallel-size 2"), True, WHOLE),
    ("vllm", {}, ("--engine-args", "--per-request-spec-decode-metrics summary"), False, WHOLE),
]


@pytest.mark.parametrize(("engine", "plan", "more", "chat", "told"), BY_RELEASE)
def test_the_counts_are_those_of_the_run(engine, plan, more, chat, told, tmp_path, capsys) -> None:
    """Counted by the stand-in itself, in the fields that this engine and release have."""
    found = run(capsys, launch(tmp_path, engine, plan, *more, chat=chat))
    right = expected(plan, 3)
    assert {name: found[name] for name in told} == {name: right[name] for name in told}
    assert [name for name in WHOLE - told if found[name] is not None] == []
    assert found["accept_len"] == 1 + right["accepted"] / right["rounds"]
    assert found["drafted"] == 3 * right["rounds"]
    assert found["mode"] == "engine"
    low, high = found["accept_len_interval"]
    assert low <= found["accept_len"] <= high
    assert found["definition"] == "1 + A/S"
    loops_unknown = ["3 of 3 answers came without token ids: loops were not looked for"]
    assert found["notes"] == (loops_unknown if chat and engine == "sglang" else [])


@pytest.mark.parametrize(
    ("plan", "more", "chat"),
    [
        ({"release": "0.5.3"}, (), False),
        ({"release": "0.5.8"}, ("--engine-args", "--enable-metrics"), True),
    ],
    ids=["spec_verify_ct alone", "chat, by /metrics"],
)
def test_where_only_rounds_and_tokens_are_told_the_result_says_so(plan, more, chat, tmp_path, capsys) -> None:
    found, right = run(capsys, launch(tmp_path, "sglang", plan, *more, chat=chat)), expected(plan, 3)
    assert (found["rounds"], found["tokens"]) == (right["rounds"], right["tokens"])
    assert (found["accept_len"], found["accepted"]) == (None, None)
    assert found["definition"].startswith("N/S")
    assert found["accept_len_server"] == right["tokens"] / right["rounds"]
    low, high = found["accept_len_bounds"]
    assert low <= 1 + right["accepted"] / right["rounds"] <= high


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_answers_that_come_whole_are_counted_and_have_no_speed(engine, tmp_path, capsys) -> None:
    with serving(engine, {"whole": True}) as url:
        told = run(capsys, attach(tmp_path, engine, url))
    right = expected({}, 3)
    assert {name: told[name] for name in ("rounds", "accepted", "tokens")} == {
        name: right[name] for name in ("rounds", "accepted", "tokens")
    }
    assert (told["tokens_per_s"], told["tokens_per_s_interval"], told["cycle_s"]) == (None, None, None)
    assert any("answers came whole" in note for note in told["notes"])


def test_what_a_server_counted_before_is_not_reported(tmp_path, capsys) -> None:
    """Nor SGLang's average over its life, which the stand-in says is 9.9."""
    with serving("vllm", {}) as url:
        for _ in range(2):
            body = json.dumps({"model": "served", "prompt": PROMPTS[0], "max_tokens": WARM_UP}).encode()
            urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body)).read()
        found = run(capsys, attach(tmp_path, "vllm", url))
    right = expected({}, 3, earlier=2)
    assert {name: found[name] for name in WHOLE} == right


def test_a_capped_answer_counts_its_last_round_whole(tmp_path, capsys) -> None:
    plan = {"length": 0}
    assert main(launch(tmp_path, "sglang", plan, "--max-new-tokens", "10")) == 3  # all hit the cap: shown, unmeasured
    found = json.loads(capsys.readouterr().out)
    right = expected(plan, 3, cap=10)
    assert (found["rounds"], found["accepted"], found["tokens"]) == (right["rounds"], right["accepted"], 30)
    assert found["overshoot"] == 3 + right["accepted"] + right["rounds"] - 30
    assert found["stop"] == {"eos": 0, "cap": 3}


def test_speed_is_that_of_decoding_after_the_first_token(tmp_path, capsys) -> None:
    plan = {"verify_ms": 12.0, "draft_ms": 1.0}
    found, right = run(capsys, launch(tmp_path, "sglang", plan, "--what-if", "3")), expected(plan, 3)
    assert 0.0148 < found["cycle_s"] < 0.02  # a busy machine is late, never early
    timed = right["tokens"] - len(PROMPTS)
    assert found["tokens_per_s"] == pytest.approx(timed / (found["cycle_s"] * right["rounds"]))
    assert found["what_if"][0]["tokens_per_s"] == pytest.approx(3 * found["tokens_per_s"] / found["accept_len"])


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_engine_is_told_with_its_arguments_and_variables(engine, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("KEY_OF_OURS", "secret")
    env = {"NCCL_PROTO": "LL", "SGLANG_API_KEY": "secret", "SGLANG_EXPOSE_OWN_ENV_VARS": "1"}
    with serving(engine, {}, "--api-key", "secret", **env) as url:
        found = run(capsys, attach(tmp_path, engine, url, "--api-key-env", "KEY_OF_OURS"))["engine"]
    assert (found["name"], found["launched"], found["url"]) == (engine, False, url)
    assert found["version"] == {"sglang": "0.5.23", "vllm": "0.32.0"}[engine]
    assert DRAFTER in " ".join(found["args"])
    assert found["env"]["NCCL_PROTO"] == "LL"
    assert "secret" not in str(found)
    # vLLM says so only with VLLM_SERVER_DEV_MODE: its command line does
    assert found["not_verified"] == []


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_server_that_asks_for_a_key(engine, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("KEY_OF_OURS", "another")
    with serving(engine, {}, "--api-key", "secret") as url:
        said = [
            refused(capsys, attach(tmp_path, engine, url, *more)) for more in ((), ("--api-key-env", "KEY_OF_OURS"))
        ]
    for line in said:
        assert "it answers 401" in line
        assert "--api-key-env" in line


def test_what_a_key_is_given_for_is_not_told(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("KEY_OF_OURS", "secret")
    more = ("--engine-args", "--api-key secret", "--env", "HF_TOKEN=secret", "--api-key-env", "KEY_OF_OURS")
    told = run(capsys, launch(tmp_path, "vllm", {}, *more))
    assert "secret" not in str(told)
    assert told["command"][-5:] == ["--api-key '***'", "--env", "HF_TOKEN=***", "--api-key-env", "KEY_OF_OURS"]


def test_every_format_shows_the_figure(tmp_path, capsys) -> None:
    with serving("sglang", {}) as url:
        for style in ("table", "markdown", "csv"):
            assert main([*attach(tmp_path, "sglang", url, "--max-new-tokens", "64"), "--format", style]) == 0
            told = capsys.readouterr().out
            assert "sglang" in told
            assert re.search(r"\b2\.[0-4]\d", told)  # 1 + 0.75 + 0.35 + 0.04, of few rounds


# --- what is refused

_BLOCK = "--per-request-spec-decode-metrics summary"

WRONG_AT_START = [
    ("sglang", {}, ("--env", "SGLANG_SIMULATE_ACC_LEN=2.5"), "simulated: SGLANG_SIMULATE_ACC_LEN is 2.5"),
    (
        "vllm",
        {},
        ("--engine-args", '--speculative-config \'{"rejection_sample_method": "synthetic"}\''),
        "rejection_sample_method is synthetic",
    ),
    ("sglang", {"claims": {"speculative_draft_model_path": "/x/theirs"}}, (), "it drafts with /x/theirs, not"),
    ("sglang", {"claims": {"model_path": "org/other"}}, (), "it serves org/other, not"),
    ("sglang", {"claims": {"decode": [{"model_path": "org/decoder"}]}}, (), "it serves org/decoder"),  # a router
    ("sglang", {"claims": {"speculative_algorithm": None}}, (), "speculation is off"),
    ("sglang", {"claims": {"speculative_draft_model_path": None, "speculative_algorithm": "NGRAM"}}, (), "with NGRAM"),
    ("sglang", {"claims": {"speculative_num_steps": 5}}, (), "it runs 5 steps, not 3"),
    ("sglang", {"bad_counts": True}, (), "its counts contradict each other"),
    ("sglang", {"release": "0.5.8"}, ("chat",), "--enable-metrics"),
    ("vllm", {"reset_after": 2}, (), "a counter went backwards"),
    ("vllm", {"stray_tokens": 5}, (), "somebody else uses it"),
    ("vllm", {"stray_tokens": 5}, ("--engine-args", _BLOCK), "somebody else uses it"),
    ("vllm", {"without": ["num_spec_steps"]}, ("--engine-args", _BLOCK), "a metric is missing: 'num_spec_steps'"),
    ("vllm", {"finish": "abort"}, (), "gave up the answer to 'p0': abort"),
    ("sglang", {"finish": "abort"}, (), "gave up the answer to 'p0': abort"),
    *[
        ("vllm", {"without": [name]}, (), f"a metric is missing: {name},")
        for name in (
            "vllm:generation_tokens",
            "vllm:spec_decode_num_drafts",
            "vllm:spec_decode_num_draft_tokens",
            "vllm:spec_decode_num_accepted_tokens",
            "vllm:spec_decode_num_accepted_tokens_per_pos",
        )
    ],
    ("vllm", {}, ("--engine-args", "--disable-log-stats"), "a metric is missing"),
    ("vllm", {"crash_loading": True}, (), "ended with exit code 1: ValueError: No available memory"),
    ("vllm", {"crash_after": 2}, (), "ended with exit code 17: torch.OutOfMemoryError: CUDA out of memory"),
    ("sglang", {"crash_after": 1}, (), "ended with exit code 17: torch.OutOfMemoryError: CUDA out of memory"),
    ("sglang", {"ready_after": 60}, ("--start-timeout", "0.5"), "is not healthy after 0 s"),
]


@pytest.mark.parametrize(("engine", "plan", "more", "reason"), WRONG_AT_START, ids=lambda value: str(value)[:40])
def test_what_cannot_be_believed_is_refused(engine, plan, more, reason, tmp_path, capsys) -> None:
    chat = more == ("chat",)
    assert reason in refused(capsys, launch(tmp_path, engine, plan, *(() if chat else more), chat=chat))


SHAPES = [
    ("sglang", {"claims": {"decode": 5}}),
    ("sglang", {"claims": {"internal_states": [{"env_vars": "x"}]}}),
    ("sglang", {"claims": {"model_path": 7}}),
    ("sglang", {"claims": {"speculative_num_steps": "three"}}),
    ("sglang", {"claims": {"launch_command": 'python "'}}),
    ("sglang", {"garbled": {"meta_info": "x"}}),
    ("sglang", {"garbled": {"meta_info": {"completion_tokens": "4", "finish_reason": {"type": "stop"}}}}),
    ("sglang", {"garbled": {"meta_info": {"completion_tokens": -4, "finish_reason": {"type": "stop"}}}}),
    ("vllm", {"claims": {"id": 5}}),
    ("vllm", {"garbled": {"choices": 5}}),
    ("vllm", {"garbled": {"choices": ["x"]}}),
    ("vllm", {"garbled": {"usage": "x"}}),
    ("vllm", {"garbled": {"metrics": {"speculative_decoding": "x"}}}),
]


def test_a_key_that_no_header_can_hold_is_said(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("KEY_OF_OURS", "schlüssel")
    words = attach(tmp_path, "vllm", "http://127.0.0.1:9", "--api-key-env", "KEY_OF_OURS")
    assert "no API key in that variable" in refused(capsys, words, code=2)


@pytest.mark.parametrize(("engine", "plan"), SHAPES, ids=lambda value: str(value)[:60])
def test_an_answer_of_another_shape_is_one_line(engine, plan, tmp_path, capsys) -> None:
    with serving(engine, plan) as url:
        said = refused(capsys, attach(tmp_path, engine, url))
    assert f"its answer has a shape that is not known of {engine}: " in said


WRONG_ELSEWHERE = [
    ("sglang", {"release": "0.5.3"}, 3, {"SGLANG_SIMULATE_ACC_LEN": "3"}, "SGLANG_SIMULATE_ACC_LEN is 3"),
    ("vllm", {}, 0, {}, "speculation is off"),
    ("vllm", {"claims": {"root": "org/other"}}, 3, {}, "it serves org/other"),
]


@pytest.mark.parametrize(("engine", "plan", "steps", "env", "reason"), WRONG_ELSEWHERE)
def test_a_running_server_is_looked_at_too(engine, plan, steps, env, reason, tmp_path, capsys) -> None:
    """An old SGLang does not tell its variables; the process on this machine does."""
    with serving(engine, plan, steps=steps, **env) as url:
        assert reason in refused(capsys, attach(tmp_path, engine, url))


@pytest.mark.parametrize(("runs", "named"), [("sglang", "vllm"), ("vllm", "sglang")])
def test_the_other_engine_is_told_apart(runs, named, tmp_path, capsys) -> None:
    with serving(runs, {}) as url:
        found = refused(capsys, attach(tmp_path, named, url))
    assert {"vllm": "name vLLM's server", "sglang": "name SGLang's server"}[named] in found


def test_a_server_may_call_its_models_otherwise(tmp_path, capsys) -> None:
    plan = {"claims": {"model_path": "/models/t", "speculative_draft_model_path": "/models/d"}}
    with serving("sglang", plan) as url:
        more = ("--served-target", "/models/t", "--served-drafter", "/models/d", "--steps", "3")
        assert run(capsys, attach(tmp_path, "sglang", url, *more))["rounds"] == expected(plan, 3)["rounds"]


def test_a_what_if_out_of_reach_costs_no_measurement(tmp_path, capsys) -> None:
    """Only the server says how many steps it runs; this one would die at the warm-up."""
    with serving("vllm", {"crash_after": 0}) as url:
        assert "a round of 3 steps emits" in refused(capsys, attach(tmp_path, "vllm", url, "--what-if", "9"), code=2)


def test_nobody_at_the_url(tmp_path, capsys) -> None:
    said = refused(capsys, attach(tmp_path, "vllm", "http://me:secret@127.0.0.1:9"))
    assert "no healthy server answers there: the connection failed: " in said
    assert "Connection refused, http://127.0.0.1:9/health, start it" in said


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:9",
        "",
        "http://:80",
        "http://127.0.0.1:99999",
        "http://[::1",
        "http://h?x",
        "http://h#x",
        "http://a..b",
    ],
)
def test_what_is_no_url(url, tmp_path, capsys) -> None:
    assert "no URL of a server" in refused(capsys, attach(tmp_path, "vllm", url), code=2)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--url", "http://127.0.0.1:9", "--launch"), "one way to a server"),
        ((), "one way to a server"),
        (("--url", "http://127.0.0.1:9", "--engine-args", "x"), "--engine-args is for --launch"),
        (("--launch", "--served-drafter", "x"), "--served-drafter is for --url"),
        (("--launch",), "a server cannot be started"),
        (("--launch", "--engine-python", "/no/such/python"), "it cannot be started"),
        (("--launch", "--engine-python", sys.executable, "--engine-args", "--port 1"), "--port is set by this command"),
        (
            ("--launch", "--engine-python", sys.executable, "--engine-args", "--model_path=x"),
            "--model-path is set by this command",
        ),
        (("--launch", "--engine-python", sys.executable, "--topk", "4"), "a tree of top-k 4"),
        (("--url", "http://127.0.0.1:9", "--topk", "4"), "a shape without its steps"),
        (("--launch", "--env", "x"), "no variable"),
        (("--launch", "--engine-python", sys.executable, "--what-if", "9"), "accept_len 9 cannot be had: a round of 3"),
        (("--url", "http://127.0.0.1:9", "-o", "no/such.json"), "cannot write: no folder there"),
        (
            ("--url", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH"),
            "no API key in that variable, --api-key-env NO_SUCH",
        ),
        (("--url", "http://me:pw@127.0.0.1:9", "--api-key-env", "PATH"), "a name and password beside an API key"),
    ],
)
def test_usage(more, reason, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["bench", "tiny", "--target", "tiny-target", "--engine", "sglang", *more]
    assert reason in refused(capsys, words, code=2)


# --- smaller parts


@pytest.mark.parametrize("counts", [Counts(0), Counts(0, 0, 0, (0,))])
def test_answers_without_a_round_are_no_measurement(counts) -> None:
    """As of counters that are there and stand still."""
    answer = Answer("p0", None, tokens=9, capped=False, first_s=0.1, decode_s=0.1, timed=8, counts=counts)
    with pytest.raises(ServerError, match="no round for answers of up to 9 tokens"):
        counted([answer], shape_of(3), "here")


SHA, OTHER = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("asked", "served", "revision", "open_"),
    [
        (None, "org/name", OTHER, ()),
        (SHA, "org/name", SHA, ()),
        (SHA, f"/cache/models--org--name/snapshots/{SHA}", None, ()),
        (SHA, "org/name", "main", (f"whether its drafter is of revision {SHA}",)),
        ("v2", "org/name", None, ("whether its drafter is of revision v2",)),
    ],
)
def test_a_revision_that_is_asked_is_seen_or_said(asked, served, revision, open_) -> None:
    told = Told(target="t", steps=3, drafter=served, drafter_revision=revision, simulation_known=True)
    assert check(told, Expected(Served("t"), Served("org/name", asked), None), "here") == open_


def test_another_commit_of_the_drafter_is_another_drafter() -> None:
    told = Told(target="t", steps=3, drafter="org/name", drafter_revision=OTHER)
    with pytest.raises(ServerError, match=f"its drafter is of commit {OTHER}, not {SHA}"):
        check(told, Expected(Served("t"), Served("org/name", SHA), None), "here")


def test_names_of_one_model() -> None:
    assert same_model(TARGET, f"{TARGET}/")
    assert same_model("/c/models--org--name/snapshots/abc", "org/name")
    assert not same_model("org/name", "org/other")


def test_the_difference_of_counters() -> None:
    now, then = Counters(30, 9, 27, 12, (7, 4, 1)), Counters(10, 3, 9, 5, (3, 1, 1))
    assert now.since(then, "") == Counters(20, 6, 18, 7, (4, 3, 0))
    with pytest.raises(ServerError, match=r"went backwards \(tokens, rounds, drafted, accepted, position 0"):
        then.since(now, "")


def test_a_speculative_config_of_the_users_own_is_kept(tmp_path, capsys) -> None:
    theirs = '--speculative-config={\\"draft_tensor_parallel_size\\":1}'
    found = run(capsys, launch(tmp_path, "vllm", {}, "--engine-args", theirs))
    config = json.loads(found["engine"]["args"][found["engine"]["args"].index("--speculative-config") + 1])
    wanted = {"draft_tensor_parallel_size": 1, "method": "eagle3", "model": DRAFTER, "num_speculative_tokens": 3}
    assert config == wanted


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_plain_decoding_is_started_without_the_options_of_drafting(name) -> None:
    theirs = ("--tp-size", "8", "--speculative-token-map=x", "--speculative-draft-load-format", "dummy", "--trust")
    if name == "vllm":
        theirs = ("--tp-size", "8", "--speculative-config", '{"a": 1}', "--per-request-spec-decode-metrics", "detailed")
    start = Start("python", Served("T"), Served("D"), "eagle3", None, 1, theirs)
    told = wire_of(name).command(start)
    assert told[-3:] == ["--tp-size", "8", "--trust"] or told[-2:] == ["--tp-size", "8"]
    assert "spec" not in " ".join(told)


def test_a_kind_that_engines_draft_with_otherwise_is_not_started(tmp_path, capsys) -> None:
    (tmp_path / "medusa").mkdir()
    (tmp_path / "medusa" / "config.json").write_text(json.dumps({"medusa_num_heads": 4, "medusa_num_layers": 1}))
    words = ["bench", str(tmp_path / "medusa"), "--target", "tiny-target", "--engine", "sglang", "--launch"]
    line = refused(capsys, [*words, "--engine-python", engine_python(tmp_path)], code=2)
    assert "of kind medusa" in line


@pytest.mark.parametrize("module", ["psutil", "prometheus_client"])
def test_without_the_extra_no_server_is_started(module, tmp_path) -> None:
    """One that could not be stopped, or whose counters could not be read."""
    hidden = f"import sys; sys.modules[{module!r}] = None; from drafter_audit.cli.main import main; sys.exit(main("
    words = launch(tmp_path, "vllm", {})
    done = subprocess.run([sys.executable, "-c", f"{hidden}{words!r}))"], capture_output=True, text=True, check=False)
    mend = "pip install 'drafter-audit[bench]'"
    assert (done.returncode, done.stderr) == (3, f"error: {module} is not installed, drafter-audit, {mend}\n")
    assert not (tmp_path / "logs").exists()
