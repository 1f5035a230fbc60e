"""vLLM from outside, read in 0.10.2 to 0.33.0 and run in 0.32.0 (CPU).

- Counters at /metrics, registered only where it speculates, one set for each engine of data parallelism:
  v1/spec_decode/metrics.py SpecDecodingProm. Their position labels are 0..num_speculative_tokens - 1.
- A block of one request's counts, with --per-request-spec-decode-metrics (0.32.0: entrypoints/generate/base/protocol.py
  SpeculativeDecodingMetrics); streamed, it comes with the usage.
- The configuration at /server_info where VLLM_SERVER_DEV_MODE is set: as an object with ?config_format=json
  (0.32.0: entrypoints/serve/dev/server_info/api_router.py); older releases answer with text, which tells nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from drafter_audit.bench.http import Server
from drafter_audit.bench.metrics import METRICS, Counters, Samples, by_position, counter, scrape
from drafter_audit.bench.stream import listed_model, openai_answer, openai_body
from drafter_audit.bench.wire import Answer, Counts, EngineName, Question, Start, Told, at, without
from drafter_audit.errors import ServerError, UsageError
from drafter_audit.measure.shape import Shape

_SPECULATIVE = ("--speculative-config", "--speculative_config", "-sc")
_ROUNDS, _DRAFTED, _ACCEPTED = (
    f"vllm:spec_decode_num_{what}" for what in ("drafts", "draft_tokens", "accepted_tokens")
)
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
_TOKENS = "vllm:generation_tokens"
_BLOCK = "--per-request-spec-decode-metrics"


class Vllm:
    name: EngineName = "vllm"
    reserved = ("--model", "--revision", "--host", "--port", "--spec-method", "--spec-model", "--spec-tokens")

    def command(self, start: Start) -> list[str]:
        """Its own --speculative-config is kept, with the drafter, method and steps put in."""
        if start.shape and not start.shape.is_chain:
            raise UsageError(f"a tree of top-k {start.shape.topk}", "--topk", "leave it at 1: vLLM drafts chains")
        theirs, rest = _speculative(start.args)
        if start.shape is None:
            rest = without(rest, _BLOCK)  # it is refused where nothing speculates
        drafting = {**theirs, **_drafting(start, start.shape)} if start.shape else {}
        revision = ["--revision", start.target.revision] if start.target.revision else []
        return [
            *(start.python, "-m", "vllm.entrypoints.openai.api_server", "--model", start.target.name, *revision),
            *("--host", "127.0.0.1", "--port", str(start.port)),
            *(["--speculative-config", json.dumps(drafting)] if drafting else []),
            *rest,
        ]

    def environment(self) -> Mapping[str, str]:
        return {"VLLM_SERVER_DEV_MODE": "1"}

    def simulated(self, args: Sequence[str], env: Mapping[str, str]) -> str | None:
        theirs, _ = _speculative(tuple(args))
        return _synthetic(theirs)

    def told(self, server: Server) -> Told:
        model, (samples, _) = listed_model(server), _counting(server)
        version = at(server.json("/version"), "version")
        found = Told(version, model["id"], target=model.get("root") or model["id"], steps=_steps(samples))
        config = at(server.json("/server_info?config_format=json"), "vllm_config")
        return _with_config(found, config) if isinstance(config, Mapping) else found

    def ask(self, server: Server, question: Question, model: str) -> Answer:
        path, body = openai_body(question, model)
        tally, extensions = openai_answer(server.stream(path, {**body, "return_token_ids": True}))
        block = at(extensions, "metrics", "speculative_decoding")
        where = f"{server.url}{path}"
        return tally.answer(question, where, _counts(block, where) if block else None)

    def counters(self, server: Server) -> Counters | None:
        """Raises ServerError where one of its counters is not there: all are, where it speculates."""
        samples, tokens = _counting(server)
        found = {name: counter(samples, name) for name in (_ROUNDS, _DRAFTED, _ACCEPTED)}
        places = by_position(samples, _PER_POSITION)
        missing = [name for name, value in {**found, _PER_POSITION: places}.items() if value is None]
        if missing:
            raise ServerError(f"a metric is missing: {missing[0]}", f"{server.url}{METRICS}", "use a release of vLLM")
        return Counters(tokens, found[_ROUNDS] or 0, found[_DRAFTED], found[_ACCEPTED], places)

    def drafter_in(self, args: Sequence[str]) -> str | None:
        named: str | None = at(_speculative(args)[0], "model")
        return named

    def ignores(self, question: Question) -> str | None:
        return None

    def without_counts(self) -> str:
        return "start it without --disable-log-stats"


def _speculative(args: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
    """The user's own speculative config, and the other arguments. Raises UsageError for one that is no JSON object."""
    theirs: Mapping[str, Any] = {}
    rest, left = [], list(args)
    while left:
        name, has_value, value = left.pop(0).partition("=")
        if name not in _SPECULATIVE:
            rest.append(f"{name}{has_value}{value}")
            continue
        text = value if has_value else (left.pop(0) if left else "")
        try:
            theirs = json.loads(text)
        except ValueError:
            theirs = {}
        if not isinstance(theirs, dict) or not theirs:
            raise UsageError(f"no JSON object: {text}", name, "write it as vLLM takes it")
    return theirs, rest


def _drafting(start: Start, shape: Shape) -> dict[str, Any]:
    drafter = start.drafter
    revision = {"revision": drafter.revision} if drafter.revision else {}
    return {
        "method": start.method,
        "model": drafter.name,
        **revision,
        "num_speculative_tokens": shape.steps,
    }


def _synthetic(config: Mapping[str, Any] | None) -> str | None:
    method = at(config, "rejection_sample_method")
    return "its rejection_sample_method is synthetic" if method == "synthetic" else None


def _counting(server: Server) -> tuple[Samples, int]:
    """Its metrics, and the tokens among them. Raises ServerError for a server that counts none, or is not vLLM's."""
    samples = scrape(server)
    tokens = None if samples is None else counter(samples, _TOKENS)
    if samples is None or tokens is None:
        mend = "name vLLM's server, one that was started without --disable-log-stats"
        raise ServerError(f"a metric is missing: {_TOKENS}", f"{server.url}{METRICS}", mend)
    return samples, tokens


def _steps(samples: Samples) -> int | None:
    """0 where it counts tokens and no drafts."""
    if counter(samples, _ROUNDS) is None:
        return 0
    places = by_position(samples, _PER_POSITION)
    return None if places is None else len(places)


def _with_config(found: Told, config: Mapping[str, Any]) -> Told:
    drafting = config.get("speculative_config") or {}
    return replace(
        found,
        target=at(config, "model_config", "model") or found.target,
        target_revision=at(config, "model_config", "revision"),
        dtype=_plain(at(config, "model_config", "dtype")),
        drafter=drafting.get("model"),
        drafter_revision=drafting.get("revision"),
        steps=drafting.get("num_speculative_tokens", 0),
        topk=1,
        simulated=_synthetic(drafting),
        simulation_known=True,
    )


def _plain(dtype: object) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _counts(block: Mapping[str, Any], where: str) -> Counts:
    """Raises ServerError for a block that lacks one of them."""
    try:
        return Counts(
            block["num_spec_steps"],
            block["num_accepted_draft_tokens"],
            block["num_draft_tokens"],
            tuple(block["acceptance_histogram"]),
        )
    except KeyError as error:
        raise ServerError(f"a metric is missing: {error}", where, f"start it without {_BLOCK}") from error


VLLM = Vllm()
