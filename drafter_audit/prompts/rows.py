"""The rows of a prompt file: JSON Lines, each of one of four forms, nothing guessed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from drafter_audit.checkpoint.strict_json import strict_loads
from drafter_audit.errors import UsageError
from drafter_audit.prompts.prompt import Prompt

Row = Mapping[str, Any]

_BESIDE = ("id", "question_id", "category", "thinking")
_ROW = 'write one object a line: {"prompt": "..."}, {"messages": [...]}, {"turns": ["..."]} or {"token_ids": [...]}'
_ENDS = "end with what the target is to answer"


class _BadRow(Exception):
    """What is wrong with a row, and how to mend it."""

    def __init__(self, what: str, mend: str = _ROW) -> None:
        self.what, self.mend = what, mend
        super().__init__(what)


def parse_rows(data: bytes, name: str) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    """The prompts in `data`, in order, and notes on what is not used of them. `name` is the file's, for errors.

    A row without an id is called by its line; where several bear one id, each has its line behind it: `81@3`. Blank
    lines are skipped. Raises UsageError, with the line, for what is no row, and where there is none.
    """
    found: dict[int, Prompt] = {}
    unread: set[str] = set()
    for line, text in _lines(data, name):
        try:
            row = _row(text)
            found[line] = _prompt(row, str(line))
        except _BadRow as bad:
            raise UsageError(bad.what, f"{name}:{line}", bad.mend) from bad
        unread |= row.keys() - {*_FORMS, *_BESIDE}
    if not found:
        raise UsageError("no prompts", name, _ROW)
    prompts, renamed = _distinct(found, name)
    return prompts, tuple(_notes(prompts, renamed, unread))


def _lines(data: bytes, name: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, numbered from 1. Not by splitlines: U+2028 may stand in a JSON string."""
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            what = f"not UTF-8 at byte {error.start} of the line"
            raise UsageError(what, f"{name}:{number}", "save the file as UTF-8") from error
        if text:
            yield number, text


def _row(text: str) -> Row:
    try:
        row = strict_loads(text)
    except json.JSONDecodeError as error:
        raise _BadRow(f"not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise _BadRow(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise _BadRow(f"not an object but a {type(row).__name__}")
    return row


def _prompt(row: Row, line: str) -> Prompt:
    forms = [key for key in _FORMS if key in row]
    if len(forms) != 1:
        keys = f"it has {_listed(row)}" if row else "it is empty"
        what = f"more than one of {', '.join(forms)}" if forms else f"no prompt, messages, turns or token_ids: {keys}"
        raise _BadRow(what)
    thinking = _of_type(row, "thinking", bool)
    if thinking is not None and "token_ids" in row:
        raise _BadRow("thinking beside token_ids, which pass no chat template", "leave one of them out")
    made = Prompt(_id(row, line), _of_type(row, "category", str), thinking=thinking)
    return replace(made, **_FORMS[forms[0]](row[forms[0]]))


def _listed(keys: Mapping[str, Any]) -> str:
    return ", ".join(sorted(keys)[:5])


def _of_type(row: Row, key: str, kind: type) -> Any:  # noqa: ANN401 - of `kind`, or None
    value = row.get(key)
    if value is not None and not isinstance(value, kind):
        raise _BadRow(f"{key} is a {type(value).__name__}", f"make it a {kind.__name__}, or leave it out")
    return value


def _id(row: Row, line: str) -> str:
    given = row.get("id", row.get("question_id"))
    if given is None:
        return line
    if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
        raise _BadRow(f"the id is {json.dumps(given)[:40]}", "make it a text or a whole number, or leave it out")
    return _encodable(str(given), "the id")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _BadRow(f"{what} is a {type(value).__name__}", "make it a text")
    if not value.strip():
        raise _BadRow(f"{what} is empty", "write what the target is to answer, or take the row out")
    return _encodable(value, what)


def _encodable(text: str, what: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _BadRow(f"{what} holds half of a surrogate pair, which is no character", "write the text anew")
    return text


def _from_prompt(value: object) -> dict[str, Any]:
    return {"messages": (_user(_text(value, "prompt")),)}


def _from_messages(value: object) -> dict[str, Any]:
    if not isinstance(value, list) or not value:
        raise _BadRow("messages is no list of at least one message")
    messages = tuple(_message(each, f"messages[{i}]") for i, each in enumerate(value))
    if messages[-1]["role"] == "assistant":
        raise _BadRow("the last message is the assistant's: it would be answered twice", _ENDS)
    return {"messages": messages}


def _message(value: object, what: str) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise _BadRow(f"{what} is no object", 'write each message as {"role": "...", "content": "..."}')
    other = {key for key, held in value.items() if held is not None} - {"role", "content"}
    if other:
        raise _BadRow(f"{what} has {', '.join(sorted(other)[:5])}", "give messages of role and content, text alone")
    return {key: _text(value.get(key), f"{what}.{key}") for key in ("role", "content")}


def _from_turns(value: object) -> dict[str, Any]:
    if not isinstance(value, list) or not value:
        raise _BadRow("turns is no list of at least one text")
    first, *later = (_text(each, f"turns[{i}]") for i, each in enumerate(value))
    return {"messages": (_user(first),), "later_turns": tuple(later)}


def _user(text: str) -> Mapping[str, str]:
    return {"role": "user", "content": text}


def _from_token_ids(value: object) -> dict[str, Any]:
    if not isinstance(value, list) or not value or not all(type(each) is int for each in value):
        raise _BadRow("token_ids is no list of at least one whole number", "give the ids of the prompt's tokens")
    return {"token_ids": tuple(value)}


_FORMS: Mapping[str, Callable[[object], dict[str, Any]]] = {
    "prompt": _from_prompt,
    "messages": _from_messages,
    "turns": _from_turns,
    "token_ids": _from_token_ids,
}


def _distinct(found: Mapping[int, Prompt], name: str) -> tuple[tuple[Prompt, ...], int]:
    """The prompts, none with the id of another, and how many were renamed for that."""
    count = Counter(prompt.id for prompt in found.values())
    shared = {line for line, prompt in found.items() if count[prompt.id] > 1}
    prompts = tuple(replace(p, id=f"{p.id}@{line}") if line in shared else p for line, p in found.items())
    if len({prompt.id for prompt in prompts}) < len(prompts):
        raise UsageError("ids that stand on several rows", name, "give each row an id of its own, or none an id")
    return prompts, len(shared)


def _notes(prompts: tuple[Prompt, ...], renamed: int, unread: set[str]) -> Iterator[str]:
    later = sum(bool(prompt.later_turns) for prompt in prompts)
    if later:
        yield f"{later} of {len(prompts)} prompts have several turns: the first alone is asked"
    if renamed:
        yield f"{renamed} rows share an id with another, and have their line behind it"
    if unread:
        yield f"keys of rows that are not read: {', '.join(sorted(unread)[:5])}"
