"""What torch.save wrote, read without running it: real files, hostile ones, damaged ones, and remote ones."""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import pytest

from drafter_audit.audit.params import count_params
from drafter_audit.audit.rules import find
from drafter_audit.checkpoint import pickle_machine, torch_zip
from drafter_audit.checkpoint.header import Header
from drafter_audit.checkpoint.load import checkpoint_files, load_table
from drafter_audit.checkpoint.pickled import read_pickled
from drafter_audit.checkpoint.torch_objects import DTYPES
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import NotFoundError, PickledError
from drafter_audit.sources.open import open_source
from tests.hub import write_sparse
from tests.hub.torch_files import (
    Entry,
    number,
    numbers,
    state_dict,
    storage,
    tensor,
    text,
    write_archive,
    write_entries,
    write_torch_file,
)

DATA = Path(__file__).parent / "data" / "pickled"
EXPECTED = json.loads((DATA / "expected.json").read_text())
SHARDS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
READABLE = ("state_dict.bin", "protocol4.bin", "module.bin", "attributes.bin", "wrapped.bin", "no_crc.bin", *SHARDS)

# The config.json of the EAGLE authors' trainer for Llama 3.1 8B (eagle/traineagle3/config.json).
EAGLE_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 128000, "draft_vocab_size": 32000, "eos_token_id": 128001,
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 2048, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 1, "num_key_value_heads": 8, "pad_token_id": 0,
    "rms_norm_eps": 1e-05, "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.28.1",
    "vocab_size": 128256,
}  # fmt: skip
EAGLE_TENSORS = {
    "d2t": ("I64", (32000,)), "t2d": ("BOOL", (128256,)),
    "midlayer.self_attn.q_proj.weight": ("F16", (4096, 8192)),
    "midlayer.self_attn.k_proj.weight": ("F16", (1024, 8192)),
    "midlayer.self_attn.v_proj.weight": ("F16", (1024, 8192)),
    "midlayer.self_attn.o_proj.weight": ("F16", (4096, 4096)),
    "midlayer.mlp.gate_proj.weight": ("F16", (14336, 4096)), "midlayer.mlp.up_proj.weight": ("F16", (14336, 4096)),
    "midlayer.mlp.down_proj.weight": ("F16", (4096, 14336)), "midlayer.hidden_norm.weight": ("F16", (4096,)),
    "midlayer.input_layernorm.weight": ("F16", (4096,)), "midlayer.post_attention_layernorm.weight": ("F16", (4096,)),
    "norm.weight": ("F16", (4096,)), "fc.weight": ("F16", (4096, 12288)), "lm_head.weight": ("F16", (32000, 4096)),
}  # fmt: skip
BODY, HEAD = 293_617_664, 131_072_000  # published: 293.6M and 131.1M, 424.7M fp16 values in a file of 850 MB


def read(path: Path) -> Header:
    return read_pickled(open_source(str(path.parent)), path.name)


def refuse(path: Path, *said: str) -> None:
    with pytest.raises(PickledError) as caught:
        read(path)
    message = str(caught.value)
    assert message.isprintable()
    for part in (*said, path.name):
        assert part in message


# --- files that torch wrote


@pytest.mark.parametrize("name", READABLE)
def test_names_shapes_and_dtypes_are_torchs_own(name):
    entries, expected = read(DATA / name).entries, EXPECTED[name]
    assert [entry.name for entry in entries] == list(expected)
    for entry in entries:
        told = expected[entry.name]
        assert (entry.dtype, list(entry.shape)) == (DTYPES[told["dtype"].removeprefix("torch.")], told["shape"])
        assert entry.nbytes == len(told["values"]) // 2


@pytest.mark.parametrize("name", READABLE)
def test_a_tensor_begins_where_its_values_lie(name):
    data = (DATA / name).read_bytes()
    for entry in read(DATA / name).entries:
        told = EXPECTED[name][entry.name]
        if entry.strides is None:
            assert data[entry.start : entry.start + entry.nbytes].hex() == told["values"]
        else:
            assert list(entry.strides) == told["stride"]
            assert told["values"].startswith(data[entry.start : entry.start + 4].hex())


def test_views_are_counted_by_shape_and_noted():
    header = read(DATA / "state_dict.bin")
    assert [entry.name for entry in header.entries if entry.strides] == ["column", "transposed"]
    assert "rows shares its storage with base" in header.notes
    assert "transposed [4, 6] is a view with the strides [1, 4]" in header.notes
    assert not any("one_column" in note for note in header.notes)


def test_a_dict_around_the_weights_is_said():
    assert read(DATA / "wrapped.bin").notes == (
        "the tensors lie under 'state_dict'",
        "'epoch' is no tensor and is left out",
    )


def test_two_models_in_one_file_are_refused():
    refuse(DATA / "two_models.bin", "several state dicts ('model', 'ema')")


def test_the_format_before_zip_is_refused_with_advice():
    refuse(DATA / "legacy.bin", "before 1.6", "safetensors.torch.save_file(torch.load(FILE, weights_only=True)")


def test_a_tar_is_refused_with_advice(tmp_path):
    (tmp_path / "old.bin").write_bytes(bytes(257) + b"ustar" + bytes(500))
    refuse(tmp_path / "old.bin", "a tar archive", "weights_only=True")


def test_shards_with_an_index():
    table = load_table(open_source(str(DATA)))
    assert table is not None
    assert [(tensor.name, tensor.file) for tensor in table] == [("d2t", SHARDS[1]), ("fc.weight", SHARDS[0])]
    assert (table.files, table.index, table.index_faults) == (SHARDS, "pytorch_model.bin.index.json", ())


def test_python_itself_agrees_with_the_directory(tmp_path):
    """Not torch's layout: no alignment, sizes in the header. Each place is then read from the entry's own header."""
    few = {"a": ("F32", (3,)), "b": ("F16", (2, 2))}
    with zipfile.ZipFile(tmp_path / "plain.bin", "w") as archive:
        archive.writestr("x/data.pkl", state_dict(few))
        archive.writestr("x/data/0", b"A" * 12)
        archive.writestr("x/data/1", b"B" * 8)
    data = (tmp_path / "plain.bin").read_bytes()
    found = {
        entry.name: data[entry.start : entry.start + entry.nbytes] for entry in read(tmp_path / "plain.bin").entries
    }
    assert found == {"a": b"A" * 12, "b": b"B" * 8}


def test_sizes_above_32_bits(tmp_path):
    """A hole of 6 GB, by Python's own writer: 64-bit sizes, and a 64-bit end record for what lies beyond it."""
    shape = (3 * 2**20, 1024)
    path = tmp_path / "large.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", state_dict({"embed": ("F16", shape)}))
        info = zipfile.ZipInfo("x/data/0")
        with archive.open(info, "w", force_zip64=True) as entry:
            entry.write(b"")
            at = archive.fp.tell()
            archive.fp.seek(2 * shape[0] * shape[1], 1)
            entry._file_size = entry._compress_size = 2 * shape[0] * shape[1]
    (found,) = read(path).entries
    assert (found.nbytes, found.start) == (6 * 2**30, at)


# --- which files count


def test_safetensors_come_first_and_the_pickle_beside_is_told(tmp_path):
    write_sparse(tmp_path / "model.safetensors", {"fc.weight": ("F16", (4, 12))})
    write_torch_file(tmp_path / "pytorch_model.bin", {"fc.weight": ("F16", (4, 24))})
    (tmp_path / "config.json").write_text(json.dumps(EAGLE_CONFIG))
    spec = open_drafter(str(tmp_path))
    assert spec.table is not None
    assert (spec.table.files, spec.table.ignored) == (("model.safetensors",), ("pytorch_model.bin",))
    codes = {finding.code: finding for finding in find(spec)}
    assert (codes["WEIGHTS-IGNORED"].severity, codes["WEIGHTS-IGNORED"].file) == ("info", "pytorch_model.bin")
    assert "WEIGHTS-PICKLED" not in codes


def test_only_model_files_are_guessed(tmp_path):
    for name in ("training_args.bin", "optimizer.pt", "pytorch_model.bin"):
        write_torch_file(tmp_path / name, {"a": ("F16", (1,))})
    assert checkpoint_files(open_source(str(tmp_path))) == (["pytorch_model.bin"], None)
    assert checkpoint_files(open_source(str(tmp_path / "optimizer.pt"))) == (["optimizer.pt"], None)


# --- a published drafter at its real size


@pytest.fixture
def eagle(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(EAGLE_CONFIG))
    write_torch_file(tmp_path / "pytorch_model.bin", EAGLE_TENSORS)
    return tmp_path


def test_the_authors_drafter_counts_as_published(eagle):
    spec = open_drafter(str(eagle))
    assert (spec.kind.name, spec.dialect.name, spec.parameters.counted_from) == ("eagle3", "eagle", "headers")
    assert (spec.parameters.stored, spec.parameters.trainable) == (BODY + HEAD, BODY + HEAD)
    assert round((BODY + HEAD) / 1e6, 1) == 424.7
    assert round((eagle / "pytorch_model.bin").stat().st_size / 1e6) == 850
    roles = {tensor.name: (tensor.role, tensor.elements) for tensor in spec.tensors}
    assert roles["lm_head.weight"] == ("trainable", HEAD)
    assert roles["embed_tokens.weight"] == ("borrowed", 128256 * 4096)
    assert roles["d2t"] == ("buffer", 32000)
    (finding,) = (finding for finding in find(spec) if finding.code == "WEIGHTS-PICKLED")
    assert (finding.severity, finding.file, finding.evidence) == (
        "info", "pytorch_model.bin", {"files": 1, "notes": 0, "first": []},
    )  # fmt: skip
    assert "WEIGHTS-PICKLED" in {finding.code for finding in count_params([spec]).drafters[0].findings}


def test_a_remote_file_costs_its_head_and_its_tail(hub, eagle):
    hub.add_repo("org/drafter", {path.name: path for path in eagle.iterdir()}, lfs=True)
    source = open_source("org/drafter")
    assert source.files()
    hub.requests.clear()
    table = load_table(source)
    assert table is not None
    assert sum(tensor.elements for tensor in table if tensor.dtype == "F16") == BODY + HEAD
    size = (eagle / "pytorch_model.bin").stat().st_size
    ranges = [request.range for request in hub.requests if request.status == 206]
    assert ranges == ["bytes=0-65535", f"bytes={size - 65536}-{size - 1}"]
    assert hub.sent < 140_000


def test_many_tensors_cost_no_request_each(hub, tmp_path):
    tensors = {f"layers.{number}.weight": ("BF16", (2, 2)) for number in range(1000)}
    path = write_torch_file(tmp_path / "pytorch_model.bin", tensors)
    hub.add_repo("org/target", {"pytorch_model.bin": path})
    remote = load_table(open_source("org/target"))
    assert remote is not None
    # The head, the tail, the directory, the pickle and the byte order.
    assert sum(request.range is not None for request in hub.requests) == 5
    data = path.read_bytes()
    starts = [data.index(f"pytorch_model/data/{key}".encode()) for key in (0, 999)]
    found = [remote[f"layers.{number}.weight"].start for number in (0, 999)]
    # Each begins at the first multiple of 64 after its name and the head of the padding.
    assert found == [
        -(-(at + len(f"pytorch_model/data/{key}") + 4) // 64) * 64 for at, key in zip(starts, (0, 999), strict=True)
    ]


def test_remote_shards(hub):
    hub.add_repo("org/drafter", {path.name: path for path in DATA.glob("pytorch_model*")})
    table = load_table(open_source("org/drafter"))
    assert table is not None
    assert [tensor.name for tensor in table] == ["d2t", "fc.weight"]


def test_a_size_that_no_listing_tells_is_an_error(hub):
    hub.add_repo("org/drafter", {"pytorch_model.bin": DATA / "module.bin"}, sizes=False)
    with pytest.raises(PickledError, match="its size is not listed"):
        load_table(open_source("org/drafter"))


def test_a_link_to_nothing_is_named(tmp_path):
    (tmp_path / "pytorch_model.bin").symlink_to("absent")
    with pytest.raises(NotFoundError, match="is a link to nothing"):
        load_table(open_source(str(tmp_path)))


# --- hostile pickles


class Touch:
    """Unpickled by the ordinary unpickler, it writes a file."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def __reduce__(self):
        code = f"open({str(self.path)!r}, 'w').close()"
        return (exec, (code,)) if self.name == "exec" else (Path.touch, (self.path,))


SENTINEL = "drafter_audit_sentinel"
PROTO, EMPTY = b"\x80\x02", b"}"
ONE = text("a") + tensor("0", "F16", (1,))
HOSTILE = {
    "GLOBAL": (PROTO + b"cos\nsystem\n" + text("touch x") + b"\x85R.", "its pickle asks for os.system"),
    "STACK_GLOBAL": (b"\x80\x04\x8c\x02os\x8c\x06system\x93" + text("x") + b"\x85R.", "asks for os.system"),
    "eval": (PROTO + b"cbuiltins\neval\n" + text("1") + b"\x85R.", "asks for builtins.eval"),
    "getattr": (PROTO + b"c__builtin__\ngetattr\n.", "asks for __builtin__.getattr"),
    "an attribute of an allowed name": (b"\x80\x04\x8c\x05torch\x8c\x0fTensor.__init__\x93.", "torch.Tensor.__"),
    "torch.load": (PROTO + b"ctorch.storage\n_load_from_bytes\n.", "asks for torch.storage._load_from_bytes"),
    "an import": (PROTO + f"c{SENTINEL}\nanything\n.".encode(), f"asks for {SENTINEL}.anything"),
    "INST": (b"(S'touch x'\nios\nsystem\n.", "opcode STRING"),
    "INST alone": (b"(ios\nsystem\n.", "opcode INST (os system)"),
    "OBJ": (PROTO + b"(ccollections\nOrderedDict\no.", "opcode OBJ"),
    "NEWOBJ": (PROTO + b"ccollections\nOrderedDict\n)\x81.", "opcode NEWOBJ"),
    "EXT1": (PROTO + b"\x82\x01.", "opcode EXT1 (1)"),
    "PERSID": (b"Px\n.", "opcode PERSID"),
    "a call of data": (PROTO + text("os.system") + b")R.", "calls a value of type str"),
    "a call of a dtype": (PROTO + b"ctorch\nfloat16\n)R.", "calls torch.float16"),
    "arguments of no tuple": (PROTO + b"ccollections\nOrderedDict\n]R.", "arguments that are no tuple"),
    "BUILD of a dict": (PROTO + b"}}b.", "sets the state of a value of type dict"),
    "BUILD of more than metadata": (
        PROTO + b"ccollections\nOrderedDict\n)R}" + text("__class__") + b"Nsb.", "sets the state of",
    ),
    "BUILD of a global": (PROTO + b"ctorch\nTensor\n}b.", "sets the state of torch.Tensor"),
    "OrderedDict with arguments": (PROTO + b"ccollections\nOrderedDict\n]\x85R.", "OrderedDict with 1 arguments"),
    "a persistent id of text": (PROTO + text("storage") + b"Q.", "names a storage by a value of type str"),
    "a persistent id of another kind": (PROTO + storage("0", 1).replace(b"storage", b"stotage", 1) + b".", "tuple"),
    "a persistent id of too few parts": (PROTO + b"(" + text("storage") + b"tQ.", "names a storage by a value of type"),
    "a persistent id with a dtype": (PROTO + storage("0", 1).replace(b"HalfStorage", b"float16"), "names a storage"),
    "a persistent id that is negative": (PROTO + storage("0", -1) + b".", "names a storage"),
    "negative strides": (
        PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage("0", 4) + number(3) + numbers((4,)) + numbers((-1,))
        + b"\x89}tR.", "by something else than a storage",
    ),
    "a rank that differs": (
        PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage("0", 4) + number(0) + numbers((4,)) + numbers((1, 1))
        + b"\x89}tR.", "describes a tensor of [4] by the strides [1, 1]",
    ),
    "sizes beyond 64 bits": (
        PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage("0", 4) + number(0) + numbers((2**40, 2**40))
        + numbers((0, 0)) + b"\x89}tR.", "describes a tensor of",
    ),
    "itself": (PROTO + b"}q\x00" + text("model") + b"h\x00s.", "it holds no tensors"),
    "nesting": (PROTO + b"(" * 5000 + b"t" * 5000 + b".", "nested deeper than 1000"),
    "nested tuples": (PROTO + b")" + b"\x85" * 50_000 + b".", "it holds tuple, no state dict"),
    "a deep key": (PROTO + b"})" + b"\x85" * 50_000 + b"Ns.", "a dict key of type tuple"),
    "a tuple doubled 200 times": (PROTO + b")q\x00" + b"h\x00\x86q\x00" * 200 + b".", "it holds tuple, no state dict"),
    "a memo without a value": (PROTO + b"q\x00.", "remembers nothing"),
    "an unknown memo": (PROTO + b"h\x05.", "recalls what it did not remember"),
    "an empty stack": (PROTO + b"\x85.", "takes from an empty stack"),
    "a mark that is not open": (PROTO + b"t.", "closes a mark that is not open"),
    "items of a list": (PROTO + b"]NNs.", "sets items of something that is no dict"),
    "elements of a dict": (PROTO + b"}Na.", "appends to something that is no list"),
    "a name twice": (PROTO + b"}(" + ONE + ONE + b"u.", "sets the key 'a' twice"),
    "a tensor without a name": (PROTO + b"}" + number(5) + tensor("0", "F16", (1,)) + b"s.", "names a tensor by 5"),
    "two objects": (PROTO + b"}}.", "does not end with one object"),
    "more after the end": (PROTO + b"}.}.", "goes on after its end"),
    "no end": (PROTO + b"}", "cut short"),
    "a cut string": (PROTO + b"X\xff\xff\xff\x7fabc.", "cut short or damaged"),
    "no opcode": (PROTO + b"\xff.", "cut short or damaged"),
    "a huge decimal": (b"I" + b"9" * 100_000 + b"\n.", "cut short or damaged"),
    "nothing": (b"", "cut short or damaged"),
    "no tensors": (PROTO + b"}.", "it holds no tensors"),
    "a bare tensor": (PROTO + tensor("0", "F16", (1,)) + b".", "it holds a tensor, no state dict"),
    "weights under another name": (PROTO + b"}" + text("optimizer") + EMPTY + ONE + b"ss.", "but under 'optimizer'"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_is_refused_by_name(tmp_path, monkeypatch, case):
    (tmp_path / f"{SENTINEL}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    data, said = HOSTILE[case]
    refuse(write_archive(tmp_path / "bad.bin", data, {"0": 2}), said)
    assert SENTINEL not in sys.modules
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("name", ["exec", "touch"])
@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(tmp_path, name, protocol):
    """What the ordinary unpickler runs writes a file; our reader only names what it was asked for."""
    sentinel = tmp_path / "written"
    data = pickle.dumps({"a": Touch(sentinel, name)}, protocol=protocol)
    refuse(write_archive(tmp_path / "bad.bin", data, {}), "its pickle")
    assert not sentinel.exists()
    pickle.loads(data)
    assert sentinel.exists(), "the pickle is harmless, and the test proves nothing"


def test_what_is_refused_is_told_apart(tmp_path):
    refuse(write_archive(tmp_path / "bad.bin", HOSTILE["GLOBAL"][0], {}), "do not load it, ask its author")


def test_bounds(tmp_path, monkeypatch):
    path = write_archive(tmp_path / "few.bin", state_dict({"a": ("F16", (1,)), "b": ("F16", (1,))}), {"0": 2, "1": 2})
    assert len(read(path).entries) == 2
    for module, bound, least, said in (
        (pickle_machine, "MAX_OPCODES", 40, "more than 40 opcodes"),
        (torch_zip, "MAX_PICKLE_BYTES", 100, "more than 100"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, bound, least)
            refuse(path, said)
    with monkeypatch.context() as patch:
        patch.setattr(pickle_machine, "MAX_MEMO", 1)
        refuse(DATA / "module.bin", "more than 1 objects")


# --- hostile and damaged archives

GOOD = state_dict({"a": ("F16", (1,))})


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([("a/data.pkl", GOOD), ("a/data.pkl", GOOD)], "two entries of one name"),
        ([("a/data.pkl", GOOD), ("b/data.pkl", GOOD)], "2 pickles named data.pkl"),
        ([("a/data.pkl", GOOD), ("b/data/0", b"ab")], "'b/data/0' lies outside 'a/'"),
        ([("a/data.pkl", GOOD), ("a/../../data/0", b"ab")], "leaves its folder"),
        ([("/a/data.pkl", GOOD)], "leaves its folder"),
        ([("a/data.pkl", GOOD), ("a/data/0\0x", b"ab")], "leaves its folder"),
        ([("a/data/0", b"ab")], "an archive without data.pkl"),
        ([("a/data.pkl", GOOD), ("a/constants.pkl", b"")], "a TorchScript program"),
        ([("a/data.pkl", GOOD)], "the storage 'a/data/0' is not in the archive"),
        ([("a/data.pkl", GOOD), ("a/data/0", b"abcd")], "storage '0' has 4 bytes, its pickle says 2"),
        ([("a/data.pkl", GOOD), ("a/data/0", b"ab"), ("a/byteorder", b"big")], "big-endian weights"),
    ],
)
def test_an_archive_that_torch_does_not_write_is_refused(tmp_path, entries, said):
    refuse(write_entries(tmp_path / "bad.bin", [Entry(name, data) for name, data in entries]), said)


def test_a_tensor_beyond_its_storage_is_refused(tmp_path):
    data = PROTO + b"}" + text("a") + b"ctorch._utils\n_rebuild_tensor_v2\n("
    data += storage("0", 4) + number(2) + numbers((3,)) + numbers((1,)) + b"\x89}tRs."
    refuse(write_archive(tmp_path / "bad.bin", data, {"0": 8}), "tensor 'a' of [3] leaves its storage")


def test_a_compressed_bomb_is_refused_before_it_is_inflated(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(50_000_000))
    refuse(tmp_path / "bomb.bin", "'a/data.pkl' is compressed")


def patched(path: Path, mark: bytes, offset: int, value: bytes) -> Path:
    """`path` with `value` at `offset` after every `mark`."""
    data = bytearray(path.read_bytes())
    at = data.find(mark)
    while at >= 0:
        data[at + offset : at + offset + len(value)] = value
        at = data.find(mark, at + 4)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("mark", "offset", "value", "said"),
    [
        (b"PK\1\2", 8, b"\1\0", "is encrypted"),
        (b"PK\1\2", 10, b"\x0e\0", "is compressed"),
        (b"PK\1\2", 42, struct.pack("<I", 10**9), "leaves the archive"),
        (b"PK\1\2", 24, struct.pack("<I", 10**9), "is compressed"),
        (b"PK\1\2", 46, b"x", "what the directory says"),
        (b"PK\3\4", 30, b"x", "what the directory says"),
        (b"PK\1\2", 0, b"XXXX", "its directory cannot be read"),
        (b"PK\5\6", 12, struct.pack("<I", 2**31), "its directory cannot be read"),
        (b"PK\1\2", 6, b"\xff\xff", "its directory cannot be read"),
        (b"\x80\x02}", 0, b"\x80\x03}", "its checksum is wrong"),
    ],
)
def test_a_patched_archive_is_refused(tmp_path, mark, offset, value, said):
    path = write_entries(tmp_path / "bad.bin", [Entry("a/data.pkl", GOOD), Entry("a/data/0", b"ab")])
    refuse(patched(path, mark, offset, value), said)


def test_a_directory_that_claims_too_much_is_not_read(tmp_path):
    """The directory's size is the archive's own claim: a file of real size could back it."""
    path = write_archive(tmp_path / "huge.bin", GOOD, {"0": 2 * torch_zip.MAX_DIRECTORY_BYTES})
    data = path.read_bytes()[-22:]
    with path.open("r+b") as file:
        file.seek(-22, 2)
        file.write(data[:12] + struct.pack("<II", path.stat().st_size - 22, 0) + data[20:])
    refuse(path, f"at most {torch_zip.MAX_DIRECTORY_BYTES} are read")


@pytest.mark.parametrize("name", ["module.bin", "protocol4.bin"])
def test_every_cut_is_one_clear_error(tmp_path, name):
    whole = (DATA / name).read_bytes()
    for size in range(0, len(whole), 7):
        (tmp_path / "cut.bin").write_bytes(whole[:size])
        refuse(tmp_path / "cut.bin")


@pytest.mark.parametrize("name", ["module.bin", "no_crc.bin"])
def test_no_changed_byte_is_more_than_an_error(tmp_path, name):
    """Without checksums a change may go unseen; it never leads out of the reader or out of the file."""
    whole = (DATA / name).read_bytes()
    for at in range(0, len(whole), 3):
        (tmp_path / "changed.bin").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with contextlib.suppress(PickledError):
            for entry in read(tmp_path / "changed.bin").entries:
                assert 0 <= entry.start <= entry.start + entry.nbytes <= len(whole)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_bare_pickles_are_told_apart_whatever_their_protocol(tmp_path: Path, protocol: int) -> None:
    """torch before 1.6 wrote its magic number as the first of several pickles."""
    path = tmp_path / "old.bin"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=protocol) + pickle.dumps({}, protocol=protocol))
    refuse(path, "before 1.6", "safetensors.torch.save_file(torch.load(FILE, weights_only=True)")
    path.write_bytes(pickle.dumps({"a": 1}, protocol=protocol))
    refuse(path, "a bare pickle, which torch.save did not write", "save a state_dict()")
