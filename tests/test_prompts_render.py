"""Prompts become the tokens that transformers' own template gives; what cannot be asked is refused at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.errors import CannotRunError, InputsError, UsageError
from drafter_audit.model.target.tokenizer import TargetTokenizer, load_tokenizer
from drafter_audit.prompts.prompt import PromptSet, TokenPrompt
from drafter_audit.prompts.render import render
from drafter_audit.prompts.rows import parse_rows
from tests.hub import Hub
from tests.tiny_tokenizer import BOS, CHAT, END, START, STRICT, SWITCHED, VOCABULARY, write_tokenizer

HELLO = list(b"hello")
ASKED = [BOS, START, *b"user\nhello", END, START, *b"assistant\n"]


def prompts(*rows: object) -> PromptSet:
    return PromptSet("set", "", *parse_rows("\n".join(map(json.dumps, rows)).encode(), "set"))


def rendered(tokenizer: TargetTokenizer | None, *rows: object, **settings: Any) -> tuple[TokenPrompt, ...]:
    limits = {"thinking": None, "raw": False, "vocab_size": VOCABULARY, "max_positions": 128, "max_new_tokens": 8}
    return render(prompts(*rows), tokenizer and tokenizer.tokenizer, **(limits | settings))


def ids(tokenizer: TargetTokenizer | None, *rows: object, **settings: Any) -> list[list[int]]:
    return [list(prompt.ids) for prompt in rendered(tokenizer, *rows, **settings)]


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> TargetTokenizer | None:
    return load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("chat")))


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> TargetTokenizer | None:
    return load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("switched"), SWITCHED))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> TargetTokenizer | None:
    return load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("bare"), None))


def test_text_passes_the_chat_template_once(chat: TargetTokenizer) -> None:
    system = [{"role": "system", "content": "x"}, {"role": "user", "content": "hello"}]
    rows = [{"prompt": "hello"}, {"turns": ["hello", "more"]}, {"messages": system}, {"token_ids": [7, 258]}]
    found = ids(chat, *rows)
    assert found == [ASKED, ASKED, [BOS, START, *b"system\nx", END, *ASKED[1:]], [7, 258]]
    assert rendered(chat, {"prompt": "a", "id": 3, "category": "c"})[0].category == "c"


def test_raw_text_passes_none(chat: TargetTokenizer, bare: TargetTokenizer) -> None:
    for tokenizer in (chat, bare):
        assert ids(tokenizer, {"prompt": "hello"}, {"token_ids": [7]}, raw=True) == [[BOS, *HELLO], [7]]


def test_ids_need_no_tokenizer() -> None:
    assert ids(None, {"token_ids": [7]}) == [[7]]
    with pytest.raises(UsageError, match="text needs a tokenizer"):
        rendered(None, {"prompt": "a"})


@pytest.mark.parametrize(
    ("row", "option", "on"),
    [(None, None, True), (None, True, True), (None, False, False), (False, None, False), (False, True, True)],
)
def test_thinking_is_switched_by_the_row_and_over_it_by_the_option(
    switched: TargetTokenizer, row: bool | None, option: bool | None, on: bool
) -> None:
    found = ids(switched, {"prompt": "hello", "thinking": row}, thinking=option)
    assert found == [ASKED + ([] if on else list(b"<think></think>"))]


def test_a_template_may_call_the_switch_thinking(tmp_path: Path) -> None:
    other = load_tokenizer(write_tokenizer(tmp_path, SWITCHED.replace("enable_thinking", "thinking")))
    assert ids(other, {"prompt": "hello"}, thinking=False) == [ASKED + list(b"<think></think>")]


NO_SWITCH: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"thinking": True}),
    ({}, {"thinking": False}),
    ({"thinking": True}, {}),
]


@pytest.mark.parametrize(("row", "settings"), NO_SWITCH)
def test_a_switch_that_the_template_has_not_is_no_silence(
    chat: TargetTokenizer, row: dict[str, Any], settings: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=r"no switch.*prompt '1'"):
        rendered(chat, {"prompt": "hello", **row}, **settings)


def test_what_raw_contradicts(switched: TargetTokenizer) -> None:
    two = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    for row, settings in (({"prompt": "a"}, {"thinking": True}), ({"prompt": "a", "thinking": True}, {})):
        with pytest.raises(UsageError, match="thinking"):
            rendered(switched, row, raw=True, **settings)
    with pytest.raises(UsageError, match="2 messages"):
        rendered(switched, {"messages": two}, raw=True)


def test_without_a_template_the_error_names_raw(bare: TargetTokenizer) -> None:
    with pytest.raises(UsageError, match=r"no chat template.*--raw"):
        rendered(bare, {"prompt": "hello"})


def test_what_a_template_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    strict = load_tokenizer(write_tokenizer(tmp_path, STRICT))
    chat = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    with pytest.raises(UsageError, match=r"refuses it: no system message, prompt '2'"):
        rendered(strict, {"prompt": "hello"}, {"messages": chat})


@pytest.mark.parametrize("wrong", [-1, 96, 2**70])
def test_ids_outside_the_vocabulary(wrong: int) -> None:
    with pytest.raises(InputsError, match=rf"token {wrong} is outside.* of 96, set, prompt '2'"):
        rendered(None, {"token_ids": [95]}, {"token_ids": [0, wrong]}, vocab_size=96)


def test_a_prompt_longer_than_the_context() -> None:
    row = {"token_ids": [1] * 20}
    assert rendered(None, row, max_positions=44, lookahead=16)
    assert rendered(None, row, max_positions=None)
    with pytest.raises(InputsError, match=r"20 tokens and 8 new and 16 of look-ahead do not fit.*43 positions.*1 more"):
        rendered(None, row, row, max_positions=43, lookahead=16)
    with pytest.raises(InputsError, match="take them out"):
        rendered(None, row, max_positions=16)


# --- the tokenizer


def test_hashes_tell_tokenizers_and_templates_apart(tmp_path: Path, chat: TargetTokenizer) -> None:
    again = load_tokenizer(write_tokenizer(tmp_path / "again"))
    other = load_tokenizer(write_tokenizer(tmp_path / "other", SWITCHED))
    assert again is not None
    assert other is not None
    assert (again.sha256, again.template_sha256) == (chat.sha256, chat.template_sha256)
    assert other.sha256 == chat.sha256
    assert other.template_sha256 != chat.template_sha256
    Path(other_folder := tmp_path / "other", "vocab.json").write_text("{}")
    changed = load_tokenizer(str(other_folder))
    assert changed is not None
    assert changed.sha256 != chat.sha256


def test_a_target_may_ship_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert load_tokenizer(str(tmp_path)) is None


def test_a_damaged_tokenizer_is_one_line(tmp_path: Path) -> None:
    Path(write_tokenizer(tmp_path), "tokenizer.json").write_text("{")
    with pytest.raises(CannotRunError, match="does not load the tokenizer"):
        load_tokenizer(str(tmp_path))


def test_code_of_a_repository_runs_only_when_asked(tmp_path: Path) -> None:
    folder = Path(write_tokenizer(tmp_path))
    (folder / "own.py").write_text("raise RuntimeError('code of the repository ran')")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    mapped = settings | {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(mapped))
    (folder / "config.json").write_text('{"model_type": "unheard-of", "auto_map": {"AutoConfig": "own.Own"}}')
    with pytest.raises(CannotRunError, match="trust-remote-code"):
        load_tokenizer(str(folder))
    with pytest.raises(CannotRunError, match="code of the repository ran"):
        load_tokenizer(str(folder), trust_remote_code=True)


def test_a_template_with_the_days_date_is_told(tmp_path: Path) -> None:
    dated = load_tokenizer(write_tokenizer(tmp_path, CHAT + "{{ strftime_now('%Y') }}"))
    assert dated is not None
    assert ["another day" in note for note in dated.notes] == [True]


def test_a_tokenizer_on_the_hub_is_read_at_one_commit(hub: Hub, tmp_path: Path, chat: TargetTokenizer) -> None:
    folder = Path(write_tokenizer(tmp_path))
    files = {file.name: file.read_bytes() for file in folder.iterdir()} | {"config.json": b'{"model_type": "llama"}'}
    hub.add_repo("org/target", files)
    found = load_tokenizer("org/target")
    assert found is not None
    assert found.sha256 == chat.sha256
    assert ids(found, {"prompt": "hello"}) == [ASKED]
