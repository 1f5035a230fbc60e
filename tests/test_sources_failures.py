"""What can go wrong on the way to the Hub: one line each, within bounds, and nothing else on stderr."""

from __future__ import annotations

import socket
import time

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from drafter_audit.checkpoint.config import read_config
from drafter_audit.checkpoint.load import load_table
from drafter_audit.errors import AccessError, AuditError, NetworkError, NotFoundError
from drafter_audit.sources.hub_errors import Place, explain
from drafter_audit.sources.open import open_source
from tests.hub import write_sparse

REPO = "org/drafter"

READ_CONFIG = f"""
from drafter_audit.checkpoint.config import read_config
from drafter_audit.errors import AuditError
from drafter_audit.sources.open import open_source
try:
    print(read_config(open_source({REPO!r})))
except AuditError as error:
    print(type(error).__name__, error.exit_code, error)
"""
LOAD = READ_CONFIG.replace("checkpoint.config", "checkpoint.load").replace("read_config", "load_table")


@pytest.fixture
def repo(hub, tmp_path):
    """A drafter of 800 MB that takes no room."""
    weights = write_sparse(tmp_path / "model.safetensors", {"fc.weight": ("F32", (200_000_000,))})
    hub.add_repo(REPO, {"config.json": b'{"a": 1}', "model.safetensors": weights})
    return REPO


def failure(ref: str, *, weights: bool = False) -> AuditError:
    """The error of reading `ref`, checked for what holds of all of them."""
    with pytest.raises(AuditError) as caught:
        load_table(open_source(ref)) if weights else read_config(open_source(ref))
    assert caught.value.exit_code == 3
    assert str(caught.value).isprintable()
    assert ref.partition("@")[0] in str(caught.value)
    return caught.value


def test_a_missing_repository(hub):
    error = failure("org/absent")
    assert type(error) is NotFoundError
    assert error.what == "no such repository"


def test_a_missing_revision(repo):
    error = failure(f"{repo}@v9")
    assert type(error) is NotFoundError
    assert error.what == "no such revision 'v9'"


@pytest.mark.parametrize(
    ("raised", "headers", "kind", "what"),
    [
        (RepositoryNotFoundError, {"X-Error-Code": "RepoNotFound"}, NotFoundError, "no such repository"),
        (RepositoryNotFoundError, {}, AccessError, "no such repository, or a private one"),
        (HfHubHTTPError, {}, AccessError, "no such repository, or a private one"),
        (HfHubHTTPError, {"X-Error-Message": "Invalid credentials"}, AccessError, "the Hub refuses the token"),
    ],
)
def test_the_ways_in_which_the_hub_says_401(raised, headers, kind, what):
    request = httpx2.Request("GET", "https://huggingface.co/api/models/org/absent")
    error = explain(raised("", response=httpx2.Response(401, headers=headers, request=request)), Place(REPO, "v1"))
    assert (type(error), str(error).startswith(f"{what}, {REPO}@v1, ")) == (kind, True)


def test_a_private_repository(hub):
    hub.add_repo(REPO, {}, private=True)
    error = failure(REPO)
    assert type(error) is AccessError
    assert error.what == "no such repository, or a private one"


@pytest.mark.parametrize("weights", [False, True])
def test_a_gated_repository(hub, tmp_path, weights):
    file = write_sparse(tmp_path / "model.safetensors", {"a": ("U8", (1,))})
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": file}, gated=True)
    error = failure(REPO, weights=weights)
    assert type(error) is AccessError
    assert error.what == "a gated repository"
    assert "HF_TOKEN" in error.mend


@pytest.mark.parametrize("status", [401, 403])
def test_access_refused(repo, hub, status):
    hub.fail(status, path="/resolve/", times=9)
    assert type(failure(repo, weights=True)) is AccessError


@pytest.mark.parametrize("path", ["/api/", "/resolve/"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(repo, hub, status, path):
    hub.fail(status, times=2, retry_after=0, path=path)
    assert read_config(open_source(repo)) == {"a": 1}
    assert load_table(open_source(repo)) is not None


def test_retry_after_is_honoured(repo, hub):
    hub.fail(429, retry_after=1)
    start = time.monotonic()
    read_config(open_source(repo))
    assert 1 <= time.monotonic() - start < 4


@pytest.mark.parametrize("path", ["/api/", "config.json"])
def test_a_server_that_stays_busy_is_given_up(repo, hub, path):
    hub.fail(503, times=99, retry_after=0, path=path)
    error = failure(repo)
    assert type(error) is NetworkError
    assert "HTTP 503" in error.what
    assert sum(request.status == 503 for request in hub.requests) == 3


@pytest.mark.parametrize("path", ["/api/", "config.json", "model.safetensors"])
@pytest.mark.parametrize("asks", ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_a_long_wait_is_not_waited_for(repo, hub, path, asks):
    hub.fail(429, times=99, retry_after=asks, path=path)
    start = time.monotonic()
    error = failure(repo, weights=path == "model.safetensors")
    assert type(error) is NetworkError
    assert "429" in error.what
    assert "asks to wait" in error.what
    assert time.monotonic() - start < 2
    assert sum(request.status == 429 for request in hub.requests) == 1


def test_a_file_cut_short(repo, hub):
    hub.cut_short = True
    error = failure(repo, weights=True)
    assert type(error) is NetworkError
    assert error.what == "model.safetensors came cut short"


def test_a_server_that_ignores_ranges_is_stopped(repo, hub):
    hub.ignore_range = True
    error = failure(repo, weights=True)
    assert type(error) is NetworkError
    assert "the server ignores Range" in error.what
    time.sleep(0.2)
    assert hub.sent < 20_000_000  # what fits the buffers of the connection, of 800 MB


def test_an_endpoint_that_is_no_hub(hub, run_python):
    done = run_python(READ_CONFIG, HF_ENDPOINT=f"{hub.endpoint}/elsewhere")
    assert done.stdout.startswith("NotFoundError 3 ")
    assert done.stderr == ""


def test_an_answer_that_is_no_json(repo, hub):
    hub.fail(200, path="/api/")
    error = failure(repo)
    assert type(error) is NetworkError
    assert error.what == "the answer is not the Hub's"


def test_no_network(hub, run_python):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = run_python(READ_CONFIG, HF_ENDPOINT=endpoint)
    assert done.stdout.startswith(f"NetworkError 3 no connection to the Hub, {REPO} at {endpoint}, ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_silent_server(hub, run_python):
    hub.latency = 2
    done = run_python(READ_CONFIG, HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert done.stdout.startswith(f"NetworkError 3 no answer within 1 s, {REPO} at {hub.endpoint}, ")
    assert done.stderr == ""


@pytest.mark.parametrize("code", [READ_CONFIG, LOAD])
def test_offline_without_a_cache(hub, run_python, code):
    done = run_python(code, HF_HUB_OFFLINE="1")
    assert done.stdout.startswith("NetworkError 3 offline, and the repository is not in the Hub's cache, org/drafter, ")
    assert done.stdout.endswith(", org/drafter, run the same once while online\n")
    assert done.stderr == ""
    assert hub.requests == []


def test_offline_with_what_an_earlier_run_read(repo, hub, run_python):
    assert read_config(open_source(repo)) == {"a": 1}
    hub.requests.clear()
    done = run_python(READ_CONFIG, HF_HUB_OFFLINE="1")
    assert (done.stdout, done.stderr) == ("{'a': 1}\n", "")
    done = run_python(LOAD, HF_HUB_OFFLINE="1")
    assert done.stdout.startswith("NetworkError 3 offline, and model.safetensors is not in the Hub's cache")
    assert done.stdout.count("run the same once while online") == 1
    assert "hf download" not in done.stdout
    assert hub.requests == []


def test_offline_with_a_full_cache(hub, tmp_path, run_python):
    weights = write_sparse(tmp_path / "model.safetensors", {"fc.weight": ("F32", (10,))})
    hub.add_repo(REPO, {"config.json": b"{}", "model.safetensors": weights})
    fetch = f"from huggingface_hub import snapshot_download; snapshot_download({REPO!r})"
    assert run_python(fetch, HF_HUB_DISABLE_PROGRESS_BARS="1").returncode == 0
    done = run_python(LOAD, HF_HUB_OFFLINE="1")
    assert "fc.weight" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("fault", ["busy", "cut short", "busy file"])
def test_stderr_is_ours(repo, hub, run_python, fault):
    hub.cut_short = fault == "cut short"
    hub.fail(503, times=0 if hub.cut_short else 99, retry_after=0, path="config.json" if fault == "busy file" else "")
    done = run_python(READ_CONFIG)
    assert done.stdout.startswith("NetworkError 3 config.json came cut short" if hub.cut_short else "NetworkError 3 ")
    assert done.stderr == ""


def test_downloads_draw_no_bar_and_the_client_still_logs_on_demand(repo, hub, run_python):
    assert run_python(READ_CONFIG).stderr == ""
    hub.cut_short = True
    hub.repos[repo].push("main", {"config.json": b"{ }"})
    assert "Trying to resume download" in run_python(READ_CONFIG, HF_HUB_VERBOSITY="info").stderr


def test_a_cache_that_cannot_be_written(repo, tmp_path, run_python):
    (tmp_path / "file").touch()
    done = run_python(READ_CONFIG, HF_HUB_CACHE=str(tmp_path / "file" / "cache"))
    assert done.stdout.startswith("SourceError 3 the Hub's cache cannot be used (Not a directory)")
    assert done.stderr == ""
