"""SGLang from outside, read in 0.5.3 to 0.5.23; not run: it has no CPU build.

- /generate tells each answer's counts in `meta_info`, under names that changed: 0.5.3 has spec_verify_ct alone, 0.5.8
  adds spec_accept_token_num and spec_draft_token_num, 0.5.12 to 0.5.16 have the new names beside spec_accepted_drafts,
  spec_proposed_drafts and spec_accept_histogram, 0.5.23 the new names alone (managers/tokenizer_manager.py
  _calculate_spec_decoding_metrics). They are left out where no round was run.
- Chat tells the same where `return_spec_tokens_details` asks for it (entrypoints/openai/protocol.py SpecTokensDetails).
- /metrics, with --enable-metrics, counts rounds and tokens over the server's life (observability/metrics_collector.py).
- /server_info, /get_server_info before: the settings in effect (entrypoints/http_server.py); the environment only where
  SGLANG_EXPOSE_OWN_ENV_VARS is set (managers/scheduler_components/internal_state.py). A router of prefill and decode
  servers answers with a list under `decode`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from drafter_audit.bench.http import Server
from drafter_audit.bench.metrics import Counters, counter, scrape
from drafter_audit.bench.stream import Tally, openai_answer, openai_body
from drafter_audit.bench.wire import Answer, Counts, EngineName, Question, Start, Told, at, without
from drafter_audit.errors import ServerError
from drafter_audit.measure.shape import Shape

_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_ROUNDS = "spec_verify_ct"
_SIMULATE = ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")
_ALGORITHMS = {"eagle3": "EAGLE3", "eagle": "EAGLE"}


class Sglang:
    name: EngineName = "sglang"
    reserved = (
        *("--model-path", "--model", "--revision", "--host", "--port", "--speculative-algorithm"),
        *("--speculative-draft-model-path", "--speculative-draft-model", "--speculative-draft-model-revision"),
        *("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"),
    )

    def command(self, start: Start) -> list[str]:
        revision = ["--revision", start.target.revision] if start.target.revision else []
        return [
            *(start.python, "-m", "sglang.launch_server", "--model-path", start.target.name, *revision),
            *("--host", "127.0.0.1", "--port", str(start.port)),
            *((*_drafting(start, start.shape), *start.args) if start.shape else without(start.args, "--speculative-")),
        ]

    def environment(self) -> Mapping[str, str]:
        return {"SGLANG_EXPOSE_OWN_ENV_VARS": "1"}

    def simulated(self, args: Sequence[str], env: Mapping[str, str]) -> str | None:
        return next((f"{name} is {env[name]}" for name in _SIMULATE if _positive(env.get(name))), None)

    def told(self, server: Server) -> Told:
        info = server.json("/server_info") or server.json("/get_server_info")
        if info is None:
            raise ServerError("it does not say how it was started", f"{server.url}/server_info", "name SGLang's server")
        one = next(iter(info.get("decode") or ()), info)
        env = next((state["env_vars"] for state in one.get("internal_states") or () if "env_vars" in state), None)
        speculates = bool(one.get("speculative_algorithm"))
        command = one.get("launch_command")
        return Told(
            version=one.get("version"),
            served_as=one.get("served_model_name") or one.get("model_path"),
            target=one.get("model_path"),
            target_revision=one.get("revision"),
            drafter=one.get("speculative_draft_model_path") or one["speculative_algorithm"] if speculates else None,
            drafter_revision=one.get("speculative_draft_model_revision"),
            steps=one.get("speculative_num_steps") if speculates else 0,
            topk=one.get("speculative_eagle_topk") if speculates else None,
            num_draft_tokens=one.get("speculative_num_draft_tokens") if speculates else None,
            dtype=one.get("dtype"),
            simulated=None if env is None else self.simulated((), env),
            simulation_known=env is not None,
            args=tuple(shlex.split(command)) if isinstance(command, str) else None,
            env=env,
        )

    def ask(self, server: Server, question: Question, model: str) -> Answer:
        """Messages go through its chat template; text and tokens to its own /generate, which tells most."""
        return _chat(server, question, model) if question.messages else _generate(server, question)

    def counters(self, server: Server) -> Counters | None:
        samples = scrape(server)
        if samples is None:
            return None
        tokens, rounds = counter(samples, "sglang:generation_tokens"), counter(samples, "sglang:spec_verify_calls")
        return None if tokens is None or rounds is None else Counters(tokens, rounds)

    def drafter_in(self, args: Sequence[str]) -> str | None:
        return None  # it tells itself

    def ignores(self, question: Question) -> str | None:
        return "SGLang draws without the seed" if question.temperature else None

    def without_counts(self) -> str:
        return "give prompts of token_ids, or start it with --enable-metrics"


def _drafting(start: Start, shape: Shape) -> list[str]:
    drafter = start.drafter
    revision = ["--speculative-draft-model-revision", drafter.revision] if drafter.revision else []
    return [
        *("--speculative-algorithm", _ALGORITHMS[start.method], "--speculative-draft-model-path", drafter.name),
        *revision,
        *("--speculative-num-steps", str(shape.steps), "--speculative-eagle-topk", str(shape.topk)),
        *("--speculative-num-draft-tokens", str(shape.num_draft_tokens)),
    ]


def _positive(value: str | None) -> bool:
    try:
        return value is not None and float(value) > 0
    except ValueError:
        return False


def _generate(server: Server, question: Question) -> Answer:
    asked = {"text": question.text} if question.token_ids is None else {"input_ids": list(question.token_ids)}
    sampling = {"temperature": question.temperature, "max_new_tokens": question.max_new_tokens}
    tally, meta = Tally(), dict[str, Any]()
    for event in server.stream("/generate", {**asked, "sampling_params": sampling, "stream": True}):
        meta = event.data.get("meta_info") or meta
        so_far = meta.get("completion_tokens")
        tally.saw(event.at, None if so_far is None else so_far - (tally.tokens or 0))
        tally.ids = _grown(tally.ids, event.data.get("output_ids"), so_far)
        tally.tokens = so_far
    tally.finish = at(meta, "finish_reason", "type")
    return tally.answer(question, f"{server.url}/generate", _counts(meta, tally.tokens))


def _grown(ids: list[int] | None, piece: list[int] | None, tokens: int | None) -> list[int] | None:
    """The answer so far: a piece holds all of it, or with --incremental-streaming-output what is new."""
    if piece is None:
        return ids
    return piece if len(piece) == tokens else (ids or []) + piece


def _chat(server: Server, question: Question, model: str) -> Answer:
    path, body = openai_body(question, model)
    tally, extensions = openai_answer(server.stream(path, {**body, "return_spec_tokens_details": True}))
    details = at(extensions, "sglext", "spec_tokens_details") or {}
    return tally.answer(question, f"{server.url}{path}", _counts(details, tally.tokens))


def _counts(told: Mapping[str, Any], tokens: int | None) -> Counts | None:
    """None where an answer of several tokens tells nothing of its rounds."""
    rounds = told.get(_ROUNDS)
    if not rounds:
        return Counts(0, 0, 0, (0,)) if tokens is not None and tokens <= 1 else None
    histogram = _first(told, _HISTOGRAM)
    return Counts(rounds, _first(told, _ACCEPTED), _first(told, _DRAFTED), tuple(histogram) if histogram else None)


def _first(told: Mapping[str, Any], names: Sequence[str]) -> Any:  # noqa: ANN401 - a value of foreign JSON
    return next((told[name] for name in names if told.get(name) is not None), None)


SGLANG = Sglang()
