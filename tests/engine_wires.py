"""What SGLang and vLLM send, by release: the payloads of the stand-in, each shape with the source where it was read."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    from tests.engine_stand_in import Piece, Plan

Page = tuple[bytes, str]


def as_json(told: Any) -> Page:
    return json.dumps(told).encode(), "application/json"


class Metrics:
    """Counters in a registry of prometheus_client, with which both engines write theirs."""

    def __init__(self, labels: dict[str, str]) -> None:
        from prometheus_client import CollectorRegistry

        self.labels, self.registry, self.counters = labels, CollectorRegistry(), {}

    def add(self, name: str, value: float, **more: str) -> None:
        from prometheus_client import Counter

        labels = {**self.labels, **more}
        if name not in self.counters:
            self.counters[name] = Counter(name, name, list(labels), registry=self.registry)
        self.counters[name].labels(**labels).inc(value)

    def page(self) -> Page:
        from prometheus_client import generate_latest

        return generate_latest(self.registry), "text/plain; version=0.0.4"


class SglangWire:
    """sglang 0.5.23 unless said otherwise; 0.5.3, 0.5.8, 0.5.12 and 0.5.16 as their releases have the names."""

    def __init__(self, plan: Plan, arguments: list[str]) -> None:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        names = ("--model-path", "--speculative-algorithm", "--speculative-draft-model-path", "--dtype", "--api-key")
        for name in names:
            parser.add_argument(name)
        for name in ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens", "--port"):
            parser.add_argument(name, type=int)
        parser.add_argument("--enable-metrics", action="store_true")
        self.args, _ = parser.parse_known_args(arguments)
        self.plan, self.release = plan, Version(plan.release or "0.5.23")
        self.command = ["python", "-m", "sglang.launch_server", *arguments]
        self.steps = self.args.speculative_num_steps or 0
        self.reset()

    def lets_in(self, path: str, authorization: str | None) -> bool:
        """srt/utils add_api_key_middleware (0.5.3)"""
        is_open = self.args.api_key is None or path.startswith(("/health", "/metrics"))
        return is_open or authorization == f"Bearer {self.args.api_key}"

    def reset(self) -> None:
        self.metrics = Metrics({"model_name": str(self.args.model_path)})
        self.count_tokens(0, 0)

    def count(self, piece: Piece, stray: int) -> None:
        self.count_tokens(len(piece.so_far) + stray, sum(piece.histogram))

    def count_tokens(self, tokens: int, rounds: int) -> None:
        # observability/metrics_collector.py:1860-1869 (0.5.23)
        self.metrics.add("sglang:generation_tokens_total", tokens, is_streaming="true")
        if self.steps:
            self.metrics.add("sglang:spec_verify_calls_total", rounds)

    def page(self, path: str, query: str) -> Page | None:
        if path == "/health":
            return b"", "text/plain"
        # /get_server_info is the older name; /server_info is there in 0.5.8 (entrypoints/http_server.py)
        if path == "/get_server_info" or (path == "/server_info" and self.release >= Version("0.5.8")):
            return as_json(self.server_info())
        if path == "/v1/models":  # entrypoints/http_server.py available_models
            return as_json({"object": "list", "data": [{"id": self.args.model_path, "object": "model"}]})
        return self.metrics.page() if path == "/metrics" and self.args.enable_metrics else None

    def server_info(self) -> dict[str, Any]:
        """entrypoints/http_server.py server_info: the settings in effect, flat; env_vars of
        managers/scheduler_components/internal_state.py _add_env_vars."""
        told = vars(self.args)
        state = dict(told)
        if self.release >= Version("0.5.23") and os.environ.get("SGLANG_EXPOSE_OWN_ENV_VARS") == "1":
            state["env_vars"] = {k: v for k, v in os.environ.items() if k.startswith("SGLANG_")}
        if self.steps:
            state["avg_spec_accept_length"] = 9.9  # of the server's life: never to be reported
        command = " ".join(self.command)
        info = {**told, "launch_command": command, "internal_states": [state], "version": str(self.release)}
        return {**info, **self.plan.claims}

    def request(self, path: str, asked: dict[str, Any]) -> tuple[list[int], int] | None:
        if path == "/generate":  # managers/io_struct.py GenerateReqInput
            prompt = asked.get("input_ids") or [ord(letter) for letter in asked["text"]]
            return prompt, asked["sampling_params"]["max_new_tokens"]
        return ([7], asked["max_tokens"]) if path == "/v1/chat/completions" else None

    def piece(self, path: str, asked: dict[str, Any], piece: Piece) -> dict[str, Any]:
        if path != "/generate":
            return chunk(piece, "chat.completion.chunk")
        finish = {"type": piece.finish} if piece.finish else None
        meta = {"id": "r", "finish_reason": finish, "completion_tokens": len(piece.so_far), **self.counts(piece)}
        # managers/tokenizer_manager.py:2638-2668: output_ids are all so far, unless streamed incrementally
        return {"text": "x" * len(piece.so_far), "output_ids": piece.so_far, "meta_info": meta}

    def ending(self, path: str, asked: dict[str, Any], piece: Piece) -> Iterator[dict[str, Any]]:
        if path == "/generate":
            return
        if asked.get("return_spec_tokens_details") and self.release >= Version("0.5.23"):
            # entrypoints/openai/protocol.py:448 SpecTokensDetails, in a chunk without choices (serving_chat.py:2733)
            yield {"choices": [], "sglext": {"spec_tokens_details": self.counts(piece)}}
        yield {"choices": [], "usage": {"completion_tokens": len(piece.so_far)}}

    def counts(self, piece: Piece) -> dict[str, Any]:
        """managers/tokenizer_manager.py _calculate_spec_decoding_metrics, by the names of each release; nothing where
        no round was run."""
        rounds = sum(piece.histogram)
        accepted = sum(j * n for j, n in enumerate(piece.histogram)) + (99 if self.plan.bad_counts else 0)
        if not rounds or not self.steps:
            return {}
        told: dict[str, Any] = {"spec_verify_ct": rounds}
        if self.release < Version("0.5.8"):
            return told
        drafted = rounds * (self.args.speculative_num_draft_tokens - 1)
        told |= {"spec_accept_length": len(piece.so_far) / rounds, "spec_accept_rate": accepted / drafted}
        if self.release < Version("0.5.12"):
            return {**told, "spec_accept_token_num": accepted, "spec_draft_token_num": drafted}
        # Request.update_spec_correct_drafts_histogram (managers/schedule_batch.py): it ends with the longest run
        histogram = piece.histogram[: max(j for j, n in enumerate(piece.histogram) if n) + 1]
        if self.release < Version("0.5.16"):
            old = {"spec_accepted_drafts": accepted, "spec_proposed_drafts": drafted}
            return {**told, **old, "spec_accept_histogram": histogram}
        new = {"spec_num_correct_drafts": accepted, "spec_num_proposed_drafts": drafted}
        return {**told, **new, "spec_correct_drafts_histogram": histogram}


def chunk(piece: Piece, kind: str, **more: Any) -> dict[str, Any]:
    """A piece by OpenAI's API."""
    choice = {"index": 0, "delta": {"content": "x" * len(piece.ids)}, "finish_reason": piece.finish, **more}
    return {"object": kind, "choices": [choice]}


class VllmWire:
    """vllm 0.32.0, whose files are named; the counters are the same since 0.10.2."""

    def __init__(self, plan: Plan, arguments: list[str]) -> None:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        for name in ("--model", "--speculative-config", "--port", "--api-key"):
            parser.add_argument(name)
        parser.add_argument("--per-request-spec-decode-metrics", default="none")
        parser.add_argument("--disable-log-stats", action="store_true")
        parser.add_argument("--data-parallel-size", type=int, default=1)
        self.args, _ = parser.parse_known_args(arguments)
        self.plan, self.drafting = plan, json.loads(self.args.speculative_config or "null")
        self.steps = self.drafting["num_speculative_tokens"] if self.drafting else 0
        self.reset()

    def lets_in(self, path: str, authorization: str | None) -> bool:
        """entrypoints/serve/middleware/authenticate.py"""
        is_open = self.args.api_key is None or not path.startswith(("/v1", "/v2", "/inference"))
        return is_open or authorization == f"Bearer {self.args.api_key}"

    def reset(self) -> None:
        self.metrics, self.answers = Metrics({"model_name": str(self.args.model)}), 0
        for engine in range(self.args.data_parallel_size):
            self.add(engine, 0, [0] * (self.steps + 1))

    def count(self, piece: Piece, stray: int) -> None:
        """Data parallelism: each request is one engine's."""
        self.add(self.answers % self.args.data_parallel_size, len(piece.so_far) + stray, piece.histogram)
        self.answers += 1

    def add(self, engine: int, tokens: int, histogram: list[int]) -> None:
        """v1/metrics/loggers.py:799 and v1/spec_decode/metrics.py SpecDecodingProm, registered where it speculates."""
        label, rounds = {"engine": str(engine)}, sum(histogram)
        if "vllm:generation_tokens" not in self.plan.without:
            self.metrics.add("vllm:generation_tokens", tokens, **label)
        if not self.steps:
            return
        counts = {
            "vllm:spec_decode_num_drafts": rounds,
            "vllm:spec_decode_num_draft_tokens": rounds * self.steps,
            "vllm:spec_decode_num_accepted_tokens": sum(j * n for j, n in enumerate(histogram)),
        }
        for name, value in counts.items():
            if name not in self.plan.without:
                self.metrics.add(name, value, **label)
        name = "vllm:spec_decode_num_accepted_tokens_per_pos"
        for place in range(0 if name in self.plan.without else self.steps):
            self.metrics.add(name, sum(histogram[place + 1 :]), position=str(place), **label)

    def page(self, path: str, query: str) -> Page | None:
        if path == "/health":
            return b"", "text/plain"
        if path == "/version":  # entrypoints/serve/instrumentator/basic.py
            return as_json({"version": self.plan.release or "0.32.0"})
        if path == "/v1/models":  # entrypoints/openai/models/protocol.py ModelCard
            return as_json({"object": "list", "data": [{"id": "served", "root": self.args.model, **self.plan.claims}]})
        if path == "/server_info" and os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            return as_json(self.server_info())
        return self.metrics.page() if path == "/metrics" and not self.args.disable_log_stats else None

    def server_info(self) -> dict[str, Any]:
        """entrypoints/serve/dev/server_info/api_router.py, config_format=json: config.VllmConfig as an object."""
        drafting = self.drafting and {"rejection_sample_method": "standard", **self.drafting}
        model = {"model": self.args.model, "dtype": "torch.bfloat16"}
        return {"vllm_config": {"model_config": model, "speculative_config": drafting}, "vllm_env": {}}

    def request(self, path: str, asked: dict[str, Any]) -> tuple[list[int], int] | None:
        if asked["model"] != "served" or path not in ("/v1/completions", "/v1/chat/completions"):
            return None
        prompt = asked.get("prompt", [7])
        return prompt if isinstance(prompt, list) else [ord(letter) for letter in prompt], asked["max_tokens"]

    def piece(self, path: str, asked: dict[str, Any], piece: Piece) -> dict[str, Any]:
        # entrypoints/openai/completion/protocol.py CompletionResponseChoice: token_ids where asked for, 0.10.2 on
        ids = {"token_ids": piece.ids} if asked.get("return_token_ids") else {}
        return chunk(piece, "text_completion", **ids)

    def ending(self, path: str, asked: dict[str, Any], piece: Piece) -> Iterator[dict[str, Any]]:
        """entrypoints/openai/chat_completion/serving.py: the usage comes last, and the request's counts with it."""
        told: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": len(piece.so_far)}}
        if self.args.per_request_spec_decode_metrics != "none":
            told["metrics"] = {"speculative_decoding": self.block(piece)}
        yield told

    def block(self, piece: Piece) -> dict[str, Any]:
        """v1/metrics/stats.py RequestSpecDecodeMetrics.to_dict"""
        rounds, accepted = sum(piece.histogram), sum(j * n for j, n in enumerate(piece.histogram))
        told = {
            "mean_acceptance_length": 1 + accepted / rounds if rounds else 1.0,
            "draft_acceptance_rate": accepted / (rounds * self.steps) if rounds else 0.0,
            "acceptance_histogram": piece.histogram,
            "num_spec_steps": rounds,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": rounds * self.steps,
            "num_spec_tokens": self.steps,
        }
        return {name: value for name, value in told.items() if name not in self.plan.without}
