"""A stand-in for a serving engine: a process of its own that speaks an engine's documented HTTP and decodes nothing.

    python engine_stand_in.py -m sglang.launch_server --model-path T --port P ...      as the engine is started
    python engine_stand_in.py -m vllm.entrypoints.openai.api_server --model T --port P ...

What it emits and how fast follows a model of a cycle, or a script of answers, and what goes wrong is asked for: all by
the JSON in STAND_IN, a variable, whose keys are the fields of `Plan`. `engine_wires.py` has each payload's shape with
its source.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.engine_wires import SglangWire, VllmWire

GOLDEN = 0.6180339887498949  # multiples of it fill [0, 1) evenly


@dataclass(frozen=True)
class Plan:
    """`rates[i]`: the share of rounds that accept more than i drafts. Times are milliseconds; `fast` names a variable,
    as NAME=VALUE, with which all of them shrink by `gain`. `length`: the tokens after which an answer ends; 0: never.

    `script`: a file of answers to play, a list of {"prompt", "ids", "accepted" of each round, "capped"}.

    Faults: `ready_after` seconds; `crash_loading`; `crash_after`, `reset_after` so many answers; `claims` instead of
    what it was told; `without` these metrics; `stray_tokens` counted for others with each answer; `workers`: processes
    that it starts, in sessions of their own, the first of which outlives a SIGTERM; `bad_counts`; `finish`: why answers
    end, instead of what is so; `garbled`: what stands in each piece of an answer instead; `whole`:
    answers come as one JSON, as by a gateway that does not stream."""

    release: str = ""
    rates: tuple[float, ...] = (0.75, 0.35, 0.04, 0.01)
    plain_ms: float = 0.2
    verify_ms: float = 0.3
    draft_ms: float = 0.0
    fast: str = ""
    gain: float = 1.0
    length: int = 24
    script: str = ""
    ready_after: float = 0.0
    crash_loading: bool = False
    crash_after: int = -1
    reset_after: int = -1
    claims: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    stray_tokens: int = 0
    workers: int = 0
    worker_pids: str = ""
    bad_counts: bool = False
    finish: str = ""
    whole: bool = False
    garbled: dict[str, Any] = field(default_factory=dict)

    @property
    def shrink(self) -> float:
        name, _, value = self.fast.partition("=")
        return 1 / self.gain if name and os.environ.get(name) == value else 1.0


@dataclass(frozen=True)
class Piece:
    """New tokens, with the answer so far and the counts behind it."""

    ids: list[int]
    so_far: list[int]
    histogram: list[int]
    finish: str | None


class Decoder:
    """Emits rounds in time. Rounds of all answers are one sequence, so that shares come out evenly."""

    def __init__(self, plan: Plan, steps: int) -> None:
        self.plan, self.steps, self.rounds = plan, steps, 0
        played = json.loads(Path(plan.script).read_text()) if plan.script else []
        self.script = {tuple(each["prompt"]): each for each in played}

    def answer(self, prompt: list[int], cap: int) -> Iterator[Piece]:
        """The prefill's token, then a round at a time, each at its own moment: delays do not add up."""
        if tuple(prompt) in self.script:
            yield from self._played(self.script[tuple(prompt)], cap)
            return
        cycle = self._cycle_s()
        ids, histogram, begun, rounds = [1 + len(prompt) % 7], [0] * (self.steps + 1), time.perf_counter(), 0
        yield self._piece(ids, ids, histogram, cap)
        while not self._over(ids, cap):
            accepted = self._accepted()
            rounds += 1
            time.sleep(max(0.0, begun + rounds * cycle - time.perf_counter()))
            histogram[accepted] += 1
            new = [(len(ids) + place) * 31 % 97 for place in range(accepted + 1)][: cap - len(ids)]
            ids = ids + new
            yield self._piece(new, ids, histogram, cap)

    def _played(self, script: dict[str, Any], cap: int) -> Iterator[Piece]:
        """Up to the script's end, or the cap."""
        whole, histogram, out = script["ids"][:cap], [0] * (self.steps + 1), 1
        end = "length" if script["capped"] or len(whole) < len(script["ids"]) else "stop"
        yield Piece(whole[:1], whole[:1], list(histogram), end if len(whole) == 1 else None)
        for accepted in script["accepted"]:
            if out >= len(whole):
                return
            new = whole[out : out + accepted + 1]
            out += len(new)
            histogram[accepted] += 1
            yield Piece(new, whole[:out], list(histogram), end if out == len(whole) else None)

    def _cycle_s(self) -> float:
        plan = self.plan
        ms = plan.verify_ms + self.steps * plan.draft_ms if self.steps else plan.plain_ms
        return ms * plan.shrink / 1000

    def _accepted(self) -> int:
        self.rounds += 1
        drawn = self.rounds * GOLDEN % 1
        return sum(drawn < rate for rate in self.plan.rates[: self.steps])

    def _over(self, ids: list[int], cap: int) -> bool:
        return len(ids) >= cap or bool(self.plan.length and len(ids) >= self.plan.length)

    def _piece(self, new: list[int], ids: list[int], histogram: list[int], cap: int) -> Piece:
        ended = bool(self.plan.length and len(ids) >= self.plan.length)
        finish = "stop" if ended else "length" if len(ids) >= cap else None
        finish = finish and (self.plan.finish or finish)
        return Piece(new, ids, list(histogram), finish)


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        if time.monotonic() < self.server.ready_at:
            return self._send(503, b"")
        if not self._is_let_in():
            return None
        found = self.server.wire.page(*self.path.partition("?")[::2])
        status, body, kind = (404, b'{"detail": "Not Found"}', "application/json") if found is None else (200, *found)
        return self._send(status, body, kind)

    def _is_let_in(self) -> bool:
        let_in = self.server.wire.lets_in(self.path, self.headers["Authorization"])
        if not let_in:
            self._send(401, b'{"error": "Unauthorized"}', "application/json")
        return let_in

    def do_POST(self) -> None:
        if not self._is_let_in():
            return None
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = self.server.wire.request(self.path, asked)
        if request is None:
            return self._send(404, b"{}")
        if self.server.plan.whole:
            return self._send_whole(asked, list(self.server.decoder.answer(*request))[-1])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        last = None
        for last in self.server.decoder.answer(*request):
            self._event(self.server.wire.piece(self.path, asked, last))
        self.server.count(last)
        for event in self.server.wire.ending(self.path, asked, last):
            self._event(event)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True
        return None

    def _send_whole(self, asked: dict[str, Any], last: Piece) -> None:
        told = self.server.wire.piece(self.path, asked, replace(last, ids=last.so_far))
        for event in self.server.wire.ending(self.path, asked, last):
            told |= {key: value for key, value in event.items() if key != "choices"}
        self.server.count(last)
        self._send(200, json.dumps(told).encode(), "application/json")

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps({**data, **self.server.plan.garbled})}\n\n".encode())
        self.wfile.flush()

    def _send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, text: str, *values: Any) -> None:
        print(f"INFO: {text % values}", flush=True)


class StandIn(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, plan: Plan, wire: SglangWire | VllmWire) -> None:
        self.plan, self.wire, self.answers = plan, wire, 0
        self.decoder, self.ready_at = Decoder(plan, wire.steps), time.monotonic() + plan.ready_after
        super().__init__(("127.0.0.1", port), Handler)

    def count(self, piece: Piece | None) -> None:
        """After an answer: counters, and what is to go wrong then."""
        assert piece is not None
        if self.answers == self.plan.crash_after:
            print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", flush=True)
            print("Stack dumped.", flush=True)
            os._exit(17)
        if self.answers == self.plan.reset_after:
            self.wire.reset()
        self.wire.count(piece, self.plan.stray_tokens if self.answers else 0)
        self.answers += 1


def main(arguments: list[str]) -> None:
    plan = Plan(**json.loads(os.environ.get("STAND_IN", "{}")))
    module, rest = arguments[1], arguments[2:]
    wire = (SglangWire if module.startswith("sglang") else VllmWire)(plan, rest)
    print(f"loading, pid {os.getpid()}", flush=True)
    start_workers(plan)
    if plan.crash_loading:
        print("ValueError: No available memory for the cache blocks.\nSee the traceback above.", flush=True)
        raise SystemExit(1)
    ports = argparse.ArgumentParser(allow_abbrev=False)
    ports.add_argument("--port", type=int)
    server = StandIn(ports.parse_known_args(rest)[0].port, plan, wire)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.02)


def start_workers(plan: Plan) -> None:
    """Processes that leave the session, as Ray's and some launchers' do."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    workers = [subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True) for _ in range(plan.workers)]
    if plan.worker_pids:
        Path(plan.worker_pids).write_text(" ".join(str(each.pid) for each in workers))


if __name__ == "__main__":
    main(sys.argv[1:])
