"""A drafter's own values: what is read of them, from where, in how many bytes, and what is said of what cannot be."""

from __future__ import annotations

import json
import re
import time
from math import prod
from pathlib import Path

import numpy as np
import pytest

from drafter_audit.audit.compare import compare
from drafter_audit.audit.freshness import start_of
from drafter_audit.audit.lint import Lint, lint
from drafter_audit.checkpoint.header import DTYPE_BITS
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.stored_values import StoredValues, Table, read_values
from drafter_audit.drafter.value_reads import MOST_BYTES, MOST_READS
from drafter_audit.errors import NetworkError
from drafter_audit.measure.tables import measure_block
from drafter_audit.measure.vocabulary import Slip, measure_map
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, kimi_tensors, read_peer, write_checkpoint
from tests.findings.values import EMBED, HEAD, norms, trained, write
from tests.findings.vocabulary_map import CHOSEN, DRAFT, ROWS, VOCABULARY, changed, marks
from tests.hub import Hub
from tests.hub.torch_files import numbers, state_dict, text, write_archive, write_torch_file
from tests.rows import Array, bf16, cut_peer, peer_rows, write_arrays, write_rows

GGUF = Path(__file__).parent / "data" / "gguf"
OURS = ("D2T", "HEAD", "EMB", "NORM-O", "NORM-Z", "VALUES")


def read(ref: str) -> StoredValues:
    values = read_values(open_drafter(ref))
    assert values is not None
    return values


def told(found: Lint) -> dict[str, str]:
    return {finding.code: finding.severity for finding in found.findings if finding.code.startswith(OURS)}


def kimi(folder: Path) -> str:
    return write_checkpoint(folder, KIMI_CONFIG, {**kimi_tensors(), **EMBEDDING})


# --- where values lie


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes(tmp_path: Path, dtype: str) -> None:
    wide = 1 + trained(1)[0]
    stored = bf16(wide) if dtype == "bfloat16" else wide.astype(dtype)
    values = (stored.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else stored.astype(np.float32)
    (norm,) = (norm for norm in read(write(tmp_path, norms(stored))).norms if "hidden" in norm.name)
    assert (norm.least, norm.greatest) == (float(values.min()), float(values.max()))
    assert (norm.elements, norm.non_finite) == (64, 0)


def test_shards(tmp_path: Path) -> None:
    """Each tensor is read from the file that holds it."""
    config, tensors, _ = read_peer("specforge_eagle3")
    split = {"a.safetensors": {"d2t", "t2d", EMBED}, "b.safetensors": tensors.keys() - {"d2t", "t2d", EMBED}}
    rows = {
        "d2t": {0: (CHOSEN - ROWS).tobytes()},
        "t2d": {0: marks(CHOSEN).tobytes()},
        HEAD: {0: trained(128).tobytes()},
    }
    for file, names in split.items():
        held = {name: of for name, of in rows.items() if name in names}
        write_rows(tmp_path, {name: tensors[name] for name in sorted(names)}, held, file=file)
    index = {"weight_map": {name: file for file, names in split.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text(json.dumps(config))
    values = read(str(tmp_path))
    assert values.map is not None
    assert (values.map.unmarked, values.map.unmapped, values.map.marked) == (None, None, DRAFT)
    assert values.head is not None
    assert (values.head.file, values.head.blocks[0].zero_rows) == ("b.safetensors", 0)


def _pickled(folder: Path, d2t: Array) -> str:
    """A drafter as torch.save writes it, holes but for the map."""
    config, tensors, _ = read_peer("specforge_eagle3")
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "pytorch_model.bin"
    write_torch_file(path, tensors)
    entry = open_drafter(str(folder)).clues.tensors["d2t"]
    with path.open("r+b") as file:
        file.seek(entry.start)
        file.write(d2t.tobytes())
    return str(folder)


def test_a_pickled_file(tmp_path: Path) -> None:
    values = read(_pickled(tmp_path, CHOSEN - ROWS))
    assert values.map is not None
    assert (values.map.outside, values.map.repeated, values.map.identity, values.unread) == (None, None, False, ())


def test_a_pickled_view_is_named(tmp_path: Path) -> None:
    """A transposed head: its bytes are not its rows."""
    config, tensors, _ = read_peer("specforge_eagle3")
    (tmp_path / "config.json").write_text(json.dumps(config))
    before, name, after = state_dict(tensors).partition(text(HEAD))
    rows, columns = tensors[HEAD][1]
    view = before + name + after.replace(numbers((columns, 1)), numbers((1, rows)), 1)
    sizes = {str(key): prod(shape) * DTYPE_BITS[of] // 8 for key, (of, shape) in enumerate(tensors.values())}
    write_archive(tmp_path / "pytorch_model.bin", view, sizes)
    values = read_values(open_drafter(str(tmp_path)))
    assert values is not None
    assert values.head is None
    assert [name for name, why in values.unread if "view" in why] == [HEAD]


def test_a_gguf_file_holds_ids() -> None:
    """llama.cpp's converter writes target ids, where all others write offsets: tests/data/gguf/make.py.txt."""
    ref = str(GGUF / "drafter.gguf")
    values = read(ref)
    assert values.map is not None
    assert (values.map.entries, values.map.outside, values.map.repeated, values.map.holds_ids) == (
        48,
        None,
        None,
        False,
    )
    assert told(lint(ref)).keys() & {"D2T-ABS", "D2T-RANGE", "D2T-DUP"} == set()


def test_on_the_hub(hub: Hub, tmp_path: Path) -> None:
    kimi(tmp_path)
    files = {name: tmp_path / name for name in ("config.json", "model.safetensors")}
    hub.add_repo("org/drafter", files)
    spec = open_drafter("org/drafter")
    before, asked = hub.sent, len(hub.requests)
    values = read_values(spec)
    assert values is not None
    assert hub.sent - before == values.bytes_read
    assert values.bytes_read == 32000 * 8 + 163840 + 4 * 7168 * 2 + 2 * 4 * 34 * 7168 * 2
    assert len(hub.requests) - asked == 2 + 4 + 2 * 4
    assert {request.status for request in hub.requests[asked:]} == {206}


def test_a_dead_hub_is_no_answer(hub: Hub, tmp_path: Path) -> None:
    kimi(tmp_path)
    hub.add_repo("org/drafter", {name: tmp_path / name for name in ("config.json", "model.safetensors")})
    spec = open_drafter("org/drafter")
    hub.fail(503, times=99, retry_after=0, path="/resolve/")
    with pytest.raises(NetworkError, match="503"):
        read_values(spec)


# --- what is read


def test_blocks_reach_from_the_first_row_to_the_last(tmp_path: Path) -> None:
    head = read(kimi(tmp_path)).head
    assert head is not None
    assert [block.first for block in head.blocks] == [0, (32000 - 34) // 3, (32000 - 34) * 2 // 3, 32000 - 34]
    assert {block.rows for block in head.blocks} == {500_000 // (7168 * 2)}


def test_the_bound(tmp_path: Path) -> None:
    """A d2t of over a million entries is too much, and that is said."""
    tensors = kimi_tensors() | {"d2t": ("I64", (1_000_001,))}
    values = read(write_checkpoint(tmp_path, KIMI_CONFIG, tensors))
    assert values.bytes_read <= MOST_BYTES
    assert [name for name, _ in values.unread] == ["d2t"]
    assert values.not_checked == (
        f"the values of d2t were not checked: with it more than {MOST_BYTES:,} bytes would be read",
    )


def test_thousands_of_norms_are_not_thousands_of_reads(tmp_path: Path) -> None:
    """The map before them and the tables after them are read all the same, and what is left out is said."""
    tensors = kimi_tensors() | {f"layers.0.norms.norm.{place}.weight": ("BF16", (8,)) for place in range(5000)}
    values = read(write_checkpoint(tmp_path, KIMI_CONFIG, tensors))
    reads = 2 + len(values.norms) + sum(len(table.blocks) for table in values.tables)
    assert reads <= MOST_READS
    assert values.head is not None
    assert len(values.unread) == 5004 - len(values.norms)
    assert {why for _, why in values.unread} == {f"with it more than {MOST_READS} reads would be made"}


HOSTILE: dict[str, tuple[str, tuple[int, ...]]] = {
    "d2t": ("I64", (2**31,)),
    "norm.weight": ("BF16", (2**30,)),
    HEAD: ("BF16", (1, 2**24)),
    EMBED: ("BF16", (2**28, 1)),
    "t2d": ("BOOL", (0,)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_shape_ends(tmp_path: Path, name: str) -> None:
    """In bounded bytes and time, with a word for what was not read."""
    start = time.perf_counter()
    found = lint(write_checkpoint(tmp_path, KIMI_CONFIG, {**kimi_tensors(), **EMBEDDING, name: HOSTILE[name]}))
    assert time.perf_counter() - start < 5
    values = found.spec.values
    assert values is not None
    assert values.bytes_read <= MOST_BYTES
    assert name in dict(values.unread) or name == EMBED
    assert all(any(unread in sentence for sentence in found.not_checked) for unread in dict(values.unread))


def test_local_time_at_real_size(tmp_path: Path) -> None:
    """The whole of lint, numpy imported: it stays far from a second."""
    ref = kimi(tmp_path)
    lint(ref)
    start = time.perf_counter()
    lint(ref)
    assert time.perf_counter() - start < 0.5


def test_only_lint_reads_values(tmp_path: Path) -> None:
    refs = [kimi(tmp_path / name) for name in "ab"]
    assert {each.values for each in compare(refs).drafters} == {None}
    assert lint(refs[0]).spec.values is not None


# --- what cannot be read is named


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "why"),
    [
        ("d2t", "I64", (160, 200), r"\[160, 200\]"),
        ("t2d", "F4", (163840,), "packed"),
        ("norm.weight", "I32", (7168,), "I32"),
        ("lm_head.qweight", "I32", (896, 32000), "packed"),
        ("lm_head.weight", "F32", (32000, 7168, 1), "shape"),
        ("d2t", "I64", (0,), "shape"),
    ],
)
def test_unreadable(tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...], why: str) -> None:
    tensors = kimi_tensors()
    if name == "lm_head.qweight":
        del tensors["lm_head.weight"]
        tensors["lm_head.scales"] = ("BF16", (56, 32000))
    values = read(write_checkpoint(tmp_path, KIMI_CONFIG, tensors | {name: (dtype, shape)}))
    (unread,) = values.unread
    assert unread[0] == name
    assert re.search(why, unread[1])
    assert len(values.not_checked) == 1


def test_an_fp8_head_is_scaled(tmp_path: Path) -> None:
    tensors = kimi_tensors() | {HEAD: ("F8_E4M3", (32000, 7168)), "lm_head.weight_scale": ("F32", (1,))}
    values = read(write_checkpoint(tmp_path, KIMI_CONFIG, tensors))
    assert values.unread == ((HEAD, "lm_head.weight is quantised, with lm_head.weight_scale"),)


def test_a_file_that_is_cut_after_it_was_opened(tmp_path: Path) -> None:
    spec = open_drafter(kimi(tmp_path))
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(spec.clues.tensors["t2d"].start + 10)
    values = read_values(spec)
    assert values is not None
    assert [name for name, why in values.unread if "ends early: 10 of 163840 bytes" in why] == ["t2d"]
    assert values.map is not None


def test_masks_and_maps_of_other_meanings(tmp_path: Path) -> None:
    t2d = np.arange(VOCABULARY, dtype=np.int64)
    values = read(write(tmp_path, {"t2d": t2d, "d2t": np.full(DRAFT, 0.5, np.float32)}))
    assert dict(values.unread) == {
        "t2d": "it holds other numbers than 0 and 1, so it is no mask",
        "d2t": "it holds numbers that are not whole",
    }
    assert values.map is None


def test_a_plain_model_is_not_read(tmp_path: Path) -> None:
    config, tensors, _ = read_peer("tiny_llama")
    assert read_values(open_drafter(write_checkpoint(tmp_path, config, tensors))) is None


def test_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(KIMI_CONFIG))
    assert read_values(open_drafter(str(tmp_path))) is None


# --- what is said of it


def test_a_trained_drafter_of_a_peer(tmp_path: Path) -> None:
    """SpecForge's own head, map and norms after 255 steps of its loop: nothing to say."""
    config, tensors, _ = read_peer("specforge_trained")
    rows = peer_rows("specforge_trained") | {EMBED: np.tile(peer_rows("specforge_trained")[EMBED], (8, 1))}
    others = {name: of for name, of in tensors.items() if name not in rows}
    assert told(lint(write_arrays(tmp_path, config, others, rows))) == {}


def test_a_fresh_drafter_of_a_peer(tmp_path: Path) -> None:
    """SpecForge's own rows of a drafter that was never trained, its embedding that of a random target.

    Of the head there are 23 rows of 64: too few to tell.
    """
    found = told(lint(cut_peer(tmp_path, "specforge_eagle3", **norms())))
    assert (found.get("EMB-RANDOM"), found.get("HEAD-RANDOM")) == ("warning", None)


def test_an_embedding_that_is_the_targets_is_not_called_random(tmp_path: Path) -> None:
    target = tmp_path / "target"
    rows = peer_rows("tiny_llama")
    write_arrays(target, read_peer("tiny_llama")[0] | {"vocab_size": 64}, {}, rows)
    ref = write(tmp_path / "drafter", {EMBED: rows["model.embed_tokens.weight"]}, initializer_range=0.15, vocab_size=64)
    assert "EMB-RANDOM" in told(lint(ref))
    assert "EMB-RANDOM" not in told(lint(ref, target=str(target)))


def test_reserved_tokens_are_a_remark(tmp_path: Path) -> None:
    """Equal or zero rows in the last block alone: untrained tokens lie there."""
    for name, row, code in (("equal", 1.0, "HEAD-DUPROWS"), ("zero", 0.0, "HEAD-ZERO")):
        head = bf16(trained(40_000))
        head[-1000:] = bf16(np.full((1000, 64), row))
        arrays = {HEAD: head, "d2t": np.zeros(40_000, np.int64)}
        ref = write(tmp_path / name, arrays, draft_vocab_size=40_000, vocab_size=40_000)
        assert told(lint(ref))[code] == "info"


def test_one_still_norm_among_moved_ones_is_graver_than_all(tmp_path: Path) -> None:
    ones = np.ones(64, np.float32)
    assert told(lint(write(tmp_path / "one", norms(ones)))) == {"NORM-ONES": "warning"}
    assert told(lint(write(tmp_path / "all", dict.fromkeys(norms(), ones)))) == {"NORM-ONES": "info"}


@pytest.mark.parametrize(("left_out", "severity"), [(5, "info"), (384, "error")])
def test_an_identity_map_may_leave_out_padding(tmp_path: Path, left_out: int, severity: str) -> None:
    drafts = VOCABULARY - left_out
    arrays = {"d2t": np.zeros(drafts, np.int64), HEAD: trained(drafts), EMBED: trained(VOCABULARY)}
    ref = write(tmp_path, arrays, draft_vocab_size=drafts)
    assert told(lint(ref))["D2T-ZERO"] == severity


# --- fresh and trained tables


def _truncated(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Normal values within two standard deviations, as JAX's truncated_normal draws them."""
    values = rng.normal(0, 1, shape)
    while (far := abs(values) > 2).any():
        values[far] = rng.normal(0, 1, int(far.sum()))
    return values * 0.02


FRESH = {
    "initializer_range": lambda rng, shape: rng.normal(0, 0.02, shape),
    "another range": lambda rng, shape: rng.normal(0, 0.037, shape),
    "nn.Embedding": lambda rng, shape: rng.normal(0, 1, shape),
    "nn.Linear": lambda rng, shape: rng.uniform(-1, 1, shape) / np.sqrt(shape[1]),
    "kaiming_normal_": lambda rng, shape: rng.normal(0, np.sqrt(2 / shape[1]), shape),
    "xavier_uniform_": lambda rng, shape: rng.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape)),
    "truncated": _truncated,
}
TRAINED = {
    "norms of rows spread by a tenth": lambda rng, shape: (
        rng.normal(0, 0.02, shape) * rng.lognormal(0, 0.1, (shape[0], 1))
    ),
    "norms of columns too": lambda rng, shape: rng.normal(0, 0.02, shape) * rng.lognormal(0, 0.1, (1, shape[1])),
    "tails of Student's t": lambda rng, shape: rng.standard_t(15, shape) * 0.02,
    "of low rank, with noise": lambda rng, shape: (
        rng.normal(0, 0.02, (shape[0], 16)) @ rng.normal(0, 0.25, (16, shape[1])) + rng.normal(0, 0.01, shape)
    ),
    "rows of one norm": lambda rng, shape: (lambda made: made / np.linalg.norm(made, axis=1, keepdims=True))(
        rng.normal(0, 1, shape)
    ),
}


@pytest.mark.parametrize("width", [64, 1024])
@pytest.mark.parametrize("made", [*FRESH, *TRAINED])
def test_a_fresh_head_is_told_from_a_trained_one(tmp_path: Path, made: str, width: int) -> None:
    """Of any initialisation, and of any standard deviation; the rates over 500 draws stand in audit/freshness.py."""
    draw = {**FRESH, **TRAINED}[made](np.random.default_rng(width), (512, width))
    data = bf16(draw.astype(np.float32))
    block = measure_block(data.tobytes(), "BF16", first=0, width=width)
    spec = open_drafter(write(tmp_path, {}))
    found = start_of(spec, Table(HEAD, "model.safetensors", "BF16", 512, width, (block,)))
    assert (found is not None) == (made in FRESH)


def test_a_block_of_one_row_tells_nothing(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(0, 0.02, (1, 8192)).astype(np.float32)
    block = measure_block(data.tobytes(), "F32", first=0, width=8192)
    assert (
        start_of(open_drafter(write(tmp_path, {})), Table(HEAD, "model.safetensors", "F32", 1, 8192, (block,))) is None
    )


def test_equal_rows_by_the_formula(tmp_path: Path) -> None:
    """Two of a hundred pairs may be equal: a fault that chose rows by offsets makes all equal whose entries are, which
    of tokens chosen by chance are a quarter, as many as the vocabulary is reduced by."""
    offsets = CHOSEN - ROWS
    share = (np.diff(offsets) == 0).mean()
    assert share == pytest.approx(DRAFT / VOCABULARY, abs=4 * np.sqrt(0.25 * 0.75 / DRAFT))
    for equal, severity in ((2, None), (3, "error")):
        rows = np.arange(DRAFT)
        rows[10 : 10 + 10 * equal : 10] -= 1
        ref = write(tmp_path / str(equal), {HEAD: trained(DRAFT)[rows]})
        assert told(lint(ref)).get("HEAD-DUPROWS") == severity


# --- the arithmetic, against what a loop over the entries says


@pytest.mark.parametrize("seed", range(20))
def test_maps_against_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d2t, t2d = rng.integers(-2, 12, 16), rng.random(20) < 0.5
    found = measure_map(d2t, t2d, 20, absolute=False)
    targets = [row + int(offset) for row, offset in enumerate(d2t)]
    outside = [row for row, target in enumerate(targets) if not 0 <= target < 20]
    repeated = [row for row, target in enumerate(targets) if target in targets[:row]]
    unmarked = [row for row, target in enumerate(targets) if 0 <= target < 20 and not t2d[target]]
    unmapped = [token for token in range(20) if t2d[token] and token not in targets]
    descending = [row for row in range(1, 16) if targets[row] < targets[row - 1]]
    pairs = ((found.outside, outside), (found.repeated, repeated), (found.unmarked, unmarked))
    for slip, rows in (*pairs, (found.descending, descending)):
        assert slip == (Slip(len(rows), targets[rows[0]], rows[0]) if rows else None)
    assert found.unmapped == (Slip(len(unmapped), unmapped[0]) if unmapped else None)


def test_one_wrong_offset_does_not_make_a_map_absolute() -> None:
    found = measure_map(changed(127, VOCABULARY - 127), marks(CHOSEN), VOCABULARY, absolute=False)
    assert (found.holds_ids, found.outside) == (False, Slip(1, VOCABULARY, 127))


def test_figures_are_those_of_the_distributions() -> None:
    """A normal and a uniform table: kurtosis 3 and 1.8, norms that spread by sqrt((kurtosis - 1) / (4 n))."""
    rng = np.random.default_rng(0)
    tables = (rng.normal(0, 0.02, (256, 1024)), 3.0), (rng.uniform(-1, 1, (256, 1024)), 1.8)
    for values, kurtosis in tables:
        block = measure_block(values.astype("<f4").tobytes(), "F32", first=0, width=1024)
        assert block.std == pytest.approx(values.std(), rel=1e-5)
        assert block.kurtosis == pytest.approx(kurtosis, rel=0.01)
        assert block.row_spread == pytest.approx(np.sqrt((kurtosis - 1) / 4096), rel=0.15)
        assert block.column_spread == pytest.approx(np.sqrt((kurtosis - 1) / 1024), rel=0.15)
