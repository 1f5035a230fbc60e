"""A checkpoint in a local folder."""

from __future__ import annotations

import os

import pytest

from drafter_audit.errors import AccessError, CheckpointError, NotFoundError, SourceError
from drafter_audit.sources.open import open_source


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / "config.json").write_bytes(b"0123456789")
    (tmp_path / "sub" / "part.safetensors").write_bytes(b"ab")
    (tmp_path / ".cache" / "hidden").touch()
    return tmp_path


def test_lists_names_and_sizes(folder):
    source = open_source(str(folder))
    assert dict(source.files()) == {"config.json": 10, "sub/part.safetensors": 2}
    assert (source.kind, source.name, source.revision, source.weights_file) == ("local", str(folder), None, None)


def test_reads_whole_files_and_ranges(folder):
    source = open_source(str(folder))
    assert source.read("config.json", limit=10) == b"0123456789"
    assert source.read_range("config.json", 2, 5) == b"234"
    assert source.read_range("config.json", 8, 50) == b"89"
    assert source.read_range("config.json", 50, 60) == b""
    assert source.read_range("config.json", 5, 5) == b""


def test_refuses_a_file_above_the_limit(folder):
    with pytest.raises(CheckpointError, match=r"config\.json is larger than 9 bytes"):
        open_source(str(folder)).read("config.json", limit=9)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "sub/../../secret", "", "a\0b", "c:\\secret"])
def test_refuses_names_outside_the_folder(folder, name):
    source = open_source(str(folder))
    with pytest.raises(CheckpointError, match="leaves its folder"):
        source.read(name, limit=10)
    with pytest.raises(CheckpointError, match="leaves its folder"):
        source.read_range(name, 0, 10)


def test_follows_links_as_the_cache_of_the_hub_has_them(folder):
    (folder / "snapshot").mkdir()
    (folder / "snapshot" / "config.json").symlink_to("../config.json")
    source = open_source(str(folder / "snapshot"))
    assert dict(source.files()) == {"config.json": 10}
    assert source.read("config.json", limit=10) == b"0123456789"


def test_tells_an_absent_file_from_a_broken_link(folder):
    (folder / "model.safetensors").symlink_to("nowhere")
    source = open_source(str(folder))
    with pytest.raises(NotFoundError, match=r"no other\.json"):
        source.read("other.json", limit=10)
    with pytest.raises(NotFoundError, match=r"model\.safetensors is a link to nothing"):
        source.read_range("model.safetensors", 0, 10)
    assert source.files()["model.safetensors"] is None


def test_does_not_wait_for_a_pipe(folder):
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a regular file"):
        open_source(str(folder)).read_range("model.safetensors", 0, 10)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_says_when_it_may_not_read(folder):
    (folder / "config.json").chmod(0)
    with pytest.raises(AccessError, match="no permission to read"):
        open_source(str(folder)).read("config.json", limit=10)


def test_a_folder_that_vanishes_is_an_error(folder):
    source = open_source(str(folder / "sub"))
    (folder / "sub" / "part.safetensors").unlink()
    (folder / "sub").rmdir()
    with pytest.raises(SourceError):
        source.files()
