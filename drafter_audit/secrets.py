"""Keys and passwords in what is shown or kept: results and folders of results are passed around."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)([-_](?!ENV$)|$)")


def is_secret(name: str) -> bool:
    """Whether an option or a variable of this name holds one; `--api-key-env` holds but a variable's name.

    >>> [name for name in ("HF_TOKEN", "--api-key", "--api-key-env", "--tokenizer", "--max-tokens") if is_secret(name)]
    ['HF_TOKEN', '--api-key']
    """
    return bool(_SECRET.search(name.upper()))


def without_secrets(args: Sequence[str]) -> tuple[str, ...]:
    """A command line with what its secret options hold left out, such as --api-key, which both engines take.

    >>> without_secrets(["--api-key", "a", "--admin_api_key=b", "--tokenizer", "c"])
    ('--api-key', '***', '--admin_api_key=***', '--tokenizer', 'c')
    """
    shown, hidden = [], False
    for arg in args:
        is_option = arg.startswith("--")
        name, has_value, _ = arg.partition("=")
        secret = is_option and is_secret(name)
        shown.append(f"{name}={HIDDEN}" if secret and has_value else HIDDEN if hidden and not is_option else arg)
        hidden = not has_value if secret else hidden and not is_option
    return tuple(shown)


def without_secret_values(env: Mapping[str, str]) -> dict[str, str]:
    """
    >>> without_secret_values({"HF_TOKEN": "hf_1", "NCCL_PROTO": "LL"})
    {'HF_TOKEN': '***', 'NCCL_PROTO': 'LL'}
    """
    return {name: HIDDEN if is_secret(name) else value for name, value in env.items()}


def without_password(url: str) -> str:
    """Without a name and a password before the host.

    >>> without_password("http://me:secret@host:8000/v"), without_password("http://host/a@b")
    ('http://host:8000/v', 'http://host/a@b')
    """
    return re.sub("//[^/]*@", "//", url, count=1)
