"""What a streamed answer adds up to, and when its pieces came."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drafter_audit.bench.http import Event, Server
from drafter_audit.bench.wire import Answer, Counts, Question
from drafter_audit.errors import LostServerError, ServerError

_LOOK = "look at the server's log"
_GIVEN_UP = ("abort", "error")
"""Reasons for which an answer of either engine finished that are no end of a text."""


@dataclass
class Tally:
    """Takes the pieces of one answer. The first piece is of the prefill: what comes after it is decoding."""

    begun: float = field(default_factory=time.perf_counter)
    first: float | None = None
    last: float = 0.0
    pieces: list[int | None] = field(default_factory=list)
    tokens: int | None = None
    ids: list[int] | None = None
    finish: str | None = None

    def saw(self, at: float, new: int | None = None) -> None:
        """A piece with tokens came, `new` of them where that is told."""
        self.first = at if self.first is None else self.first
        self.last = at
        self.pieces.append(new)

    def answer(self, question: Question, where: str, counts: Counts | None) -> Answer:
        """Raises LostServerError for an answer that broke off, as its length comes last, or that the engine gave up."""
        if self.finish is None or self.first is None or self.tokens is None:
            what = f"the answer to {question.id!r} broke off before it told its length"
            raise LostServerError(what, where, _LOOK)
        if self.finish in _GIVEN_UP:
            raise LostServerError(f"the engine gave up the answer to {question.id!r}: {self.finish}", where, _LOOK)
        return Answer(
            question.id,
            question.category,
            tokens=self.tokens,
            capped=self.finish == "length",
            first_s=self.first - self.begun,
            decode_s=self.last - self.first,
            timed=max(0, self.tokens - (self.pieces[0] or 1)),
            ids=None if self.ids is None or len(self.ids) != self.tokens else tuple(self.ids),
            counts=counts,
            pieces=() if None in self.pieces else tuple(new for new in self.pieces if new),
        )


def openai_body(question: Question, model: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a streamed request by OpenAI's API: chat for messages, completions for text and tokens."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": question.max_new_tokens,
        "temperature": question.temperature,
        "seed": question.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if not question.messages:
        asked = question.text if question.token_ids is None else list(question.token_ids)
        return "/v1/completions", {**body, "prompt": asked}
    switches = dict.fromkeys(("enable_thinking", "thinking"), question.thinking)
    thinking = {} if question.thinking is None else {"chat_template_kwargs": switches}
    return "/v1/chat/completions", {**body, **thinking, "messages": [dict(m) for m in question.messages]}


def openai_answer(events: Iterable[Event]) -> tuple[Tally, Mapping[str, Any]]:
    """The tally of an answer by OpenAI's API, and the extensions of all its pieces in one."""
    tally, extensions = Tally(), dict[str, Any]()
    for event in events:
        for choice in event.data.get("choices") or ():
            new = choice.get("token_ids")
            if new:
                tally.ids = (tally.ids or []) + new
            tally.finish = choice.get("finish_reason") or tally.finish
            tally.saw(event.at, len(new) if new else None)
        usage = event.data.get("usage")
        if usage:
            tally.tokens = usage.get("completion_tokens")
        extensions |= {key: value for key, value in event.data.items() if key in _EXTENSIONS and value is not None}
    return tally, extensions


_EXTENSIONS = ("metrics", "sglext")


def listed_model(server: Server) -> Mapping[str, Any]:
    """The model that it lists first. Raises ServerError where it lists none."""
    listed = (server.json("/v1/models") or {}).get("data") or [None]
    if not isinstance(listed[0], dict) or "id" not in listed[0]:
        raise ServerError("it lists no model", f"{server.url}/v1/models", "name the server of an engine")
    model: Mapping[str, Any] = listed[0]
    return model
