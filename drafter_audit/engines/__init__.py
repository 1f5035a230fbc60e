"""Serving engines: what each would really do with a drafter. One file each; its rules may lie beside it as data."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from packaging.version import InvalidVersion, Version

from drafter_audit.engines.base import Engine, Release
from drafter_audit.engines.llama_cpp import LLAMA_CPP
from drafter_audit.engines.sglang import SGLANG
from drafter_audit.engines.tensorrt_llm import TENSORRT_LLM
from drafter_audit.engines.vllm import VLLM
from drafter_audit.errors import UsageError

ENGINES: tuple[Engine, ...] = (SGLANG, VLLM, TENSORRT_LLM, LLAMA_CPP)
ALL = "all"

_BY_NAME = {engine.name: engine for engine in ENGINES}
_OTHER_NAMES = {"trtllm": "tensorrt-llm", "tensorrt_llm": "tensorrt-llm", "trt-llm": "tensorrt-llm",
                "llamacpp": "llama.cpp", "llama-cpp": "llama.cpp", "llama_cpp": "llama.cpp"}  # fmt: skip


def newest_releases() -> tuple[Release, ...]:
    """Every engine at the newest version that is known, with all its runners."""
    return tuple(release for engine in ENGINES for release in _releases(engine, engine.newest))


def read_releases(named: Sequence[str]) -> tuple[Release, ...]:
    """What `--engine` names: "sglang", "vllm@0.33.0", "all". Raises UsageError."""
    found = [release for name in named for release in (newest_releases() if name == ALL else _read(name))]
    return tuple(dict.fromkeys(found))


def engine_of(release: Release) -> Engine:
    return _BY_NAME[release.engine]


def _read(text: str) -> tuple[Release, ...]:
    name, _, version = text.partition("@")
    lowered = name.strip().lower()
    engine = _BY_NAME.get(_OTHER_NAMES.get(lowered, lowered))
    if engine is None:
        near = get_close_matches(lowered, [*_BY_NAME, ALL], n=1)
        meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(_BY_NAME)} and {ALL}"
        raise UsageError(f"no engine {name!r} is known", "--engine", meant)
    return _releases(engine, _version(engine, version.strip()) if version else engine.newest)


def _version(engine: Engine, version: str) -> str:
    plain = version.lstrip("vb")
    try:
        number = Version(plain)
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is no version", "--engine", f"write {engine.name}@{engine.newest}") from error
    if number < Version(engine.oldest):
        known = f"rules are known from {engine.oldest} to {engine.newest}"
        raise UsageError(f"{engine.name} {version} is too old to answer for", "--engine", known)
    return plain


def _releases(engine: Engine, version: str) -> tuple[Release, ...]:
    return tuple(Release(engine.name, version, runner) for runner in engine.runners(version))
