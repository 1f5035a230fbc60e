"""config.json, read strictly."""

from __future__ import annotations

import pytest

from drafter_audit.checkpoint.config import MAX_CONFIG_BYTES, read_config
from drafter_audit.errors import ConfigError, NotFoundError
from drafter_audit.sources.open import open_source


def config_of(tmp_path, data: bytes) -> dict[str, object]:
    (tmp_path / "config.json").write_bytes(data)
    return read_config(open_source(str(tmp_path)))


def test_reads_an_object(tmp_path):
    assert config_of(tmp_path, b'{"hidden_size": 4, "a": {"b": [null]}}') == {"hidden_size": 4, "a": {"b": [None]}}
    assert config_of(tmp_path, b"\xef\xbb\xbf{}") == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON: Expecting value, {}:1:1"),
        (b'{"a": 1,\n "b" 2}', "not JSON: Expecting ':' delimiter, {}:2:6"),
        (b"[1]", "not a JSON object but a list, {}"),
        (b"null", "not a JSON object but a NoneType, {}"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7, {}"),
        (b'{"a": NaN}', "not JSON: NaN is not a JSON number, {}"),
        (b'{"a": -Infinity}', "not JSON: -Infinity is not a JSON number, {}"),
        (b'{"a": 1, "a": 1}', "the key 'a' stands in it twice, {}"),
        (b'{"x": {"a\\u001b": 1, "a\\u001b": 2}}', "the key 'a\\x1b' stands in it twice, {}"),
        (b"[" * 100_000, "not JSON: "),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON: "),
    ],
)
def test_says_in_one_line_what_is_wrong(tmp_path, data, said):
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, data)
    message = str(caught.value)
    assert message.startswith(said.format(tmp_path / "config.json"))
    assert message.isprintable()
    assert caught.value.exit_code == 3


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json") as caught:
        read_config(open_source(str(tmp_path)))
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(ConfigError, match=r"no generation_config\.json"):
        read_config(open_source(str(tmp_path)), "generation_config.json")


def test_a_link_to_nothing_is_named(tmp_path):
    (tmp_path / "config.json").symlink_to("nowhere")
    with pytest.raises(NotFoundError, match=r"config\.json is a link to nothing"):
        read_config(open_source(str(tmp_path)))


def test_a_huge_file_is_not_read(tmp_path):
    with pytest.raises(ConfigError, match=f"config.json is larger than {MAX_CONFIG_BYTES} bytes"):
        config_of(tmp_path, b" " * (MAX_CONFIG_BYTES + 1))
