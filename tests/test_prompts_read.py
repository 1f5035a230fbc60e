"""Prompt files: every form is read, every bad row is an error with its line, and nothing is left out in silence."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from drafter_audit.errors import AuditError, BadReferenceError, CheckpointError, NetworkError, NotFoundError, UsageError
from drafter_audit.prompts.prompt import Prompt, PromptSet
from drafter_audit.prompts.read import read_prompts
from tests.hub import Hub

HELLO = ({"role": "user", "content": "hello"},)
ROW = b'{"prompt": "hello"}\n'


def read(tmp_path: Path, *rows: object, text: bytes | None = None) -> PromptSet:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes("".join(json.dumps(row) + "\n" for row in rows).encode() if text is None else text)
    return read_prompts(str(file))


def test_each_form_of_a_row(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello", "name": None}]
    found = read(
        tmp_path,
        {"prompt": "hello"},
        {"messages": chat, "id": "b", "thinking": False},
        {"turns": ["hello", "and now?"], "question_id": 81, "category": "writing"},
        {"token_ids": [3, 0], "id": "ids"},
    )
    plain = tuple({key: m[key] for key in ("role", "content")} for m in chat)
    assert found.prompts == (
        Prompt("1", None, HELLO),
        Prompt("b", None, plain, thinking=False),
        Prompt("81", "writing", HELLO, later_turns=("and now?",)),
        Prompt("ids", None, token_ids=(3, 0)),
    )
    assert found.notes == ("1 of 4 prompts have several turns: the first alone is asked",)
    assert found.needs_tokenizer
    assert not read(tmp_path, {"token_ids": [1]}).needs_tokenizer


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + '{"prompt": "a\u2028b"}\r\n\n  \n{"prompt": "hello"}'.encode()
    found = read(tmp_path, text=text)
    assert [(p.id, p.messages[0]["content"]) for p in found.prompts] == [("1", "a\u2028b"), ("4", "hello")]
    assert (found.sha256, found.name) == (sha256(text).hexdigest(), str(tmp_path / "prompts.jsonl"))


BAD: dict[str, tuple[object, str]] = {
    "a list": ([1], "not an object but a list"),
    "a text": ("hello", "not an object but a str"),
    "nothing": ({}, "it is empty"),
    "an unknown key": ({"conversations": []}, "it has conversations"),
    "two forms": ({"prompt": "a", "turns": ["a"]}, "more than one of prompt, turns"),
    "an empty prompt": ({"prompt": " \n"}, "prompt is empty"),
    "a number": ({"prompt": 3}, "prompt is a int"),
    "null": ({"prompt": None}, "prompt is a NoneType"),
    "half a pair": ({"prompt": "\ud83d"}, "surrogate"),
    "no messages": ({"messages": []}, "at least one message"),
    "a message of text": ({"messages": ["hello"]}, "messages[0] is no object"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content is a NoneType"),
    "an image": ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content is a list"),
    "a tool call": ({"messages": [{"role": "user", "content": "a", "tool_calls": []}]}, "messages[0] has tool_calls"),
    "an answer": ({"messages": [{"role": "assistant", "content": "a"}]}, "answered twice"),
    "no turns": ({"turns": []}, "at least one text"),
    "an empty later turn": ({"turns": ["a", ""]}, "turns[1] is empty"),
    "no ids": ({"token_ids": []}, "at least one whole number"),
    "ids of text": ({"token_ids": ["3"]}, "at least one whole number"),
    "a truth value for an id": ({"token_ids": [True]}, "at least one whole number"),
    "an id of a list": ({"prompt": "a", "id": [1]}, "the id is [1]"),
    "an empty id": ({"prompt": "a", "id": ""}, 'the id is ""'),
    "a true id": ({"prompt": "a", "id": True}, "the id is true"),
    "a category of numbers": ({"prompt": "a", "category": 3}, "category is a int"),
    "thinking in words": ({"prompt": "a", "thinking": "on"}, "thinking is a str"),
    "thinking over ids": ({"token_ids": [1], "thinking": True}, "thinking beside token_ids"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, name: str) -> None:
    row, says = BAD[name]
    with pytest.raises(UsageError) as caught:
        read(tmp_path, {"prompt": "hello"}, row)
    assert says in caught.value.what
    assert caught.value.where.endswith("prompts.jsonl:2")
    assert caught.value.mend


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ROW + b"{\n", "not JSON"),
        (ROW + b'{"prompt": "a", "prompt": "b"}', "stands in it twice"),
        (ROW + b'{"token_ids": [NaN]}', "NaN"),
        (ROW + b"[" * 200, "not JSON"),
        (ROW + b'{"prompt": "\xff"}', "not UTF-8 at byte 12"),
    ],
)
def test_what_is_no_json_is_named_by_its_line(tmp_path: Path, text: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read(tmp_path, text=text)
    assert caught.value.where.endswith(":2")


@pytest.mark.parametrize("text", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_set_is_an_error(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(UsageError, match="no prompts"):
        read(tmp_path, text=text)


def test_ids_are_made_distinct_and_it_is_said(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "id": 0}, {"prompt": "b", "id": "0", "reference": []}, {"prompt": "c", "id": "x"}]
    found = read(tmp_path, *rows)
    assert [p.id for p in found.prompts] == ["0@1", "0@2", "x"]
    assert found.notes == (
        "2 rows share an id with another, and have their line behind it",
        "keys of rows that are not read: reference",
    )
    with pytest.raises(UsageError, match="ids that stand on several rows"):
        read(tmp_path, *rows, {"prompt": "d", "id": "0@1"})


def test_the_bundled_pack() -> None:
    pack = read_prompts(None)
    assert (pack.name, pack.notes) == ("pack", ())
    assert pack == read_prompts("pack")
    assert len(pack.prompts) >= 64
    assert len({p.category for p in pack.prompts}) == 8
    assert len({p.messages[-1]["content"] for p in pack.prompts}) == len(pack.prompts)


def test_a_path_wins_over_the_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pack").write_bytes(ROW)
    assert len(read_prompts("pack").prompts) == 1


@pytest.mark.parametrize("where", ["absent.jsonl", "org/name", ""])
def test_what_is_not_there_is_said_with_what_is_taken(where: str) -> None:
    with pytest.raises(NotFoundError, match=r"no such prompt file.*hf://datasets"):
        read_prompts(where)


def test_a_folder_is_no_prompt_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder"):
        read_prompts(str(tmp_path))


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    with file.open("wb") as sparse:
        sparse.truncate(64 * 2**20 + 1)
    with pytest.raises(CheckpointError, match="larger than"):
        read_prompts(str(file))


# --- datasets of the Hub

DATASET = "datasets/org/questions"


@pytest.mark.parametrize(
    "where",
    [
        "hf://datasets/org/questions",
        "hf://datasets/org/questions@main/data/q.jsonl",
        "hf://datasets/org/questions/data",
        "https://huggingface.co/datasets/org/questions/blob/main/data/q.jsonl",
        "huggingface.co/datasets/org/questions",
    ],
)
def test_a_dataset_of_the_hub(hub: Hub, where: str) -> None:
    commit = hub.add_repo(DATASET, {"README.md": b"#", "data/q.jsonl": ROW, "data/q.parquet": b"PAR1"})
    if "/data" not in where:
        hub.add_repo(DATASET, {"README.md": b"#", "q.jsonl": ROW})
        commit = hub.repos[DATASET].revisions["main"]
    found = read_prompts(where)
    assert found.prompts == (Prompt("1", None, HELLO),)
    assert found.sha256 == sha256(ROW).hexdigest()
    assert found.name.startswith(f"hf://datasets/org/questions@{commit}/")


def test_a_dataset_is_read_again_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_repo(DATASET, {"q.jsonl": ROW})
    first = read_prompts("hf://datasets/org/questions")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert read_prompts("hf://datasets/org/questions") == first
    with pytest.raises(NetworkError, match=r"offline.*datasets/org/other") as caught:
        read_prompts("hf://datasets/org/other/q.jsonl")
    assert "run the same once while online" in str(caught.value)


REFUSED: dict[str, tuple[dict[str, bytes], str, type[AuditError], str]] = {
    "parquet alone": ({"data/train.parquet": b"PAR1"}, "", UsageError, "no JSONL file.*to_json"),
    "parquet named": ({"a.parquet": b"PAR1", "b.jsonl": ROW}, "/a.parquet", UsageError, "no JSONL file"),
    "two files": ({"a.jsonl": ROW, "b.jsonl": ROW}, "", UsageError, r"2 JSONL files.*name one: hf://datasets/org/qu"),
    "no such file": ({"a.jsonl": ROW}, "/c.jsonl", NotFoundError, r"no c\.jsonl, datasets/org/questions"),
    "a bad row": ({"a.jsonl": b"[]"}, "/a.jsonl", UsageError, r"not an object.*a\.jsonl:1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_dataset_lacks(hub: Hub, name: str) -> None:
    files, path, kind, says = REFUSED[name]
    hub.add_repo(DATASET, files)
    with pytest.raises(kind, match=says):
        read_prompts(f"hf://datasets/org/questions{path}")


@pytest.mark.parametrize("where", ["hf://org/model", "https://huggingface.co/org/model", "hf://datasets/alone"])
def test_what_is_no_dataset(where: str) -> None:
    with pytest.raises(BadReferenceError):
        read_prompts(where)


def test_a_dataset_that_is_not_there(hub: Hub) -> None:
    with pytest.raises(NotFoundError, match="no such repository, datasets/org/questions"):
        read_prompts("hf://datasets/org/questions")
