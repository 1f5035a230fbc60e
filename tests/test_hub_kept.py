"""What a run keeps for the next, and what a large checkpoint costs in requests."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from drafter_audit.checkpoint.config import read_config
from drafter_audit.checkpoint.load import load_table
from drafter_audit.checkpoint.shard_reads import SPECULATIVE_BYTES
from drafter_audit.errors import NetworkError
from drafter_audit.sources import kept
from drafter_audit.sources.open import open_source
from drafter_audit.sources.usage import hub_usage
from tests.hub import write_sparse
from tests.hub.moe import write_target
from tests.hub.torch_files import write_torch_file

REPO = "org/target"
SHARDS = 6

LOAD = """
import sys
from drafter_audit.checkpoint.config import read_config
from drafter_audit.checkpoint.load import load_table
from drafter_audit.errors import AuditError
from drafter_audit.sources.open import open_source
try:
    source = open_source(sys.argv[1] if len(sys.argv) > 1 else {ref!r})
    print(len(read_config(source)), len(load_table(source)))
except AuditError as error:
    print(type(error).__name__, error.exit_code, error)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Six shards with some 900 tensors each, so that each header is longer than a first guess."""
    return write_target(tmp_path_factory.mktemp("target"), shards=SHARDS, layers=8, experts=128)


@pytest.fixture
def commit(hub, files):
    return hub.add_repo(REPO, files)


def header_size(path: Path) -> int:
    with path.open("rb") as file:  # behind it lie gigabytes
        return 8 + int.from_bytes(file.read(8), "little")


def asked(hub, part: str) -> list:
    return [request for request in hub.requests if part in request.path]


def kept_files(hub) -> list[Path]:
    return sorted((hub.home / "assets" / "drafter-audit" / "headers").iterdir())


def load(ref: str = REPO) -> int:
    table = load_table(open_source(ref))
    assert table is not None
    return len(table)


def test_one_request_a_shard_and_no_more_than_128_kib_beyond_its_header(hub, commit, files):
    assert load() == 1 + 9 * 8 + 3 + 7 * (5 + 128 * 3 * 2) + 2
    for path in shards(files):
        assert header_size(path) > 131_072
        (request,) = asked(hub, path.name)
        assert header_size(path) <= request.sent <= header_size(path) + SPECULATIVE_BYTES
    assert len(hub.requests) == 1 + 2 + SHARDS  # the listing, the index, the shards


def shards(files) -> list[Path]:
    return [path for name, path in files.items() if name.endswith(".safetensors")]


def test_a_header_longer_than_its_index_lets_expect_takes_a_second_exact_read(hub, tmp_path):
    tensors = {f"layers.{n}.weight": ("BF16", (2, 2)) for n in range(3000)}
    names = ("a.safetensors", "b.safetensors")
    paths = [
        write_sparse(tmp_path / name, {f"{name}.{key}": value for key, value in tensors.items()}) for name in names
    ]
    index = {"weight_map": {f"{name}.layers.0.weight": name for name in names}}
    files = dict(zip(names, paths, strict=True))
    hub.add_repo(REPO, {**files, "model.safetensors.index.json": json.dumps(index).encode()})
    assert load() == 6000
    for path in paths:
        first, second = asked(hub, path.name)
        assert first.sent + second.sent == header_size(path)


def test_a_large_index_takes_one_request(hub, tmp_path):
    file = write_sparse(tmp_path / "a.safetensors", {"a": ("U8", (1,))})
    index = {"weight_map": {"a": "a.safetensors"}, "filler": "x" * 1_000_000}
    hub.add_repo(REPO, {"a.safetensors": file, "model.safetensors.index.json": json.dumps(index).encode()})
    assert load() == 1
    (request,) = asked(hub, "index.json")
    assert (request.method, request.status) == ("GET", 206)


def test_a_lying_index_cannot_ask_for_much(hub, tmp_path):
    big = write_sparse(tmp_path / "a.safetensors", {"a": ("U8", (10**9,))})
    small = write_sparse(tmp_path / "b.safetensors", {"b": ("U8", (1,))})
    weight_map = {"b": "b.safetensors"} | {f"{n}" + "x" * 60 * (n > 0): "a.safetensors" for n in range(60_000)}
    files = {"a.safetensors": big, "b.safetensors": small}
    hub.add_repo(REPO, {**files, "model.safetensors.index.json": json.dumps({"weight_map": weight_map}).encode()})
    load()
    assert sum(request.sent for request in asked(hub, "a.safetensors")) <= 4_000_000


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("lfs", [False, True])
def test_a_busy_answer_among_the_shards_is_survived_and_counted(hub, files, status, lfs):
    hub.add_repo(REPO, files, lfs=lfs)
    hub.fail(status, times=1, path="model-00004")
    hub.fail(status, times=2, retry_after=0, path="model-00002")
    hub.latency = 0.01
    before = hub_usage()
    load()
    used = hub_usage().since(before)
    assert (used.requests, used.bytes) == (len(hub.requests), hub.sent)
    assert used.requests == 1 + 2 + SHARDS * (2 if lfs else 1) + 3


def test_a_hub_that_dies_among_the_shards_is_given_up_soon(hub, commit):
    hub.fail(503, times=10**6, path="/resolve/" + commit)
    start = time.monotonic()
    with pytest.raises(NetworkError, match="HTTP 503"):
        load()
    assert time.monotonic() - start < 10
    assert len(asked(hub, ".safetensors")) <= 3 * SHARDS + 2


@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_second_run_of_a_commit_asks_nothing(hub, commit, run_python, offline):
    ref = f"{REPO}@{commit}"
    first = run_python(LOAD.format(ref=ref))
    assert first.stdout.split()[0].isdigit(), first.stdout + first.stderr
    hub.requests.clear()
    second = run_python(LOAD.format(ref=ref), HF_HUB_OFFLINE=offline)
    assert (second.stdout, second.stderr, hub.requests) == (first.stdout, "", [])


@pytest.mark.parametrize("tensors", [2, 1000])
def test_a_second_run_of_a_pickled_commit_asks_nothing(hub, tmp_path, run_python, tensors):
    file = write_torch_file(tmp_path / "a", {f"layers.{n}.weight": ("F16", (64, 2**10)) for n in range(tensors)})
    files = {"config.json": b"{}", "pytorch_model.bin": file}
    ref = f"{REPO}@{hub.add_repo(REPO, files, lfs=True)}"
    first = run_python(LOAD.format(ref=ref))
    assert (first.stdout, first.stderr) == (f"0 {tensors}\n", "")
    for offline in "01":
        hub.requests.clear()
        second = run_python(LOAD.format(ref=ref), HF_HUB_OFFLINE=offline)
        assert (second.stdout, second.stderr, hub.requests) == (first.stdout, "", [])


def test_offline_a_branch_is_what_it_was(hub, commit, run_python):
    first = run_python(LOAD.format(ref=REPO))
    hub.requests.clear()
    assert run_python(LOAD.format(ref=REPO), HF_HUB_OFFLINE="1").stdout == first.stdout
    assert hub.requests == []


def test_offline_a_branch_is_the_commit_that_it_last_was(hub, tmp_path, run_python):
    one, two = (write_sparse(tmp_path / str(n), {f"{m}": ("U8", (1,)) for m in range(n)}) for n in (1, 2))
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": one})
    load_all(REPO)
    moved = hub.repos[REPO].push("main", {"config.json": b"{}", "model.safetensors": two})
    assert load_all(f"{REPO}@{moved}") == 2  # all of it lies on the disk, so the client downloads nothing of main
    assert load_all(REPO) == 2
    hub.requests.clear()
    assert run_python(LOAD.format(ref=REPO), HF_HUB_OFFLINE="1").stdout == "0 2\n"
    assert hub.requests == []


def test_offline_a_branch_whose_commit_was_read_first(hub, tmp_path, run_python):
    file = write_sparse(tmp_path / "a", {"a": ("U8", (1,))})
    commit = hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": file}, revisions={"v1": {}})
    assert (load_all(f"{REPO}@{commit}"), load_all(REPO)) == (1, 1)
    assert run_python(LOAD.format(ref=REPO), HF_HUB_OFFLINE="1").stdout == "0 1\n"
    assert run_python(LOAD.format(ref=f"{REPO}@v1"), HF_HUB_OFFLINE="1").stdout.startswith("NetworkError 3 offline")


@pytest.mark.parametrize("no_cache", "01")
def test_offline_a_branch_that_the_client_saw_later(hub, tmp_path, run_python, no_cache):
    one, two = (write_sparse(tmp_path / str(n), {f"{m}": ("U8", (1,)) for m in range(n)}) for n in (1, 2))
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": one})
    load_all(REPO)
    hub.repos[REPO].push("main", {"config.json": b"{}", "model.safetensors": two})
    fetch = f"from huggingface_hub import snapshot_download; snapshot_download({REPO!r})"
    assert run_python(fetch, HF_HUB_DISABLE_PROGRESS_BARS="1").returncode == 0
    offline = {"HF_HUB_OFFLINE": "1", "DRAFTER_AUDIT_NO_CACHE": no_cache}
    assert run_python(LOAD.format(ref=REPO), **offline).stdout == "0 2\n"


def load_all(ref: str) -> int:
    assert read_config(open_source(ref)) == {}
    return load(ref)


def test_a_branch_is_still_asked_for_its_commit(hub, commit):
    load()
    hub.requests.clear()
    load()
    assert [request.path.partition("?")[0] for request in hub.requests] == [f"/api/models/{REPO}"]


def test_what_is_kept_belongs_to_its_commit(hub, tmp_path):
    one = write_sparse(tmp_path / "one", {"a": ("U8", (1,))})
    two = write_sparse(tmp_path / "two", {"b": ("U8", (1,)), "c": ("U8", (1,))})
    hub.add_repo(REPO, {"model.safetensors": one})
    assert load() == 1
    hub.repos[REPO].push("main", {"model.safetensors": two})
    assert load() == 2


@pytest.mark.parametrize("damage", [b"", b"abc", b"abcd" * 9, bytes(4)])  # four zeros: the CRC-32 of nothing
def test_what_is_damaged_is_fetched_again(hub, tmp_path, damage):
    file = write_sparse(tmp_path / "a", {"a": ("U8", (1,))})
    ref = f"{REPO}@{hub.add_repo(REPO, {'model.safetensors': file})}"
    load(ref)
    for path in kept_files(hub):
        path.write_bytes(damage)
    hub.requests.clear()
    assert load(ref) == 1
    assert len(hub.requests) == 2
    hub.requests.clear()
    assert (load(ref), hub.requests) == (1, [])


@pytest.mark.parametrize(
    "listing", ["", "{", "[" * 10_000, "[]", '{"model.safetensors": "1"}', '{"config.json": true}']
)
def test_a_kept_listing_that_is_none_is_fetched_again(hub, tmp_path, listing):
    """Its checksum is right: another version wrote it, or somebody."""
    file = write_sparse(tmp_path / "a", {"a": ("U8", (1,))})
    commit = hub.add_repo(REPO, {"model.safetensors": file})
    load(f"{REPO}@{commit}")
    kept.keep(("listing", REPO, commit), listing.encode())
    hub.requests.clear()
    assert load(f"{REPO}@{commit}") == 1
    assert len(hub.requests) == 1
    hub.requests.clear()
    assert (load(f"{REPO}@{commit}"), hub.requests) == (1, [])


def test_bytes_kept_under_another_key_are_not_taken(hub):
    kept.keep(("a",), b"of a")
    os.replace(kept._path(("a",)), kept._path(("b",)))
    assert kept.recall(("b",)) is None


def test_keeping_is_switched_off(hub, commit, run_python):
    ref = f"{REPO}@{commit}"
    for _ in range(2):
        hub.requests.clear()
        assert run_python(LOAD.format(ref=ref), DRAFTER_AUDIT_NO_CACHE="1").stdout[0].isdigit()
    assert len(asked(hub, ".safetensors")) == SHARDS
    assert not (hub.home / "assets").exists()


def test_a_folder_that_cannot_be_written_keeps_nothing(hub, commit, tmp_path, run_python):
    (tmp_path / "file").touch()
    done = run_python(LOAD.format(ref=REPO), HF_ASSETS_CACHE=str(tmp_path / "file"))
    assert (done.stdout[0].isdigit(), done.stderr) == (True, "")


def test_weights_read_by_range_are_not_kept(hub, tmp_path):
    hub.add_repo(REPO, {"a.safetensors": write_sparse(tmp_path / "a", {"a": ("U8", (100,))})})
    for _ in range(2):
        open_source(REPO).read_range("a.safetensors", 10, 20)
    assert len(asked(hub, "a.safetensors")) == 2


def test_the_oldest_makes_room(hub, monkeypatch):
    monkeypatch.setattr(kept, "MAX_KEPT_BYTES", 1000)
    for n in range(12):
        kept.keep(("a", str(n)), bytes(96))  # 100 bytes with its checksum
    for n in range(12):
        os.utime(kept._path(("a", str(n))), (n, n))
    kept._make_room.cache_clear()
    kept.keep(("new",), b"")
    found = [n for n in range(12) if kept.recall(("a", str(n))) is not None]
    assert found == [7, 8, 9, 10, 11]
    assert kept.recall(("new",)) == b""


DRIP = """
from drafter_audit.sources import client
client.BODY_S = 0.5
"""


@pytest.mark.parametrize("weights", [False, True])
def test_a_body_that_drips_is_given_up(hub, tmp_path, run_python, weights):
    file = write_sparse(tmp_path / "a", {"a": ("U8", (1,))})
    hub.add_repo(REPO, {"config.json": b"{}" + b" " * 1000, **({"model.safetensors": file} if weights else {})})
    hub.drip = 0.1
    start = time.monotonic()
    code = DRIP + LOAD.format(ref=REPO)
    done = run_python(code if not weights else code.replace("len(read_config(source))", "0"))
    assert done.stdout.startswith("NetworkError 3 too slow: "), done.stdout + done.stderr
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert time.monotonic() - start < 8


def test_a_dead_hub_is_given_up_soon(hub, run_python):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        start = time.monotonic()
        done = run_python(LOAD.format(ref=REPO), HF_ENDPOINT=f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert done.stdout.startswith("NetworkError 3 no connection to the Hub, ")
    assert time.monotonic() - start < 10


CLI = "import sys; from drafter_audit.cli.main import main; sys.exit(main({arguments!r}))"


def test_offline_option(hub, tmp_path, run_python):
    file = write_sparse(tmp_path / "a", {"fc.weight": ("BF16", (8, 24))})
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": file})
    arguments = ["params", REPO, "--offline"]
    done = run_python(CLI.format(arguments=arguments))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: offline, and ")
    assert done.stderr.count("\n") == 1
    assert hub.requests == []
    assert run_python(CLI.format(arguments=arguments[:2])).returncode == 0
    hub.requests.clear()
    done = run_python(CLI.format(arguments=[*arguments, "--format", "json"]))
    assert (done.returncode, done.stderr, hub.requests) == (0, "", [])
    assert "fc.weight" in done.stdout


def test_offline_ends_with_the_command(hub):
    """The client of this process is imported already."""
    from drafter_audit.cli.main import main

    hub.add_repo(REPO, {"config.json": b"{}"})
    assert main(["compare", REPO, REPO, "--offline"]) == 3
    assert hub.requests == []
    assert read_config(open_source(REPO)) == {}
