"""Serving engines: what each would really do with a drafter. One package each; its rules lie in it as data."""

from __future__ import annotations

import re
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
    """What `--engine` names: "sglang", "vllm@0.33.0", "all"; each release once, however it is written.

    Raises UsageError.
    """
    found: dict[tuple[str, Version, str | None], Release] = {}
    for release in (release for name in named for release in _read(name)):
        found.setdefault((release.engine, release.number, release.runner), release)
    return tuple(found.values())


def engine_of(release: Release) -> Engine:
    return _BY_NAME[release.engine]


def _read(text: str) -> tuple[Release, ...]:
    name, at, version = (part.strip() for part in text.partition("@"))
    lowered = name.lower()
    if lowered == ALL:
        return _all(version, bool(at))
    engine = _BY_NAME.get(_OTHER_NAMES.get(lowered, lowered))
    if engine is None:
        raise UsageError(f"no engine {name!r} is known", "--engine", _meant(lowered))
    if at and not version:
        mend = f"write {engine.name}@{engine.newest}, or {engine.name} for that newest one"
        raise UsageError(f"no version stands after the @ of {text!r}", "--engine", mend)
    return _releases(engine, _version(engine, version) if at else engine.newest)


def _all(version: str, at: bool) -> tuple[Release, ...]:
    if at:
        what = f"{ALL} takes no version, as each engine has its own"
        raise UsageError(what, f"--engine {ALL}@{version}", f"leave it out, or name engines such as vllm@{version}")
    return newest_releases()


def _meant(name: str) -> str:
    """What to write in the place of an unknown name; "sglang==0.5.3" and "sglang 0.5.3" hold a known one."""
    split = re.fullmatch(r"([a-z._-]+?)[\s=:/-]+(v?\d.*|b\d+)", name)
    if split and split[1] in (_BY_NAME | _OTHER_NAMES):
        return f"write {_OTHER_NAMES.get(split[1], split[1])}@{split[2]}"
    near = get_close_matches(name, [*_BY_NAME, ALL], n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(_BY_NAME)} and {ALL}"


def _version(engine: Engine, version: str) -> str:
    plain = re.sub(r"^[vb](?=\d)", "", version, flags=re.IGNORECASE)
    try:
        number = Version(plain)
    except InvalidVersion as error:
        mend = f"write a release such as {engine.name}@{engine.newest}"
        raise UsageError(f"{version!r} is no version", f"--engine {engine.name}", mend) from error
    if number < Version(engine.oldest):
        known = f"rules are known from {engine.oldest} to {engine.newest}"
        raise UsageError(f"{engine.name} {version} is too old to answer for", "--engine", known)
    return plain


def _releases(engine: Engine, version: str) -> tuple[Release, ...]:
    return tuple(Release(engine.name, version, runner) for runner in engine.runners(version))
