"""What a reference string means, and what is said of one that means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_audit.errors import AuditError, BadReferenceError, NotFoundError
from drafter_audit.sources.bundled import bundled_names
from drafter_audit.sources.reference import Reference, parse_reference

REPO = "org/name"


def hub_reference(ref: str, **named: str) -> Reference:
    return Reference(ref, "hub", REPO, **named)


@pytest.mark.parametrize(
    ("ref", "named"),
    [
        ("org/name", {}),
        ("org/name@v1.0", {"revision": "v1.0"}),
        ("org/name@feature/x", {"revision": "feature/x"}),
        ("org/name@refs/pr/7", {"revision": "refs/pr/7"}),
        ("hf://org/name", {}),
        ("hf://models/org/name", {}),
        ("hf://org/name@v1", {"revision": "v1"}),
        ("hf://org/name/epoch_2", {"path": "epoch_2"}),
        ("hf://org/name@v1/epoch_2/last", {"revision": "v1", "path": "epoch_2/last"}),
        ("hf://org/name/epoch_2/model.safetensors", {"path": "epoch_2", "weights_file": "model.safetensors"}),
        ("https://huggingface.co/org/name", {}),
        ("https://huggingface.co/org/name/", {}),
        ("huggingface.co/org/name", {}),
        ("hf.co/org/name", {}),
        ("https://huggingface.co/org/name/tree/v1", {"revision": "v1"}),
        ("https://huggingface.co/org/name/tree/main/epoch_2", {"revision": "main", "path": "epoch_2"}),
        ("https://huggingface.co/org/name/tree/feature%2Fx", {"revision": "feature/x"}),
        (
            "https://huggingface.co/org/name/blob/main/sub/config.json",
            {"revision": "main", "path": "sub/config.json"},
        ),
        (
            "https://huggingface.co/org/name/resolve/main/model.safetensors?download=true",
            {"revision": "main", "weights_file": "model.safetensors"},
        ),
    ],
)
def test_names_a_repository(ref, named):
    assert parse_reference(ref) == hub_reference(ref, **named)


def test_names_a_repository_on_the_configured_endpoint(hub):
    for ref in (f"{hub.endpoint}/org/name/tree/v1", f"{hub.endpoint}/org/name/tree/v1".removeprefix("http://")):
        assert parse_reference(ref) == hub_reference(ref, revision="v1")


def test_names_a_bundled_record():
    name = bundled_names()[0]
    assert parse_reference(name) == Reference(name, "bundled", name)


@pytest.mark.parametrize("name", ["folder", "org/name", "huggingface.co/org/name", "hf.co"])
def test_an_existing_folder_wins(name, tmp_path, monkeypatch):
    (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_reference(name) == Reference(name, "local", name)


def test_an_existing_folder_wins_over_a_bundled_record(tmp_path, monkeypatch):
    name = bundled_names()[0]
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_reference(name).kind == "local"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    (tmp_path / "ours").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_reference("~/ours").name == str(tmp_path / "ours")


def test_a_local_file_means_its_folder(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "epoch_2.safetensors").touch()
    config, weights = (str(tmp_path / name) for name in ("config.json", "epoch_2.safetensors"))
    assert parse_reference(config) == Reference(config, "local", str(tmp_path))
    assert parse_reference(weights) == Reference(weights, "local", str(tmp_path), weights_file="epoch_2.safetensors")


@pytest.mark.parametrize(
    "ref",
    ["./absent", "../absent", "/absent/folder", "~/absent", "absent.safetensors", "org/absent.safetensors", "a/b/"],
)
def test_an_absent_path_is_not_found(ref):
    with pytest.raises(NotFoundError, match="no such file or folder") as caught:
        parse_reference(ref)
    assert ref in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "ref",
    [
        "",
        " ",
        "gpt2",
        "a/b/c",
        "org/na me",
        "org/--name",
        "org/name@",
        "@v1",
        "hf://",
        "hf://name",
        "https://example.com/org/name",
        "s3://bucket/key",
        "https://huggingface.co/org",
        "https://huggingface.co/org/name/discussions/1",
        "hf://org/name/../other",
        "org/name@../../x",
        "nul\0character",
    ],
)
def test_nonsense_is_bad_usage(ref):
    with pytest.raises(BadReferenceError, match="give org/name") as caught:
        parse_reference(ref)
    assert caught.value.exit_code == 2
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", ["dataset", "space"])
def test_a_repository_of_another_type_is_bad_usage(kind):
    with pytest.raises(BadReferenceError, match=f"a {kind}, not a model"):
        parse_reference(f"https://huggingface.co/{kind}s/org/name")


def test_a_near_miss_of_a_bundled_name_is_told():
    name = bundled_names()[0]
    with pytest.raises(BadReferenceError, match=f"did you mean {name}"):
        parse_reference(name[:-1])


def test_control_characters_are_escaped():
    with pytest.raises(AuditError) as caught:
        parse_reference("\x1b[31mred")
    assert "\x1b" not in str(caught.value)
    assert "x1b[31mred" in str(caught.value)


def test_a_folder_is_read_without_the_hub_client_numpy_or_safetensors(tmp_path: Path, run_python):
    (tmp_path / "config.json").write_text("{}")
    done = run_python(
        "import sys\n"
        "from drafter_audit.sources.open import open_source\n"
        "from drafter_audit.sources.usage import hub_usage\n"
        f"source = open_source({str(tmp_path)!r})\n"
        "print(source.read('config.json', limit=10), hub_usage().to_dict())\n"
        "print(sorted({'huggingface_hub', 'httpx2', 'numpy', 'safetensors'} & sys.modules.keys()))\n"
    )
    assert done.stdout == "b'{}' {'requests': 0, 'bytes': 0}\n[]\n"
    assert done.stderr == ""
