"""config.json, read strictly: a dict, or one line that says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from drafter_audit.checkpoint.strict_json import DuplicateKeyError, strict_loads
from drafter_audit.errors import CheckpointError, ConfigError, NotFoundError
from drafter_audit.sources.base import Source

MAX_CONFIG_BYTES = 10_000_000


def read_config(source: Source, name: str = "config.json") -> dict[str, Any]:
    """The object in the source's `name`.

    Raises ConfigError where it is absent, above 10 MB, not UTF-8, not JSON, nested deeper than 100, no object, or
    holds NaN, a repeated key or a number out of range; NotFoundError, NetworkError, AccessError where the source
    cannot be had.
    """
    try:
        data = source.read(name, limit=MAX_CONFIG_BYTES)
    except NotFoundError as error:
        files = source.files()  # of a repository that does not exist this says so
        if name in files:  # a link to nothing
            raise
        what = f"no {name}" if files else f"empty, so no {name}"
        raise ConfigError(what, source.name, "name the folder that holds it") from error
    except CheckpointError as error:
        raise ConfigError(error.what, error.where, error.mend) from error
    return parse_config(data, f"{source.name}/{name}")


def parse_config(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `data`; `where` names it in errors. Raises ConfigError."""
    try:
        text = data.decode("utf-8-sig")
        value = strict_loads(text)
    except UnicodeDecodeError as error:
        _refuse(f"not UTF-8 at byte {error.start}", where, error)
    except json.JSONDecodeError as error:
        _refuse(f"not JSON: {error.msg}", f"{where}:{error.lineno}:{error.colno}", error)
    except DuplicateKeyError as error:
        _refuse(f"the key {error.key!r} stands in it twice", where, error)
    except (ValueError, RecursionError) as error:
        _refuse(f"not JSON: {error}", where, error)
    if not isinstance(value, dict):
        raise ConfigError(f"not a JSON object but a {type(value).__name__}", where, "write the config's keys in { }")
    return value


def _refuse(what: str, where: str, error: Exception) -> NoReturn:
    raise ConfigError(what, where, "mend the file or write it again with json.dump") from error
