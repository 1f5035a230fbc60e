"""The command line as a user meets it: formats, files, exit codes, and the one line that says what went wrong."""

import csv
import io
import itertools
import json
import os
import re
import subprocess
import sys
import unicodedata

import pytest

from drafter_audit import __version__
from drafter_audit.cli.commands import every_command
from drafter_audit.cli.main import main
from tests.hub import write_sparse

FORMATS = ("table", "json", "markdown", "csv")
BUNDLED = "aq-medai-kimi-k2-instruct-eagle3"
TARGET = "moonshotai-kimi-k2-instruct"

HIDDEN, INNER, VOCAB, DRAFT_VOCAB = 64, 96, 1000, 200
EMBEDDING = "embed_tokens.weight"
TENSORS = {
    "d2t": ("I64", (DRAFT_VOCAB,)),
    "t2d": ("BOOL", (VOCAB,)),
    EMBEDDING: ("BF16", (VOCAB, HIDDEN)),
    "fc.weight": ("BF16", (HIDDEN, 3 * HIDDEN)),
    "lm_head.weight": ("BF16", (DRAFT_VOCAB, HIDDEN)),
    "norm.weight": ("BF16", (HIDDEN,)),
    **{f"midlayer.{name}.weight": ("BF16", (HIDDEN,)) for name in
       ("hidden_norm", "input_layernorm", "post_attention_layernorm")},
    **{f"midlayer.mlp.{name}_proj.weight": ("BF16", (INNER, HIDDEN)) for name in ("gate", "up")},
    "midlayer.mlp.down_proj.weight": ("BF16", (HIDDEN, INNER)),
    **{f"midlayer.self_attn.{name}_proj.weight": ("BF16", (HIDDEN, 2 * HIDDEN)) for name in "qkv"},
    "midlayer.self_attn.o_proj.weight": ("BF16", (HIDDEN, HIDDEN)),
}  # fmt: skip
CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": DRAFT_VOCAB,
    "dtype": "bfloat16",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
    "head_dim": 16,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "num_key_value_heads": 4,
    "rope_theta": 1e6,
    "vocab_size": VOCAB,
}
BODY = 3 * HIDDEN * HIDDEN + 3 * 2 * HIDDEN * HIDDEN + HIDDEN * HIDDEN + 3 * HIDDEN * INNER + 4 * HIDDEN
TRAINABLE = BODY + DRAFT_VOCAB * HIDDEN
FROZEN = VOCAB * HIDDEN

FACTS = """\
[[drafter]]
target = "moonshotai/Kimi-K2.5"
  [drafter.training]
  dataset = "synthetic, 9 categories"
  samples = "37K"
  [[drafter.accept_len]]
  value = 2.1
  steps = 2
  topk = 1
  num_draft_tokens = 3
  engine = "sglang"
  [drafter.throughput]
  tokens_per_s = 94.0
  plain_tokens_per_s = 88.8
"""


def write_drafter(folder, tensors=TENSORS, facts=None, **config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    write_sparse(folder / "model.safetensors", tensors)
    if facts is not None:
        (folder / "drafter-audit.toml").write_text(facts)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder: `ours` and `theirs`, which is the same without the embedding, and `corrupt`."""
    write_drafter(tmp_path / "ours")
    write_drafter(tmp_path / "theirs", {name: what for name, what in TENSORS.items() if name != EMBEDDING})
    corrupt = write_drafter(tmp_path / "corrupt") / "model.safetensors"
    corrupt.write_bytes(corrupt.read_bytes()[:100])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def audit(capsys):
    """`audit("params", "ours")` runs the command line in this process: exit code, stdout, stderr."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def stdout(audit):
    """The output of a command that passes, and says nothing on stderr."""

    def run(*arguments):
        code, out, err = audit(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def read(stdout):
    """The JSON of a command."""
    return lambda *arguments: json.loads(stdout(*arguments, "--format", "json"))


def start(*arguments, **settings):
    """The command line in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", "drafter_audit", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, **settings)


def is_one_error(err):
    return re.fullmatch(r"error: [^\n]+\n", err) is not None


# --- starting


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]], ids=str)
def test_help_is_printed_with_and_without_being_asked_for(stdout, arguments):
    out = stdout(*arguments)
    assert out.startswith("Usage: drafter-audit")
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in every_command())


@pytest.mark.parametrize("command", sorted(every_command()))
def test_each_command_has_both_help_options(stdout, command):
    out = stdout(command, "-h")
    assert out == stdout(command, "--help")
    assert out.startswith(f"Usage: drafter-audit {command}")


def test_each_line_of_the_help_is_whole(stdout):
    lines = stdout("--help").partition("Commands:")[2].splitlines()
    assert not any(line.endswith("...") for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_command_that_is_mistyped_is_guessed(capsys):
    assert main(["compar"]) == 2
    assert "Did you mean 'compare'?" in capsys.readouterr().err


def test_version(stdout):
    assert stdout("--version") == f"drafter-audit, version {__version__}\n"


def test_the_module_runs_as_a_program():
    process = start("--version", stdout=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.split(), err) == (0, f"drafter-audit, version {__version__}".encode().split(), b"")


# --- formats and files

EVERY_COMMAND = [["compare", "ours", "theirs"], ["params", "ours"], ["models"], ["models", BUNDLED]]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_a_table_is_the_default(stdout, command):
    out = stdout(*command)
    assert out == stdout(*command, "--format", "table")
    assert out.endswith("\n")
    assert not out.endswith("\n\n")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_json_comes_in_one_envelope(read, command):
    result = read(*command)
    assert result["schema_version"] == 1
    assert result["tool"] == {"name": "drafter-audit", "version": __version__}
    assert result["command"] == ["drafter-audit", *command, "--format", "json"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_csv_is_one_rectangle(stdout, command):
    header, *rows = csv.reader(io.StringIO(stdout(*command, "--format", "csv")))
    assert rows
    assert {len(row) for row in rows} == {len(header)}


@pytest.mark.usefixtures("here")
def test_csv_of_params_holds_plain_numbers(stdout):
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(stdout("params", "ours", "--format", "csv")))}
    assert rows.keys() == TENSORS.keys()
    assert int(rows[EMBEDDING]["logical"]) == FROZEN
    assert int(rows[EMBEDDING]["bytes"]) == 2 * FROZEN


@pytest.mark.usefixtures("here")
def test_csv_of_compare_has_a_column_for_each_drafter(stdout):
    table = csv.DictReader(io.StringIO(stdout("compare", "ours", "theirs", "--format", "csv")))
    rows = {row["field"]: row for row in table}
    stored = rows["parameters.stored"]
    assert (int(stored["ours"]), int(stored["theirs"])) == (TRAINABLE + FROZEN, TRAINABLE)
    assert stored["difference"]
    assert not rows["parameters.trainable"]["difference"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_markdown_tables_are_rectangles(stdout, command):
    assert_tables_are_rectangles(stdout(*command, "--format", "markdown"))


def assert_tables_are_rectangles(markdown):
    tables = [block.splitlines() for block in re.split(r"\n\n+", markdown.strip()) if block.startswith("|")]
    assert tables
    for lines in tables:
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {lines[1].count("|")}


@pytest.mark.parametrize("style", FORMATS)
def test_output_goes_to_a_file_and_nowhere_else(stdout, here, style):
    printed = stdout("params", "ours", "--format", style)
    assert stdout("params", "ours", "--format", style, "-o", "result") == ""
    written = (here / "result").read_text(encoding="utf-8")
    if style == "json":
        printed, written = ({**json.loads(text), "command": None} for text in (printed, written))
    assert written == printed


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("file", ["absent/result", "ours"])
def test_a_file_that_cannot_be_written_is_a_usage_error(audit, file):
    code, out, err = audit("params", "ours", "--output", file)
    assert (code, out) == (2, "")
    assert is_one_error(err)
    assert file in err


# --- failures

USAGE = {
    "unknown option": ["compare", "ours", "theirs", "--bad"],
    "unknown command": ["contrast", "ours", "theirs"],
    "option of another command": ["--format", "json", "compare", "ours", "theirs"],
    "no REF": ["compare"],
    "one REF": ["compare", "ours"],
    "bad --format": ["compare", "ours", "theirs", "--format", "xml"],
    "bad --by": ["params", "ours", "--by", "layer"],
    "option without its value": ["params", "ours", "-o"],
    "flag with a value": ["params", "ours", "--exclude-frozen=yes"],
    "too many names": ["models", BUNDLED, TARGET],
    "name and target": ["models", BUNDLED, "--target", "moonshotai/Kimi-K2.5"],
    "name and role": ["models", BUNDLED, "--role", "target"],
    "unknown name": ["models", "nothing-like-it"],
    "no reference": ["params", "ou"],
    "empty reference": ["params", ""],
    "empty target": ["params", "ours", "--target", ""],
    "escape in an option": ["params", "--\x1b[31m"],
    "escape in a command": ["\x1b[31m"],
    "newline in a value": ["params", "ours", "--by", "a\nb"],
    "escape in a reference": ["params", "\x1b[31m\nours"],
}
UNMEASURED = {
    "corrupt weights": ["params", "corrupt"],
    "corrupt weights beside sound ones": ["compare", "ours", "corrupt"],
    "absent folder": ["compare", "ours", "./absent"],
    "absent file": ["params", "absent.safetensors"],
    "absent target": ["params", "ours", "--target", "./absent"],
    "absent folder with an escape": ["params", "./\x1b[31m\n"],
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [pytest.param(arguments, 2, id=name) for name, arguments in USAGE.items()]
    + [pytest.param(arguments, 3, id=name) for name, arguments in UNMEASURED.items()],
)
def test_a_failure_is_one_line(audit, arguments, expected):
    code, out, err = audit(*arguments)
    assert (code, out) == (expected, "")
    assert is_one_error(err)
    assert raw_controls(err) == set()


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.usefixtures("here")
def test_a_failure_prints_nothing_in_any_format(audit, style):
    code, out, err = audit("compare", "ours", "corrupt", "--format", style)
    assert (code, out) == (3, "")
    assert is_one_error(err)


def test_a_project_file_that_breaks_its_schema_is_a_usage_error(audit, here):
    (here / "ours" / "drafter-audit.toml").write_text("[[drafter]]\ntargt = 'a/b'\n")
    code, out, err = audit("compare", "ours", "theirs")
    assert (code, out) == (2, "")
    assert is_one_error(err)
    assert "'target'" in err


def test_an_interrupt_ends_with_130(audit, here, monkeypatch):
    def interrupt(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("drafter_audit.audit.compare.compare", interrupt)
    code, out, err = audit("compare", here / "ours", here / "theirs")
    assert (code, out) == (130, "")
    assert is_one_error(err)


@pytest.fixture
def left_early():
    """A command whose reader left before it wrote: its exit code and stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start("models", BUNDLED, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_a_reader_that_leaves_early_sees_no_traceback(left_early):
    assert left_early[1] == b""


def test_a_reader_that_leaves_early_is_no_failed_check(left_early):
    assert left_early[0] == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "wb") as full:
        process = start("models", BUNDLED, stdout=full)
        _, err = process.communicate(timeout=60)
    assert is_one_error(err.decode())
    assert process.returncode in (2, 3)


def test_head_gets_its_line():
    process = start("models", BUNDLED, "--format", "json", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"{\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(timeout=60)


# --- compare

STR, INT, NUMBER, BOOL = (str,), (int,), (int, float), (bool,)


def optional(kind):
    return (*kind, type(None))


FINDING = {
    "code": STR,
    "severity": {"error", "warning", "info"},
    "what": STR,
    "where": {"file": STR, "key": optional(STR)},
    "evidence": (dict,),
    "consequence": STR,
    "fix": (dict, type(None)),
}
DRAFTER = {
    "ref": STR,
    "source": {"hub", "local", "bundled"},
    "revision": optional(STR),
    "kind": {"eagle3"},
    "dialect": {"specforge"},
    "target": {"ref": optional(STR), "num_layers": optional(INT), "hidden_size": optional(INT),
               "vocab_size": optional(INT), "quantization": optional(STR)},
    "architecture": {
        **dict.fromkeys(("hidden_size", "target_hidden_size", "intermediate_size", "num_layers", "num_attention_heads",
                         "num_key_value_heads", "head_dim", "vocab_size", "draft_vocab_size", "num_aux_hidden_states",
                         "max_position_embeddings"), INT),
        "rope": {"theta": NUMBER, "type": STR},
        "norm_before_residual": optional(BOOL),
        **dict.fromkeys(("norm_before_fc", "fc_norm", "norm_output"), BOOL),
        "dtype": STR,
    },
    "aux_layers": {"declared": [INT], "key": STR, "reading": {"output_of_layer", "boundary", "default"},
                   "boundaries": [INT], "confidence": {"high", "medium", "low"},
                   "alternatives": [{"reading": {"output_of_layer", "boundary"}, "boundaries": [INT]}]},
    "parameters": {"stored": INT, "trainable": INT, "frozen": INT, "unknown": INT, "buffers": INT,
                   "borrowed": optional(INT), "by_role": (dict,), "config_implied": INT},
    "training": {"dataset": STR, "samples": INT, "source": STR},
    "accept_len": [{"value": NUMBER, "benchmark": optional(STR), "steps": INT, "topk": INT, "num_draft_tokens": INT,
                    "temperature": optional(NUMBER), "engine": STR, "source": STR}],
    "findings": [FINDING],
}  # fmt: skip
NUMBERS = {
    "same_architecture": {"same": BOOL},
    "size_difference": {"stored": INT, "not_trainable": INT, "trainable": INT},
    "samples_ratio": {"ratio": NUMBER},
    "accept_len_gap": dict.fromkeys(("ours", "theirs_low", "theirs_high", "bounded_low", "bounded_high"), NUMBER),
    "what_if": dict.fromkeys(("tokens_per_s_low", "tokens_per_s_high", "break_even"), NUMBER),
    "not_comparable": {"reasons": [STR]},
    "largest_difference": {"field": STR},
}


def assert_shape(value, shape, path=""):
    """`shape` is a tuple of types, a set of allowed values, a dict of keys that must be there, or a list of one."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), path
        for key, inner in shape.items():
            assert key in value, f"{path}.{key} is absent"
            assert_shape(value[key], inner, f"{path}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), path
        assert value, f"{path} is empty, so nothing of it is checked"
        for number, item in enumerate(value):
            assert_shape(item, shape[0], f"{path}[{number}]")
    elif isinstance(shape, set):
        assert value in shape, path
    else:
        assert type(value) in shape, f"{path} is {value!r}"


def test_compare_has_every_field_and_type(read, here):
    write_drafter(here / "stated", facts=FACTS)
    result = read("compare", BUNDLED, "stated")
    assert_shape(result, {"drafters": [DRAFTER], "differences": [{"field": STR, "values": (list,), "why": STR}],
                          "conclusions": [{"code": set(NUMBERS), "text": STR, "numbers": (dict,)}],
                          "hub": {"requests": INT, "bytes": INT}})  # fmt: skip
    for conclusion in result["conclusions"]:
        assert_shape(conclusion["numbers"], NUMBERS[conclusion["code"]], conclusion["code"])
    assert {conclusion["code"] for conclusion in result["conclusions"]} == NUMBERS.keys()
    assert [drafter["source"] for drafter in result["drafters"]] == ["bundled", "local"]
    assert all(len(difference["values"]) == 2 for difference in result["differences"])


def test_stated_facts_arrive_with_their_file(read, here):
    write_drafter(here / "stated", facts=FACTS)
    drafter = read("compare", BUNDLED, "stated")["drafters"][1]
    source = "stated/drafter-audit.toml"
    assert drafter["training"] == {"dataset": "synthetic, 9 categories", "samples": 37000, "source": source}
    assert drafter["target"]["ref"] == "moonshotai/Kimi-K2.5"
    assert [(row["value"], row["steps"], row["source"]) for row in drafter["accept_len"]] == [(2.1, 2, source)]
    assert drafter["throughput"]["plain_tokens_per_s"] == 88.8


def test_stated_facts_of_a_reference_that_is_no_folder_count_too(read, here):
    (here / "drafter-audit.toml").write_text(f'[[drafter]]\npath = "{BUNDLED}"\n[drafter.training]\nsamples = 5\n')
    drafter = read("compare", BUNDLED, "ours")["drafters"][0]
    assert drafter["training"]["samples"] == 5


@pytest.mark.usefixtures("here")
def test_what_is_stored_is_the_sum_of_its_roles(read):
    for drafter in read("compare", "ours", "theirs")["drafters"]:
        counts = drafter["parameters"]
        assert counts["stored"] == counts["trainable"] + counts["frozen"] + counts["unknown"]
        assert counts["trainable"] == TRAINABLE
        assert counts["buffers"] == DRAFT_VOCAB + VOCAB


@pytest.mark.usefixtures("here")
def test_the_embedding_is_frozen_where_stored_and_borrowed_where_not(read):
    ours, theirs = (drafter["parameters"] for drafter in read("compare", "ours", "theirs")["drafters"])
    assert (ours["frozen"], ours["borrowed"]) == (FROZEN, 0)
    assert (theirs["frozen"], theirs["borrowed"]) == (0, FROZEN)


def test_each_drafter_is_set_against_the_last(read, here):
    write_drafter(here / "wider", {**TENSORS, "verifier_lm_head.weight": ("BF16", (DRAFT_VOCAB, HIDDEN))})
    conclusions = read("compare", "ours", "theirs", "wider")["conclusions"]
    sizes = [c["numbers"] for c in conclusions if c["code"] == "size_difference"]
    leftover = DRAFT_VOCAB * HIDDEN
    assert [(n["against"], n["stored"], n["trainable"]) for n in sizes] == [
        ("ours", leftover, 0),
        ("theirs", FROZEN + leftover, 0),
    ]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("other", "expected"), [("ours", 0), ("theirs", 1)])
@pytest.mark.parametrize("style", FORMATS)
def test_exit_code_tells_whether_drafters_differ(audit, other, expected, style):
    code, out, err = audit("compare", "ours", other, "--exit-code", "--format", style)
    assert (code, err) == (expected, "")
    assert out == audit("compare", "ours", other, "--exit-code", "--format", style)[1]


@pytest.mark.usefixtures("here")
def test_without_exit_code_a_difference_is_no_failure(stdout):
    assert "parameters.frozen" in stdout("compare", "ours", "theirs")


def test_layout_and_defaults_are_no_difference(audit, here):
    scaling = {"rope_type": "default"}
    write_drafter(here / "newer", rope_theta=None, rope_parameters={"rope_theta": 1e6, **scaling}, fc_norm=False,
                  torch_dtype="bfloat16", dtype=None)  # fmt: skip
    code, _, _ = audit("compare", "ours", "newer", "--exit-code")
    assert code == 0


@pytest.mark.usefixtures("here")
def test_a_target_can_be_named(read):
    for drafter in read("compare", "ours", "theirs", "--target", TARGET)["drafters"]:
        assert drafter["target"]["ref"] == TARGET
        assert drafter["target"]["num_layers"] == 61


# --- params


@pytest.mark.usefixtures("here")
def test_params_lists_every_tensor_with_its_role(read):
    (drafter,) = read("params", "ours")["drafters"]
    fields = {"name": STR, "shape": [INT], "dtype": STR, "elements": INT, "logical": INT, "bytes": INT, "role": STR,
              "reason": STR}  # fmt: skip
    assert_shape(drafter, {"ref": STR, "kind": {"eagle3"}, "parameters": {**DRAFTER["parameters"], "excluded": INT},
                           "tensors": [fields]})  # fmt: skip
    roles = {tensor["name"]: tensor["role"] for tensor in drafter["tensors"]}
    assert roles.keys() == TENSORS.keys()
    assert [name for name, role in roles.items() if role == "frozen"] == [EMBEDDING]
    assert {name for name, role in roles.items() if role == "buffer"} == {"d2t", "t2d"}
    assert drafter["parameters"]["excluded"] == 0


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("by", ["tensor", "module", "role"])
def test_exclude_frozen_drops_rows_and_keeps_totals(read, by):
    (whole,) = read("params", "ours", "--by", by)["drafters"]
    (rest,) = read("params", "ours", "--by", by, "--exclude-frozen")["drafters"]
    assert rest["parameters"] == {**whole["parameters"], "excluded": FROZEN}
    assert rest["tensors"] == [tensor for tensor in whole["tensors"] if tensor["role"] != "frozen"]
    if by != "tensor":
        rows = f"{by}s"
        assert sum(row["logical"] for row in whole[rows]) - sum(row["logical"] for row in rest[rows]) == FROZEN


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("style", ["table", "markdown", "csv"])
@pytest.mark.parametrize("by", ["tensor", "module", "role"])
def test_no_format_shows_frozen_rows_that_were_left_out(stdout, style, by):
    sought = "frozen" if by == "role" else "embed"
    command = ("params", "ours", "--by", by, "--format", style)
    assert first_words(stdout(*command), sought)
    assert not first_words(stdout(*command, "--exclude-frozen"), sought)


def first_words(text, word):
    """Rows whose first or second cell begins with `word`."""
    return re.findall(rf"^(?:\| |ours,)?{word}\b.*|^(?:\| |ours,)?{word}(?:\\?_).*", text, re.MULTILINE)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("module", "d2t embed_tokens fc lm_head midlayer midlayer.mlp midlayer.self_attn norm t2d"),
        ("role", "buffer frozen trainable"),
    ],
)
def test_rows_are_added_up(read, by, expected):
    (drafter,) = read("params", "ours", "--by", by)["drafters"]
    rows = {row["name"]: row for row in drafter[f"{by}s"]}
    assert sorted(rows) == expected.split()
    assert sum(row["tensors"] for row in rows.values()) == len(TENSORS)
    if by == "role":
        assert rows["trainable"]["logical"] == TRAINABLE


def test_params_counts_a_target(read, here):
    layer = {f"model.layers.0.self_attn.{name}_proj.weight": ("BF16", (HIDDEN, HIDDEN)) for name in "qkvo"}
    tensors = {"model.embed_tokens.weight": ("BF16", (VOCAB, HIDDEN)), **layer}
    folder = write_drafter(here / "target", tensors, architectures=["LlamaForCausalLM"], eagle_config=None)
    (target,) = read("params", folder)["drafters"]
    assert target["kind"] == "lm"
    assert target["parameters"]["stored"] == target["parameters"]["unknown"] == VOCAB * HIDDEN + 4 * HIDDEN**2


def test_params_does_not_count_what_no_file_tells(audit):
    code, out, err = audit("params", TARGET)
    assert (code, out) == (3, "")
    assert is_one_error(err)


# --- params without a REF


def named(read):
    return [drafter["ref"] for drafter in read("params")["drafters"]]


def test_without_a_ref_the_drafter_in_the_folder_is_meant(read, here, monkeypatch):
    (here / "ours" / "drafter-audit.toml").write_text('[[drafter]]\npath = "../theirs"\n')
    monkeypatch.chdir(here / "ours")
    assert named(read) == ["."]


def test_without_a_ref_a_lone_weight_file_is_meant(read, here, monkeypatch):
    (here / "ours" / "config.json").unlink()
    monkeypatch.chdir(here / "ours")
    assert named(read) == ["model.safetensors"]


def test_else_the_project_file_lists_them(read, here):
    (here / "drafter-audit.toml").write_text('[[drafter]]\npath = "./ours"\n[[drafter]]\npath = "theirs"\n')
    (here / "pyproject.toml").write_text(f'[[tool.drafter-audit.drafter]]\npath = "{BUNDLED}"\n')
    first, second = named(read)
    assert os.path.samefile(first, here / "ours")
    assert os.path.samefile(second, here / "theirs")


def test_else_pyproject_lists_them(read, here):
    (here / "pyproject.toml").write_text(f'[[tool.drafter-audit.drafter]]\npath = "{BUNDLED}"\n')
    assert named(read) == [BUNDLED]


def test_else_the_bundled_drafters_are_meant_that_can_be_counted(audit, read, here):
    (here / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    code, out, err = audit("params", "--format", "json")
    assert code == 0
    drafters = json.loads(out)["drafters"]
    assert BUNDLED in [drafter["ref"] for drafter in drafters]
    assert all(drafter["parameters"]["stored"] > 0 for drafter in drafters)
    every = read("models", "--role", "drafter")["models"]
    without = sum(row["config"] is None for row in every)
    (line,) = err.splitlines()
    assert line.startswith(
        f"note: counted {len(drafters)} of {len(every)} bundled drafters: {without} have no config here"
    )
    uncounted = sum(int(number) for number in re.findall(r"(\d+) of kind", line))
    assert {"dflash"} <= set(re.findall(r"of kind (\w+)", line))
    assert len(drafters) + without + uncounted == len(every)


def test_an_error_over_the_bundled_drafters_is_one_line(audit, here):
    code, out, err = audit("params", "--target", "./absent")
    assert (code, out) == (3, "")
    assert is_one_error(err)


def test_a_bundled_name_without_a_config_says_what_there_is(audit):
    code, out, err = audit("compare", "z-lab-kimi-k2.5-dflash", BUNDLED)
    assert (code, out) == (3, "")
    assert is_one_error(err)
    assert "5 accept_len rows" in err
    assert "z-lab/Kimi-K2.5-DFlash" in err


# --- models


def test_models_lists_drafters_and_targets(read):
    roles = {model["name"]: model["role"] for model in read("models")["models"]}
    assert (roles[BUNDLED], roles[TARGET]) == ("drafter", "target")


@pytest.mark.parametrize("role", ["drafter", "target"])
def test_models_of_one_role(read, stdout, role):
    everything = read("models")["models"]
    assert read("models", "--role", role)["models"] == [model for model in everything if model["role"] == role]
    other = "target" if role == "drafter" else "drafter"
    out = stdout("models", "--role", role)
    assert re.match(rf"\d+ {role}s\n", out)
    assert not re.search(rf"^\d+ {other}s$", out, re.MULTILINE)


def test_models_lists_drafters_under_their_target_and_breaks_no_name(read, stdout):
    lines = [line.rstrip() for line in stdout("models").splitlines()]
    under = lines[lines.index("moonshotai/Kimi-K2.5") + 1 :]
    names = [line.split()[0] for line in itertools.takewhile(lambda line: line.startswith("  "), under)]
    assert names == [model["name"] for model in read("models", "--target", "moonshotai/Kimi-K2.5")["models"]]
    shown = {word for line in lines for word in line.split()}
    assert {model["name"] for model in read("models")["models"]} <= shown


def test_models_says_where_the_author_did_not_measure(stdout):
    out = stdout("models", "--target", "meta-llama/Llama-3.3-70B-Instruct")
    assert re.search(r"lmsys-sglang-eagle3-llama3\.3-instruct-70b +– +1\.276–\d\.\d{3} \* ", out)
    assert "* not measured by the author" in out
    rows = list(csv.DictReader(stdout("models", "--format", "csv").splitlines()))
    (row,) = (row for row in rows if row["name"] == "lmsys-sglang-eagle3-llama3.3-instruct-70b")
    assert (row["accept_len_low"], row["accept_len_by"], row["config"]) == ("1.2761", "SpecBundle", "")


def test_models_shows_one_by_name_or_by_repository(read):
    by_name, by_repository = read("models", BUNDLED), read("models", "AQ-MedAI/Kimi-K2-Instruct-eagle3")
    assert by_name["models"] == by_repository["models"]
    (model,) = by_name["models"]
    assert model["config"]["hidden_size"] == 7168
    assert model["sources"]


def test_models_of_a_target(read):
    models = read("models", "--target", "moonshotai/Kimi-K2.5")["models"]
    assert models
    assert {model["target"] for model in models} == {"moonshotai/Kimi-K2.5"}


@pytest.mark.parametrize("style", FORMATS)
def test_models_of_a_target_without_drafters_is_an_empty_list(audit, style):
    code, out, err = audit("models", "--target", "nobody/nothing", "--format", style)
    assert (code, err.startswith("note: no bundled drafter is made for 'nobody/nothing'")) == (0, True)
    assert style != "json" or json.loads(out)["models"] == []


# --- text from strangers

NASTY = "a\x1b[31m|b\x07\x7f\u202e\x9b\nc <script> `d` *e*"
TOML_NASTY = json.dumps(NASTY).replace("\x7f", "\\u007f")


def raw_controls(text):
    """Control and format characters other than the newline."""
    return {
        char for char in text if char != "\n" and unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    }


@pytest.fixture
def nasty(here):
    """A checkpoint that speaks to the terminal wherever a file can: facts, config, tensor names."""
    tensors = {**TENSORS, f"{NASTY}.extra.weight": ("BF16", (HIDDEN,))}
    facts = f"[[drafter]]\ntarget = {TOML_NASTY}\n[drafter.training]\ndataset = {TOML_NASTY}\n"
    facts += f"[[drafter.accept_len]]\nvalue = 2.0\nbenchmark = {TOML_NASTY}\nengine = {TOML_NASTY}\n"
    config = {
        "architectures": ["LlamaForCausalLMEagle3", NASTY],
        "dtype": NASTY,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], NASTY: NASTY},
        "rope_scaling": {"rope_type": NASTY, "factor": 2.0, NASTY: NASTY},
    }
    return write_drafter(here / "nasty", tensors, facts, **config)


@pytest.mark.usefixtures("nasty")
@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize(
    "command",
    [
        ["compare", "nasty", "theirs"],
        ["compare", "theirs", "nasty"],
        ["params", "nasty"],
        ["params", "nasty", "--by", "module"],
    ],
    ids=" ".join,
)
def test_control_characters_never_reach_stdout(stdout, command, style):
    out = stdout(*command, "--format", style)
    assert raw_controls(out) == set()
    assert "\\x1b" in out or "\\u001b" in out
    if style == "json":
        json.loads(out)
    if style == "markdown":
        assert_tables_are_rectangles(out)
        assert "<script>" not in out


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("command", ["compare", "params"])
def test_a_folder_whose_name_speaks_to_the_terminal(stdout, here, command, style):
    folder = "x\x1b[31m|y\x07"
    write_drafter(here / folder)
    others = ["ours"] if command == "compare" else []
    out = stdout(command, folder, *others, "--format", style)
    assert raw_controls(out) == set()
    if style == "markdown":
        assert_tables_are_rectangles(out)


@pytest.mark.parametrize("key", ["dtype", "model_type", "hidden_size", "architectures", "eagle_config"])
def test_a_config_of_wrong_types_is_told_in_one_line_without_controls(audit, here, key):
    write_drafter(here / "wrong", **{key: [NASTY] if key != "architectures" else NASTY})
    code, out, err = audit("compare", "ours", "wrong")
    assert raw_controls(out + err) == set()
    assert code == 0 or (code == 3 and out == "" and is_one_error(err))


@pytest.mark.parametrize("width", [80, 100, 140])
def test_tables_fit_the_terminal(width, audit, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = audit("compare", "ours", "theirs")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= width


def test_an_empty_file_name_is_refused(audit, here):
    code, out, err = audit("params", "ours", "-o", "")
    assert (code, out) == (2, "")
    assert err.startswith("error: no file name, -o,")


def test_an_empty_folder_is_called_empty(audit, tmp_path):
    (tmp_path / "nothing").mkdir()
    code, out, err = audit("params", str(tmp_path / "nothing"))
    assert (code, out) == (3, "")
    assert "empty, so no config.json" in err


def test_a_very_long_reference_makes_a_readable_line(audit):
    code, _, err = audit("params", "x" * 100_000)
    assert code == 2
    assert len(err) < 1500


def test_a_target_by_its_bundled_name(read):
    by_name = read("models", "--target", "moonshotai-kimi-k2.5")["models"]
    assert by_name == read("models", "--target", "moonshotai/Kimi-K2.5")["models"]
    assert by_name
