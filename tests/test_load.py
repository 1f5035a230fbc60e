"""From files to the tensor table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drafter_audit.checkpoint.load import checkpoint_files, load_table, read_header
from drafter_audit.checkpoint.shard_reads import FIRST_READ_BYTES
from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.errors import AuditError, CheckpointError, HeaderError, NotFoundError, PickledError, ShardIndexError
from drafter_audit.sources.bundled import bundled_names
from drafter_audit.sources.open import open_source
from tests.hub import header_bytes, write_safetensors, write_sparse

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def load(path: Path) -> TensorTable | None:
    return load_table(open_source(str(path)))


def write_index(folder: Path, weight_map: object, name: str = INDEX) -> None:
    (folder / name).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


@pytest.fixture
def sharded(tmp_path):
    """Tensors a and c in the first shard, b in the second."""
    write_sparse(tmp_path / SHARDS[0], {"c": ("F32", (2, 2)), "a": ("BF16", (3,))}, {"format": "pt"})
    write_sparse(tmp_path / SHARDS[1], {"b": ("I64", (4,))})
    write_index(tmp_path, {"a": SHARDS[0], "c": SHARDS[0], "b": SHARDS[1]})
    return tmp_path


def test_one_file(tmp_path):
    tensors = {"b": ("BF16", (2, 3)), "a": ("F32", ())}
    write_sparse(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    base = len(header_bytes(tensors, {"format": "pt"})[0])
    table = load(tmp_path)
    assert table is not None
    assert table.tensors == (
        TensorInfo("a", "F32", (), "model.safetensors", base + 12, 4),
        TensorInfo("b", "BF16", (2, 3), "model.safetensors", base, 12),
    )
    assert (table.files, table.index, table.metadata) == (("model.safetensors",), None, {"format": "pt"})


def test_real_sizes_take_neither_time_nor_room(tmp_path):
    write_sparse(tmp_path / "model.safetensors", {"lm_head.weight": ("BF16", (163840, 7168))})
    table = load(tmp_path)
    assert table is not None
    assert table["lm_head.weight"].nbytes == 163840 * 7168 * 2


def test_shards(sharded):
    table = load(sharded)
    assert table is not None
    assert [(tensor.name, tensor.file) for tensor in table] == [("a", SHARDS[0]), ("b", SHARDS[1]), ("c", SHARDS[0])]
    assert (table.files, table.index, table.metadata) == (SHARDS, INDEX, {"format": "pt"})


def test_the_index_wins_over_a_whole_file(sharded):
    write_sparse(sharded / "model.safetensors", {"z": ("U8", (1,))})
    assert checkpoint_files(open_source(str(sharded))) == (list(SHARDS), INDEX)


def test_a_lone_file_of_another_name(tmp_path):
    write_sparse(tmp_path / "epoch_2.safetensors", {"a": ("U8", (1,))})
    table = load(tmp_path)
    assert table is not None
    assert table.files == ("epoch_2.safetensors",)


def test_model_safetensors_wins_over_other_files(tmp_path):
    for name in ("adapter.safetensors", "model.safetensors"):
        write_sparse(tmp_path / name, {"a": ("U8", (1,))})
    assert checkpoint_files(open_source(str(tmp_path))) == (["model.safetensors"], None)


def test_several_files_without_an_index_are_one_checkpoint(tmp_path):
    for name in ("b", "a"):
        write_sparse(tmp_path / f"{name}.safetensors", {name: ("U8", (1,))})
    table = load(tmp_path)
    assert table is not None
    assert [(tensor.name, tensor.file) for tensor in table] == [("a", "a.safetensors"), ("b", "b.safetensors")]


def test_a_name_in_two_files_is_refused(tmp_path):
    for name in ("one", "two"):
        write_sparse(tmp_path / f"{name}.safetensors", {"fc.weight": ("U8", (1,))})
    with pytest.raises(CheckpointError, match=r"'fc\.weight' is in one\.safetensors and two\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize("chosen", SHARDS)
def test_of_a_name_in_two_shards_the_index_chooses(sharded, chosen):
    write_sparse(sharded / SHARDS[1], {"a": ("BF16", (3,)), "b": ("I64", (4,))})
    write_index(sharded, {"a": chosen, "c": SHARDS[0], "b": SHARDS[1]})
    table = load(sharded)
    assert table is not None
    assert table["a"].file == chosen


def test_a_file_named_alone_is_read_alone(sharded):
    table = load(sharded / SHARDS[1])
    assert table is not None
    assert (table.files, table.index, len(table)) == ((SHARDS[1],), None, 1)


def test_a_header_longer_than_the_first_read(tmp_path):
    tensors = {f"layers.{index}.weight": ("BF16", (2, 2)) for index in range(2000)}
    path = write_sparse(tmp_path / "model.safetensors", tensors)
    assert len(header_bytes(tensors)[0]) > FIRST_READ_BYTES
    table = load(path)
    assert table is not None
    assert len(table) == 2000


def test_metadata_of_one_file(tmp_path):
    write_sparse(tmp_path / "model.safetensors", {}, {"format": "pt"})
    assert read_header(open_source(str(tmp_path)), "model.safetensors").metadata == {"format": "pt"}


def test_without_weights_there_is_no_table(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert load(tmp_path) is None
    assert load_table(open_source(bundled_names()[0])) is None


@pytest.mark.parametrize(
    ("names", "error", "said"),
    [
        ([], CheckpointError, "empty"),
        (["README.md"], CheckpointError, "neither config.json nor weights"),
        (["config.json", "pytorch_model.bin"], PickledError, "not a zip archive"),
        (["config.json", "pytorch_model-00001-of-00002.bin"], PickledError, "not a zip archive"),
        (["config.json", "training_args.bin"], CheckpointError, "name the weight file itself"),
        (["state.pt"], CheckpointError, "other pickles are not guessed to be weights"),
        (["model-Q4.gguf"], HeaderError, "no GGUF file"),
        (["model-Q4.gguf", "model-Q8.gguf"], CheckpointError, "2 GGUF files (model-Q4.gguf, model-Q8.gguf)"),
        (["config.json", "epoch_1/model.safetensors"], CheckpointError, "name one of its folders instead (epoch_1)"),
    ],
)
def test_says_why_there_are_no_weights(tmp_path, names, error, said):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    expect(error, tmp_path, said, str(tmp_path))


def test_a_bare_pickle_is_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    expect(PickledError, tmp_path / "pytorch_model.bin", "a bare pickle", "pytorch_model.bin")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a git-lfs pointer"),
        (b"<html>Log in</html>", "an HTML page"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, data, said):
    (tmp_path / "model.safetensors").write_bytes(data)
    expect(HeaderError, tmp_path, said, str(tmp_path / "model.safetensors"))


def test_a_truncated_file_is_named(tmp_path):
    path = write_sparse(tmp_path / "model.safetensors", {"a": ("F32", (1000,))})
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 9 // 10)
    expect(HeaderError, tmp_path, "cut short", "model.safetensors")


def test_the_bad_shard_is_named(sharded):
    write_safetensors(sharded / SHARDS[1], {"b": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}, b"x")
    expect(HeaderError, sharded, "tensor 'b'", SHARDS[1])


def test_a_link_to_nothing_is_named(tmp_path):
    (tmp_path / "model.safetensors").symlink_to("absent")
    expect(NotFoundError, tmp_path, "model.safetensors is a link to nothing", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[1]", "no weight_map"),
        ("{}", "no weight_map"),
        ('{"weight_map": {"a": 1}}', "no weight_map"),
        ('{"weight_map": {}}', "an empty weight_map"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "the key 'a' stands in it twice"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "names '../x.safetensors', outside its folder"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "names '/etc/passwd', outside its folder"),
        ('{"weight_map": {"a": "x\\u001b.safetensors"}}', "names files that are not there (x\\x1b.safetensors)"),
    ],
)
def test_a_bad_index_is_named(tmp_path, text, said):
    (tmp_path / INDEX).write_text(text)
    expect(ShardIndexError, tmp_path, said, INDEX)


def test_absent_shards_are_named(sharded):
    (sharded / SHARDS[0]).unlink()
    expect(ShardIndexError, sharded, f"names files that are not there ({SHARDS[0]})", INDEX)
    write_sparse(sharded / "model.safetensors", {"a": ("U8", (1,))})
    expect(ShardIndexError, sharded, "remove the stale index: model.safetensors is there", INDEX)


def test_many_absent_shards_are_counted(tmp_path):
    write_index(tmp_path, {str(n): f"model-{n:05}-of-00009.safetensors" for n in range(9)})
    expect(ShardIndexError, tmp_path, "model-00002-of-00009.safetensors and 6 more", INDEX)


def test_an_index_of_the_other_format_is_refused(tmp_path):
    (tmp_path / "part.bin").touch()
    write_index(tmp_path, {"a": "part.bin"})
    expect(ShardIndexError, tmp_path, "names 'part.bin', which is no .safetensors file", INDEX)


def test_several_indexes_need_a_choice(tmp_path):
    for name in ("a", "b"):
        write_index(tmp_path, {}, f"{name}.safetensors.index.json")
    expect(ShardIndexError, tmp_path, "several shard indexes", "a.safetensors.index.json, b.safetensors.index.json")


def expect(error: type[AuditError], path: Path, *said: str) -> None:
    with pytest.raises(error) as caught:
        load(path)
    message = str(caught.value)
    assert type(caught.value) is error
    assert caught.value.exit_code == 3
    assert message.isprintable()
    for part in said:
        assert part in message
