"""The command line as results tell it: without the keys and passwords that it holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from drafter_audit.secrets import without_password, without_secret_values, without_secrets


def shown(arguments: Sequence[str]) -> tuple[str, ...]:
    """
    >>> shown(["bench", "--env", "HF_TOKEN=hf_1", "--engine-args=--api-key k --tp 8", "--url", "http://me:pw@host:80"])
    ('bench', '--env', 'HF_TOKEN=***', "--engine-args=--api-key '***' --tp 8", '--url', 'http://host:80')
    """
    return tuple(_shown(arguments))


def pairs(text: str) -> list[str]:
    """The K=V of `K=V,K=V`; a comma in front of no `K=` is the value's.

    >>> pairs("CUDA_VISIBLE_DEVICES=0,1,NCCL_PROTO=LL")
    ['CUDA_VISIBLE_DEVICES=0,1', 'NCCL_PROTO=LL']
    """
    parts: list[str] = []
    for part in text.split(","):
        if "=" in part or not parts:
            parts.append(part)
        else:
            parts[-1] += f",{part}"
    return parts


def _shown(arguments: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in arguments:
        option, has_value, value = word.partition("=")
        if before in _SHOWN:
            yield _SHOWN[before](word)
        elif has_value and option in _SHOWN:
            yield f"{option}={_SHOWN[option](value)}"
        else:
            yield word
        before = word


def _variable(text: str) -> str:
    name, _, value = text.partition("=")
    return "=".join(*without_secret_values({name: value}).items()) if value else text


def _set(text: str) -> str:
    name, _, rest = text.partition("=")
    return f"{name}={','.join(_variable(pair) for pair in pairs(rest))}"


def _engine_args(text: str) -> str:
    try:
        given = tuple(shlex.split(text))
    except ValueError:  # no shell would read it, and so the command is refused
        return text
    told = without_secrets(given)
    return text if told == given else shlex.join(told)


_SHOWN = {"--env": _variable, "--env-set": _set, "--engine-args": _engine_args, "--url": without_password}
