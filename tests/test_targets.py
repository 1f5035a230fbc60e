"""Where a target's facts come from, and what is never asked for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.rules import find
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.target import named_target, quantization_label
from drafter_audit.errors import NotFoundError
from tests.checkpoints import KIMI_CONFIG, kimi_tensors, read_peer, write_checkpoint, write_peer
from tests.hub import Hub, write_sparse

QWEN = {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096, "vocab_size": 151936}


@pytest.mark.parametrize(
    ("config", "label"),
    [
        ({}, "none"),
        ({"quantization_config": None}, "none"),
        ({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}}, "fp8"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq int4"),
        ({"quantization_config": {"quant_method": "awq", "w_bit": 4}}, "awq int4"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "modelopt NVFP4"),
        (
            {
                "text_config": {
                    "quantization_config": {
                        "quant_method": "compressed-tensors",
                        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
                    }
                }
            },
            "compressed-tensors int4",
        ),
    ],
)
def test_quantisation_in_one_name(config: dict[str, Any], label: str) -> None:
    assert quantization_label(ConfigView(config, "config.json")) == label


def test_speculators_names_its_verifier(hub: Hub, tmp_path: Path) -> None:
    """Drafter and verifier are on the Hub: the verifier's config is read for the layer count, none of its weights."""
    config, tensors, _ = read_peer("speculators_eagle3")
    config["speculators_config"]["verifier"]["name_or_path"] = "some-org/target"
    weights = write_sparse(tmp_path / "model.safetensors", tensors)
    hub.add_repo("some-org/drafter", files={"config.json": json.dumps(config).encode(), "model.safetensors": weights})
    hub.add_repo("some-org/target", files={"config.json": json.dumps(QWEN).encode(), "model.safetensors": weights})
    spec = open_drafter("some-org/drafter")
    assert (spec.target.ref, spec.target.said_by, spec.target.num_layers) == ("some-org/target", "config.json", 36)
    assert not [r for r in hub.requests if r.path.startswith("/some-org/target") and r.path.endswith(".safetensors")]


def test_a_hub_target_that_is_missing_is_told(hub: Hub, tmp_path: Path) -> None:
    config, tensors, _ = read_peer("speculators_eagle3")
    config["speculators_config"]["verifier"]["name_or_path"] = "some-org/nowhere"
    weights = write_sparse(tmp_path / "model.safetensors", tensors)
    hub.add_repo("some-org/drafter", files={"config.json": json.dumps(config).encode(), "model.safetensors": weights})
    unread = next(finding for finding in find(open_drafter("some-org/drafter")) if finding.code == "TARGET-UNREAD")
    assert "some-org/nowhere" in unread.what


def test_a_target_the_user_names_must_be_readable(tmp_path: Path) -> None:
    ref = write_checkpoint(tmp_path / "aq", KIMI_CONFIG, kimi_tensors())
    with pytest.raises(NotFoundError):
        open_drafter(ref, target=str(tmp_path / "nowhere"))


def test_the_users_word_comes_first(tmp_path: Path) -> None:
    ref = write_checkpoint(tmp_path / "ours", KIMI_CONFIG, kimi_tensors())
    (tmp_path / "ours" / "drafter-audit.toml").write_text('[[drafter]]\ntarget = "moonshotai/Kimi-K2.5"\n')
    assert open_drafter(ref).target.quantization == "compressed-tensors int4"
    named = open_drafter(ref, target=write_peer(tmp_path / "target", "tiny_llama")).target
    assert (named.said_by, named.num_layers) == ("--target", 8)


def test_a_target_by_a_path_or_a_bundled_name(tmp_path: Path) -> None:
    """In drafter-audit.toml a path is taken from the file's folder, wherever the command runs."""
    write_peer(tmp_path / "target", "tiny_llama")
    ref = write_checkpoint(tmp_path / "ours", KIMI_CONFIG, kimi_tensors())
    for written, layers in (("../target", 8), ("moonshotai-kimi-k2-instruct", 61), ("moonshotai/Kimi-K2-Instruct", 61)):
        (tmp_path / "ours" / "drafter-audit.toml").write_text(f'[[drafter]]\ntarget = "{written}"\n')
        assert open_drafter(ref).target.num_layers == layers


@pytest.mark.parametrize(("algorithm", "label"), [("NVFP4", "modelopt NVFP4"), (None, "none")])
def test_modelopts_own_file_tells_the_quantisation(tmp_path: Path, algorithm: str | None, label: str) -> None:
    write_checkpoint(tmp_path / "target", {"num_hidden_layers": 8, "architectures": ["LlamaForCausalLM"]}, {})
    written = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}
    (tmp_path / "target" / "hf_quant_config.json").write_text(json.dumps(written))
    assert named_target(str(tmp_path / "target")).quantization == label


def test_a_local_drafter_asks_nothing_of_the_network(tmp_path: Path, run_python: Callable[..., Any]) -> None:
    ref = write_checkpoint(tmp_path / "ours", KIMI_CONFIG, kimi_tensors())
    (tmp_path / "ours" / "drafter-audit.toml").write_text('[[drafter]]\ntarget = "some-org/not-bundled"\n')
    code = f"""
import sys
from drafter_audit import open_drafter
print(open_drafter({ref!r}).target.unread)
assert not [name for name in sys.modules if name.split(".")[0] in ("huggingface_hub", "httpx2", "numpy")]
"""
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the Hub is not asked" in done.stdout


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 200_000,
        b'{"sha": 5, "siblings": []}',
        b'{"id": "a/b", "sha": "x", "siblings": [{"rfilename": "config.json", "size": "10"}]}',
        b'{"id": "a/b", "sha": "x", "siblings": [{"rfilename": 5}]}',
        b"<html>sign in</html>",
    ],
    ids=["deep", "sha", "size", "name", "page"],
)
def test_an_answer_that_is_not_the_hubs_is_one_line(answer: bytes, run_python: Callable[..., Any]) -> None:
    with answering(answer) as endpoint:
        done = run_python(
            "from drafter_audit.cli.main import main; print(main(['params', 'a/b']))", HF_ENDPOINT=endpoint
        )
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert done.stderr.count("\n") == 1
    assert "the answer is not the Hub's" in done.stderr


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """A server that answers everything with `body`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_card_that_cannot_be_read_costs_only_what_it_says(hub: Hub, tmp_path: Path) -> None:
    weights = write_sparse(tmp_path / "model.safetensors", kimi_tensors())
    files = {
        "config.json": json.dumps(KIMI_CONFIG).encode(),
        "model.safetensors": weights,
        "README.md": b"x" * 3_000_000,
    }
    hub.add_repo("some-org/drafter", files=files)
    spec = open_drafter("some-org/drafter", target="moonshotai-kimi-k2-instruct")
    assert spec.parameters.stored == 1_190_948_864
    assert "README.md" in next(finding.what for finding in find(spec) if finding.code == "FACTS-UNREAD")
