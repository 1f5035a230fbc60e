"""Checkpoints on the Hub, read through its real client from the stand-in."""

from __future__ import annotations

import json
import time

import pytest

from drafter_audit.checkpoint.config import read_config
from drafter_audit.checkpoint.load import load_table
from drafter_audit.errors import AuditError, CheckpointError, ConfigError, NotFoundError
from drafter_audit.sources.open import open_source
from drafter_audit.sources.usage import hub_usage
from tests.hub import write_sparse

REPO = "org/drafter"
TENSORS = {"fc.weight": ("BF16", (4096, 12288)), "norm.weight": ("BF16", (4096,))}
SHARDS = [f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]


@pytest.fixture
def weights(tmp_path):
    """100 MB of weights that take no room."""
    return write_sparse(tmp_path / "model.safetensors", TENSORS)


def asked(hub) -> list[str]:
    return [f"{request.method} {request.path.partition('?')[0]}" for request in hub.requests]


def test_opening_asks_nothing(hub):
    source = open_source(REPO)
    assert (source.kind, source.name, source.ref, source.weights_file) == ("hub", REPO, REPO, None)
    assert hub.requests == []


def test_reads_a_checkpoint_in_few_requests_and_bytes(hub, weights):
    commit = hub.add_repo(REPO, {"config.json": b'{"a": 1}', "model.safetensors": weights})
    source = open_source(REPO)
    table = load_table(source)
    assert table is not None
    assert [tensor.shape for tensor in table] == [(4096, 12288), (4096,)]
    assert read_config(source) == {"a": 1}
    assert source.revision == commit
    assert source.files() == {"config.json": 8, "model.safetensors": weights.stat().st_size}
    assert asked(hub) == [
        f"GET /api/models/{REPO}",
        f"GET /{REPO}/resolve/{commit}/model.safetensors",
        f"HEAD /{REPO}/resolve/main/config.json",
        f"GET /{REPO}/resolve/main/config.json",
    ]
    assert hub.sent < 101_000


def test_a_second_run_fetches_no_small_file_again(hub):
    hub.add_repo(REPO, {"config.json": b"{}"})
    for _ in range(2):
        read_config(open_source(REPO))
    assert asked(hub)[3:] == [f"GET /api/models/{REPO}"]


def test_a_commit_that_is_cached_needs_no_request(hub):
    commit = hub.add_repo(REPO, {"config.json": b"{}"})
    read_config(open_source(REPO))
    hub.requests.clear()
    source = open_source(f"{REPO}@{commit}")
    assert (read_config(source), source.revision, hub.requests) == ({}, commit, [])


def test_a_branch_that_moved_is_read_at_its_new_commit(hub):
    hub.add_repo(REPO, {"config.json": b'{"a": 1}'})
    assert read_config(open_source(REPO)) == {"a": 1}
    moved = hub.repos[REPO].push("main", {"config.json": b'{"a": 2}'})
    source = open_source(REPO)
    assert (read_config(source), source.revision) == ({"a": 2}, moved)


def test_a_source_stays_at_the_commit_it_resolved_first(hub):
    first = hub.add_repo(REPO, {"config.json": b'{"a": 1}'})
    source = open_source(REPO)
    assert source.revision == first
    hub.repos[REPO].push("main", {"config.json": b'{"a": 2}'})
    assert read_config(source) == {"a": 1}


def test_weights_in_the_cache_are_read_from_disk(hub, weights, run_python):
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": weights})
    fetch = f"from huggingface_hub import snapshot_download; snapshot_download({REPO!r})"
    assert run_python(fetch, HF_HUB_DISABLE_PROGRESS_BARS="1").returncode == 0
    hub.requests.clear()
    assert load_table(open_source(REPO)) is not None
    assert asked(hub) == [f"GET /api/models/{REPO}"]


@pytest.mark.parametrize("revision", ["v1", "refs/pr/1", "feature/x"])
def test_reads_another_revision(hub, revision):
    hub.add_repo(REPO, {}, revisions={revision: {"config.json": b'{"a": 2}'}})
    assert read_config(open_source(f"{REPO}@{revision}")) == {"a": 2}


@pytest.mark.parametrize(
    "ref",
    [
        "hf://org/drafter/epoch_2",
        "{0}/org/drafter/tree/main/epoch_2",
        "{0}/org/drafter/blob/main/epoch_2/config.json",
        "{0}/org/drafter/resolve/main/epoch_2/README.md?download=true",
    ],
)
def test_reads_a_folder(hub, weights, ref):
    inner = {"epoch_2/config.json": b'{"a": 2}', "epoch_2/README.md": b"", "epoch_2/model.safetensors": weights}
    hub.add_repo(REPO, {"config.json": b"{}", **inner})
    source = open_source(ref.format(hub.endpoint))
    assert read_config(source) == {"a": 2}
    assert sorted(source.files()) == ["README.md", "config.json", "model.safetensors"]
    table = load_table(source)
    assert table is not None
    assert table.files == ("model.safetensors",)


def test_a_link_to_a_weight_file_means_that_file(hub, weights):
    hub.add_repo(REPO, {"a.safetensors": b"", "sub/b.safetensors": weights})
    source = open_source(f"{hub.endpoint}/{REPO}/blob/main/sub/b.safetensors")
    assert source.weights_file == "b.safetensors"
    table = load_table(source)
    assert table is not None
    assert len(table) == 2


def test_reads_shards_at_once(hub, tmp_path):
    files = {name: write_sparse(tmp_path / name, {f"t{name[10]}": ("F32", (10**6,))}) for name in SHARDS}
    index = {"weight_map": {f"t{name[10]}": name for name in SHARDS}}
    hub.add_repo(REPO, {**files, "model.safetensors.index.json": json.dumps(index).encode()})
    source = open_source(REPO)
    assert source.files()
    hub.latency = 0.3
    start = time.monotonic()
    table = load_table(source)
    assert table is not None
    assert table.files == tuple(SHARDS)
    assert sum(request.range is not None for request in hub.requests) == 3
    assert time.monotonic() - start < 3 * 0.3 + 2 * 0.3


def test_follows_the_redirect_of_large_files(hub, weights):
    hub.add_repo(REPO, {"model.safetensors": weights}, lfs=True)
    assert load_table(open_source(REPO)) is not None
    assert asked(hub)[-1].startswith(f"GET /cdn/{REPO}/resolve/")
    assert hub.sent < 101_000


def test_a_listing_without_sizes_does(hub, weights):
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": weights}, sizes=False)
    source = open_source(REPO)
    assert load_table(source) is not None
    assert read_config(source) == {}


@pytest.mark.parametrize("sizes", [True, False])
def test_a_huge_config_is_not_fetched(hub, tmp_path, sizes):
    huge = tmp_path / "config.json"
    huge.touch()
    with huge.open("r+b") as file:
        file.truncate(10**9)
    hub.add_repo(REPO, {"config.json": huge}, sizes=sizes)
    with pytest.raises(ConfigError, match="larger than 10000000 bytes"):
        read_config(open_source(REPO))
    assert hub.sent < 1000


def test_ranges_end_where_the_file_ends(hub):
    hub.add_repo(REPO, {"a.bin": b"0123456789", "empty.bin": b""})
    source = open_source(REPO)
    assert source.read_range("a.bin", 2, 5) == b"234"
    assert source.read_range("a.bin", 8, 50) == b"89"
    assert source.read_range("a.bin", 50, 60) == b""
    assert source.read_range("a.bin", 5, 5) == b""
    assert source.read_range("empty.bin", 0, 10) == b""


def test_counts_what_it_asks_for(hub, weights):
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": weights}, lfs=True)
    before = hub_usage()
    source = open_source(REPO)
    load_table(source)
    read_config(source)
    after = hub_usage()
    assert after.requests - before.requests == len(hub.requests) == 5
    assert after.bytes - before.bytes == hub.sent


def test_sends_the_token(hub, run_python):
    hub.add_repo(REPO, {"config.json": b'{"a": 1}'}, private=True)
    code = (
        "from drafter_audit.checkpoint.config import read_config; from drafter_audit.sources.open import open_source\n"
        f"print(read_config(open_source({REPO!r})))"
    )
    done = run_python(code, HF_TOKEN="hf_accepted")
    assert (done.stdout, done.stderr) == ("{'a': 1}\n", "")


def test_absent_files_are_told_from_the_listing(hub):
    hub.add_repo(REPO, {"README.md": b""})
    source = open_source(REPO)
    with pytest.raises(ConfigError, match=r"no config\.json, org/drafter"):
        read_config(source)
    with pytest.raises(NotFoundError, match=r"no absent\.json, org/drafter"):
        source.read_range("absent.json", 0, 10)
    with pytest.raises(CheckpointError, match="leaves its folder"):
        source.read("../config.json", limit=10)
    assert len(hub.requests) == 1


def test_an_absent_folder_is_named(hub):
    hub.add_repo(REPO, {"epoch_10/config.json": b"{}"})
    with pytest.raises(NotFoundError, match="no epoch_1, org/drafter"):
        open_source(f"hf://{REPO}/epoch_1").files()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "empty, org/drafter"),
        ({"README.md": b""}, "neither config.json nor weights, org/drafter"),
        ({"pytorch_model.bin": b""}, "an empty file, org/drafter/pytorch_model.bin"),
        ({"model.safetensors": b""}, "an empty file, org/drafter/model.safetensors"),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}, "a git-lfs pointer"),
        ({"model.safetensors": b"<!DOCTYPE html>"}, "an HTML page"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "a.safetensors"}}'}, "not there (a.safetensors)"),
        ({"\x1b[2J.gguf": b""}, "org/drafter/\\x1b[2J.gguf"),
    ],
)
def test_a_bad_repository_is_told_in_one_line(hub, files, said):
    hub.add_repo(REPO, files)
    with pytest.raises(AuditError) as caught:
        load_table(open_source(REPO))
    message = str(caught.value)
    assert said in message
    assert message.isprintable()
    assert caught.value.exit_code == 3
