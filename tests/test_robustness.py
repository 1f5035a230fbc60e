"""Every reader against damaged files: a clear error or a result, never a traceback, a hang, or memory without bound.

Examples are drawn the same way in every run (`derandomize`). What once failed lies in data/damaged.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from drafter_audit.checkpoint.header import DTYPE_BITS, parse_header
from drafter_audit.cli.main import main
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import AuditError, escape
from drafter_audit.facts.card import read_card
from tests.checkpoints import Tensors, read_peer, write_checkpoint
from tests.hub import header_bytes, write_sparse
from tests.hub.torch_files import state_dict, write_archive, write_torch_file

DAMAGED = Path(__file__).parent / "data" / "damaged"
PEERS = ("modelopt_eagle3", "specforge_eagle3", "speculators_eagle3", "specforge_trained", "modelopt_eagle3_kimik2")
SECONDS = 2.0
"""Processor time that no example may take."""

FILES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "README.md",
    "drafter-audit.toml",
    "hf_quant_config.json",
)

settings.register_profile(
    "robustness",
    deadline=None,  # time is held by `outcome`, in processor time
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
few = settings(settings.get_profile("robustness"), max_examples=20)
some = settings(settings.get_profile("robustness"), max_examples=60)
many = settings(settings.get_profile("robustness"), max_examples=120)


def outcome(*arguments: str) -> tuple[int, str, str]:
    """Code, stdout and stderr of a command, held to what every command promises."""
    out, err = io.StringIO(), io.StringIO()
    start = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments, "--offline"] if "--" not in arguments else ["params", "--offline", *arguments[1:]])
    assert time.process_time() - start < SECONDS
    shown, said = out.getvalue(), err.getvalue()
    assert code in (0, 2, 3)
    if code:
        assert shown == ""
        assert said.startswith("error: ")
        assert said.count("\n") == 1
        assert said == escape(said.removesuffix("\n")) + "\n"
    else:
        assert said == ""
    return code, shown, said


def read_both(folder: Path) -> list[tuple[int, str, str]]:
    """`params` and `compare` of one folder, as tables and as JSON."""
    commands = (["params", str(folder)], ["compare", str(folder), str(folder)])
    found = [outcome(*command, "--format", style) for command in commands for style in ("json", "table")]
    for code, shown, _ in (found[0], found[2]):
        if code == 0:
            check_json(shown)
    assert found[0][0] == found[1][0]
    assert found[2][0] == found[3][0]
    return found


def check_json(text: str) -> None:
    """Valid, ASCII, no NaN, and what counts something is an int that a double-based reader need not round away."""
    assert text.isascii()
    result = json.loads(text, parse_constant=refuse)
    for drafter in result["drafters"]:
        for key, value in walk({name: part for name, part in drafter.items() if name != "findings"}):
            if key in COUNTS:
                assert value is None or type(value) is int, (key, value)


COUNTS = {"stored", "trainable", "frozen", "unknown", "borrowed", "buffers", "missing", "elements", "logical", "bytes"}
COUNTS |= {"num_layers", "vocab_size", "draft_vocab_size", "head_dim", "intermediate_size", "num_aux_hidden_states"}


def refuse(text: str) -> NoReturn:
    raise AssertionError(f"{text} is not JSON")


def walk(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples; each writes every file that it is about."""
    return tmp_path_factory.mktemp("checkpoint")


@cache
def peer(name: str) -> tuple[dict[str, Any], Tensors, dict[str, str] | None]:
    return read_peer(name)


def fresh(folder: Path, name: str = "specforge_eagle3", *, weights: bool = True) -> None:
    """`folder`, made a peer's checkpoint and nothing else."""
    for path in folder.iterdir():
        path.unlink()
    config, tensors, metadata = peer(name)
    write_checkpoint(folder, config, tensors, metadata)
    if not weights:
        (folder / "model.safetensors").unlink()


def place(folder: Path, name: str, data: bytes) -> None:
    """`data` as the file `name` of a checkpoint that is sound but for it."""
    fresh(folder, weights="index" not in name and name != "pytorch_model.bin")
    (folder / name).write_bytes(data)


# The corpus


def corpus() -> list[tuple[str, str]]:
    """File and outcome of every row of the README's table."""
    rows = [line.split("|") for line in (DAMAGED / "README.md").read_text().splitlines() if line.startswith("| `")]
    return [(row[1].strip().strip("`"), row[2].strip()) for row in rows]


def test_every_damaged_file_has_its_reason() -> None:
    on_disk = {path.relative_to(DAMAGED).as_posix() for path in DAMAGED.glob("*/*")}
    assert {file for file, _ in corpus()} == on_disk


@pytest.mark.parametrize(("file", "expected"), corpus())
def test_damaged_file(folder: Path, file: str, expected: str) -> None:
    name = file.partition("/")[0].replace("card", "README.md")
    place(folder, name, (DAMAGED / file).read_bytes())
    for code, _, said in read_both(folder):
        assert (code == 0) == (expected == "ok"), said
        assert expected == "ok" or expected in said


def header(text: str) -> bytes:
    return len(text.encode()).to_bytes(8, "little") + text.encode()


def entry(name: str, shape: str = "[0]") -> str:
    return f'"{name}":{{"dtype":"U8","shape":{shape},"data_offsets":[0,0]}}'


GROWN: Mapping[str, tuple[str, bytes, str]] = {
    "JSON 200,000 deep": ("config.json", b"[" * 200_000 + b"]" * 200_000, "not JSON"),
    "an object 200,000 deep": ("config.json", b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "not JSON"),
    "an index 200,000 deep": ("model.safetensors.index.json", b"[" * 200_000, "not JSON"),
    "a header 200,000 deep": ("model.safetensors", header('{"a":' + "[" * 200_000), "not valid JSON"),
    "a name of 3 MB": ("model.safetensors", header("{" + entry("a" * 3_000_000) + "}"), ""),
    "a name of 1 MB beyond ASCII": ("model.safetensors", header("{" + entry("é" * 500_000) + "}"), ""),
    "a dtype of 3 MB": ("model.safetensors", header('{"a":{"dtype":"' + "é" * 1_500_000 + '"}}'), "unknown dtype"),
    "a tensor of 300,000 dims": ("model.safetensors", header("{" + entry("a", str([0] * 300_000)) + "}"), ""),
    "a card of 100,000 counts": ("README.md", b"1 samples " * 100_000, ""),
    "a card of nested lists": ("README.md", b"---\nbase_model: " + b"[" * 30_000 + b"\n---\n", ""),
    "TOML 200,000 deep": ("drafter-audit.toml", b"a=" + b"[" * 200_000, "not TOML"),
}
"""Past failures that are too large to store: what they are, and what is said of them; "" where they are read."""


@pytest.mark.parametrize("name", GROWN)
def test_grown_file(folder: Path, name: str) -> None:
    file, data, expected = GROWN[name]
    place(folder, file, data)
    for command in (["params", str(folder)], ["compare", str(folder), str(folder), "--format", "json"]):
        code, _, said = outcome(*command)
        assert (code != 0) == bool(expected), said
        assert expected in said


# Any bytes, and bytes that are nearly right

STARTS = (
    b"",
    b"{",
    b"[",
    b"---\n",
    b"PK\x03\x04",
    b"\x80\x02",
    b"GGUF",
    b"\xef\xbb\xbf",
    b"\x02\0\0\0\0\0\0\0{}",
    b"|a|\n|-|",
)


@some
@given(st.sampled_from(FILES), st.sampled_from(STARTS), st.binary(max_size=300))
def test_any_bytes(folder: Path, name: str, start: bytes, rest: bytes) -> None:
    place(folder, name, start + rest)
    read_both(folder)


@many
@given(st.text(max_size=400))
@example("\ud800")
@example("| accept length | b |\n|---|---|\n| \u0663.\u0665 | \u00b2 |")
def test_any_text_is_a_card(text: str) -> None:
    read_card(text)
    read_card(f"---\n{text}\n---\n")


edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=4), st.integers(0, 8)), max_size=4)


def edited(data: bytes, changes: list[tuple[float, bytes, int]]) -> bytes:
    """`data` with bytes put in and taken out."""
    for place_, new, removed in changes:
        at = int(place_ * len(data))
        data = data[:at] + new + data[at + removed :]
    return data


@many
@given(edits)
def test_damaged_pickle(folder: Path, changes: list[tuple[float, bytes, int]]) -> None:
    fresh(folder, weights=False)
    write_archive(folder / "pytorch_model.bin", edited(state_dict(TWO), changes), {"0": 48, "1": 8})
    outcome("params", str(folder))


@many
@given(edits, st.floats(0, 1))
def test_damaged_archive(folder: Path, changes: list[tuple[float, bytes, int]], kept: float) -> None:
    fresh(folder, weights=False)
    data = write_torch_file(folder / "pytorch_model.bin", TWO).read_bytes()
    cut = data[: int(len(data) * kept)] if kept < 0.5 else data
    (folder / "pytorch_model.bin").write_bytes(edited(cut, changes))
    outcome("params", str(folder))


TWO: Tensors = {"fc.weight": ("F16", (4, 6)), "norm.weight": ("F16", (4,))}


# Sound files with one value changed

scalars = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        2**31,
        2**63,
        10**299,
        -(10**299),
        0.0,
        -0.5,
        1e308,
        "",
        "x",
        "\ud800",
        "a\0b",
        "\u202e",
        "é" * 500,
    ]
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("a", "", "type", "weights")), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = (
    "quantization_config", "quantization", "rope_scaling", "rope_parameters", "text_config", "eagle_config",
    "dflash_config", "transformer_layer_config", "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids",
    "dspark_target_layer_ids", "target_layer_ids", "speculators_config", "speculators_model_type", "model_type",
    "architectures", "dtype", "torch_dtype", "rope_theta", "sliding_window", "norm_before_fc", "kv_lora_rank",
)  # fmt: skip


def paths(config: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a value stands in a config, nested ones too."""
    for key, value in config.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


def changed(config: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    key, *rest = path
    return {**config, key: changed(config[key], tuple(rest), value) if rest else value}


places = st.sampled_from(PEERS).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from([*paths(peer(name)[0]), *((key,) for key in KEYS)]))
)


@many
@given(places, values, st.booleans())
@example(("speculators_eagle3", ("speculators_config",)), {"verifier": {"name_or_path": "a/" + "b" * 500}}, True)
def test_any_value_in_a_config(folder: Path, place_: tuple[str, tuple[str, ...]], value: object, weights: bool) -> None:
    name, path = place_
    fresh(folder, name, weights=weights)
    (folder / "config.json").write_text(json.dumps(changed(peer(name)[0], path, value)))
    read_both(folder)


def test_every_type_in_every_place_of_a_config(folder: Path) -> None:
    """Drawn values may miss a key; these do not."""
    config = peer("specforge_trained")[0]
    fresh(folder, "specforge_trained")
    for path in paths(config):
        for value in (None, True, -1, 0.5, "x", [], [1], {}, {"a": [1]}):
            (folder / "config.json").write_text(json.dumps(changed(config, path, value)))
            outcome("compare", str(folder), str(folder), "--format", "json")


@many
@given(
    st.sampled_from(["dtype", "shape", "data_offsets", "whole", "name"]),
    values | st.lists(st.integers(-1, 70), max_size=3),
    st.integers(0, 15),
)
def test_any_value_in_a_header(folder: Path, part: str, value: object, which: int) -> None:
    fresh(folder)
    fields = json.loads(header_bytes(peer("specforge_eagle3")[1])[0][8:])
    name = list(fields)[which]
    if part == "name":
        fields[str(value)] = fields.pop(name)
    else:
        fields[name] = value if part == "whole" else fields[name] | {part: value}
    text = json.dumps(fields)
    (folder / "model.safetensors").write_bytes(header(text))
    _, end = header_bytes(peer("specforge_eagle3")[1])
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(8 + len(text) + end)
    outcome("params", str(folder), "--format", "json")


@some
@given(
    values | st.dictionaries(st.text(max_size=3), st.sampled_from(["", ".", "a.safetensors", "\ud800", "a/b", "/"])),
    values,
)
def test_any_index(folder: Path, weight_map: object, metadata: object) -> None:
    fresh(folder, weights=False)
    index = {"weight_map": weight_map, "metadata": metadata}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    outcome("params", str(folder))


TOML_ROW = ("value", "steps", "temperature", "engine")
TOML_KEYS = (
    *TOML_ROW, "path", "target", "recording", "training", "training.samples", "training.dataset", "accept_len",
    "throughput", "throughput.tokens_per_s",
)  # fmt: skip
toml_values = st.sampled_from(
    [
        "nan",
        "inf",
        "-1",
        "0",
        "1" + "0" * 400,
        "1979-05-27",
        "''",
        "'x'",
        "'\u202e'",
        "[]",
        "[[]]",
        "{}",
        "{a=1}",
        "true",
        "1e-320",
        "2.5",
    ]
)


@many
@given(st.sampled_from(TOML_KEYS), toml_values)
def test_any_value_in_a_project_file(folder: Path, key: str, value: str) -> None:
    row = key in TOML_ROW
    lines = (
        ["[[drafter.accept_len]]", "value = 2" if key != "value" else "", f"{key} = {value}"]
        if row
        else [f"{key} = {value}"]
    )
    place(folder, "drafter-audit.toml", "\n".join(["[[drafter]]", *lines]).encode())
    read_both(folder)


# References

letters = st.text(st.sampled_from("ab/.@:#%?~\\-_ hf\0\ud800é\u202e0"), max_size=12)


@many
@given(
    letters
    | st.text(max_size=20)
    | st.tuples(st.sampled_from(("hf://", "https://huggingface.co/", "a/b@", "./", "~")), letters).map("".join)
)
@example("a/b@\ud800")
@example("a" * 5000)
def test_any_reference(text: str) -> None:
    code, _, _ = outcome("params", "--", text)
    # The folder that the tests run in, its parents and home may be named, and hold no checkpoint.
    assert code in (2, 3)


@few
@given(letters)
def test_any_target(folder: Path, text: str) -> None:
    fresh(folder)
    outcome("params", str(folder), f"--target={text}")


def test_a_current_folder_that_was_removed(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(folder)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current folder was removed" in outcome("params", str(folder))[2]
    assert "the current folder was removed" in outcome("params")[2]


# Weights: any bytes are numbers, NaN and infinities among them


@few
@given(st.sampled_from(("BF16", "F16", "F32")), st.binary(min_size=1, max_size=64), st.binary(min_size=1, max_size=64))
@example("F16", b"\xff\x7f", b"\0\x7c")
@example("F32", b"\xff", b"\0\0\x80\x7f")
@example("BF16", b"\x01\0", b"\x7f\x7f")
def test_any_weights_compare(folder: Path, dtype: str, one: bytes, other: bytes) -> None:
    """d2t too is of any bytes: ids of -1 and beyond the vocabulary."""
    refs = [filled(folder.parent / f"weights-{number}", dtype, bytes_) for number, bytes_ in enumerate((one, other))]
    code, shown, _ = outcome("compare", *refs, "--weights", "--format", "json")
    assert code == 0
    check_json(shown)
    assert outcome("params", refs[0], f"--target={refs[1]}")[0] == 0


def filled(folder: Path, dtype: str, pattern: bytes) -> str:
    """A drafter whose every byte of weights repeats `pattern`."""
    config, tensors, _ = peer("specforge_eagle3")
    ref = write_checkpoint(
        folder, config, {name: (dtype if of == "BF16" else of, shape) for name, (of, shape) in tensors.items()}
    )
    path = folder / "model.safetensors"
    start = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    size = path.stat().st_size - start
    with path.open("r+b") as file:
        file.seek(start)
        file.write((pattern * (size // len(pattern) + 1))[:size])
    return ref


SUFFIXES = (
    "weight", "qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_scale", "weight_zero_point",
    "weight_shape", "weight_scale_2", "absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__nf4", "biases",
    "weight_scale_inv", "blocks", "bias",
)  # fmt: skip
MODULES = ("fc", "lm_head", "midlayer.self_attn.q_proj", "layers.3.mlp.experts.0.down_proj", "embed_tokens", "norm")
SCHEMES: tuple[dict[str, Any], ...] = (
    {},
    {"quant_method": "gptq", "bits": 4, "group_size": 128},
    {"quant_method": "awq", "bits": 4, "group_size": -1, "version": "gemm"},
    {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["re:.*"], "weights": {"num_bits": 7}}}},
    {"quant_method": "bitsandbytes", "load_in_4bit": True},
    {"quant_algo": "NVFP4"},
    {"bits": 3, "group_size": 64},
)
shapes = st.lists(st.sampled_from((0, 1, 2, 3, 8, 64)), max_size=3).map(tuple)
names = st.builds("{}.{}".format, st.sampled_from(MODULES), st.sampled_from(SUFFIXES)) | st.just("d2t")
tensors_ = st.dictionaries(names, st.tuples(st.sampled_from(sorted(DTYPE_BITS)), shapes), min_size=1, max_size=9)


@many
@given(tensors_, st.sampled_from(SCHEMES), st.booleans())
@example({"d2t": ("F6_E2M3", ())}, {}, False)
@example({"d2t": ("I64", (3,)), "lm_head.weight": ("F16", ())}, {}, False)
def test_any_tensors(folder: Path, tensors: Tensors, scheme: dict[str, Any], over_a_drafter: bool) -> None:
    """Containers without what belongs to them, of any dtype and shape, beside a sound drafter's tensors or alone."""
    config, sound, _ = peer("specforge_eagle3")
    fresh(folder)
    whole = {name: (dtype, (*shape, 4) if DTYPE_BITS[dtype] % 8 else shape) for name, (dtype, shape) in tensors.items()}
    ref = write_checkpoint(folder, config | {"quantization_config": scheme}, (sound if over_a_drafter else {}) | whole)
    read_both(folder)
    outcome("compare", ref, ref, "--weights")


# What holds of every sound drafter

sizes = st.fixed_dictionaries(
    {
        "num_attention_heads": st.integers(1, 8),
        "num_key_value_heads": st.integers(1, 8),
        "hidden_size": st.integers(1, 64),
        "head_dim": st.integers(1, 32),
        "intermediate_size": st.integers(1, 64),
        "vocab_size": st.integers(40, 99),
        "draft_vocab_size": st.integers(1, 99),
        "eagle_aux_hidden_state_layer_ids": st.lists(st.integers(-1, 60), min_size=1, max_size=4),
    }
)


@some
@given(sizes, st.sets(st.sampled_from(("embed_tokens.weight", "verifier_lm_head.weight", "extra", "t2d", "d2t"))))
def test_identities(folder: Path, shape: dict[str, Any], others: set[str]) -> None:
    fresh(folder)
    tensors = drafter_of(shape, others)
    ref = write_checkpoint(
        folder, {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, **shape}, tensors
    )
    code, shown, _ = outcome("params", ref, "--by", "role", "--format", "json")
    assert code == 0
    drafter = json.loads(shown)["drafters"][0]
    total = drafter["parameters"]
    assert total["stored"] == total["trainable"] + total["frozen"] + total["unknown"]
    weights = sum(size(of) for name, (_, of) in tensors.items() if name not in ("d2t", "t2d"))
    assert total["stored"] == weights
    by_role: dict[str, int] = {}
    for row in drafter["tensors"]:
        by_role[row["role"]] = by_role.get(row["role"], 0) + row["logical"]
    for role in ("trainable", "frozen", "unknown"):
        assert by_role.get(role, 0) == total[role], role
    boundaries = open_drafter(ref).aux_layers.boundaries
    assert boundaries is None or (list(boundaries) == sorted(boundaries) and boundaries[0] >= 0)
    same = json.loads(outcome("compare", ref, ref, "--format", "json")[1])
    assert same["differences"] == []


def size(shape: tuple[int, ...]) -> int:
    count = 1
    for dim in shape:
        count *= dim
    return count


def drafter_of(shape: Mapping[str, Any], others: set[str]) -> Tensors:
    hidden, inner, vocab, draft = (
        shape[f"{key}"] for key in ("hidden_size", "intermediate_size", "vocab_size", "draft_vocab_size")
    )
    rows, kv = (shape[f"num_{key}_heads"] * shape["head_dim"] for key in ("attention", "key_value"))
    slots = len(shape["eagle_aux_hidden_state_layer_ids"])
    optional: Tensors = {
        "embed_tokens.weight": ("BF16", (vocab, hidden)),
        "verifier_lm_head.weight": ("BF16", (draft, hidden)),
        "extra": ("BF16", (3,)),
        "t2d": ("BOOL", (vocab,)),
        "d2t": ("I64", (draft,)),
    }
    shapes = {
        "fc.weight": (hidden, slots * hidden),
        "lm_head.weight": (draft, hidden),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.self_attn.k_proj.weight": (kv, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, rows),
        "midlayer.self_attn.q_proj.weight": (rows, 2 * hidden),
        "norm.weight": (hidden,),
    }
    return {name: ("BF16", of) for name, of in shapes.items()} | {name: optional[name] for name in sorted(others)}


# Memory

MEMORY = 32
"""Bytes that reading a header of one byte may need. An empty JSON list in Python takes 56 and a reference 8, for 3."""


HOSTILE: Mapping[str, str] = {
    "many dims": "{" + entry("a", str([0] * 100_000)) + "}",
    "many large dims": "{" + entry("a", str([400] * 40_000 + [0])) + "}",
    "dims that are lists": "{" + entry("a", "[" + "[]," * 50_000 + "0]") + "}",
    "dims that are objects": "{" + entry("a", "[" + "{}," * 50_000 + "0]") + "}",
    "many tiny tensors": "{" + ",".join(entry(str(number)) for number in range(8_000)) + "}",
    "many escaped names": "{ " + ",".join(entry(f"\\u0041{number}") for number in range(8_000)) + "}",
    "a long name": "{" + entry("\U0001f600" + "a" * 500_000) + "}",
    "much metadata": '{"__metadata__":{' + ",".join(f'"{number:x}":""' for number in range(50_000)) + "}}",
    "white space": "{" + " " * 500_000 + "}",
    "open objects": '{"a":' * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_of_a_hostile_header(name: str) -> None:
    head = header(HOSTILE[name])
    tracemalloc.start()
    try:
        with contextlib.suppress(AuditError):
            parse_header(head, None, "x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= MEMORY * len(head) + 1_000_000


@some
@given(st.lists(st.tuples(st.sampled_from(sorted(DTYPE_BITS)), st.lists(st.integers(0, 9), max_size=4)), max_size=6))
def test_a_sound_header_is_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, list[int]]]
) -> None:
    tensors = {f"t{number}": (dtype, (*shape, 8)) for number, (dtype, shape) in enumerate(entries)}
    path = write_sparse(tmp_path_factory.getbasetemp() / "any.safetensors", tensors)
    found = parse_header(path.read_bytes(), path.stat().st_size, "x").entries
    assert {one.name: (one.dtype, one.shape) for one in found} == tensors
