"""Every failure a user can meet, and the one place that maps it to an exit code.

    AuditError                     exit 3, could not measure
    +-- UsageError                 exit 2, the command line or drafter-audit.toml is wrong
    |   +-- BadReferenceError      text that is no reference
    |   +-- ProjectFileError       drafter-audit.toml does not follow its schema
    +-- SourceError                exit 3, the files could not be had
    |   +-- NotFoundError          no such repository, revision, folder or file
    |   +-- AccessError            gated or private
    |   +-- NetworkError           no network, offline without a cache, 429, 5xx, a body cut short
    +-- CannotRunError             exit 3, a drafter of a kind, format or setting that is not run
    +-- RankError                  exit 3, a process that runs the target with others lost one of them
    +-- ServerError            exit 3, a serving engine that cannot be started, reached or believed
    |   +-- LostServerError    its connection failed, or an answer broke off
    +-- InputsError                exit 3, tokens or states that do not fit the drafter
    +-- RecordingError             exit 3, a folder that is no recording, or a damaged or unfinished one
    +-- CheckpointError            exit 3, the files are not what they claim to be
        +-- ConfigError            config.json
        +-- HeaderError            a weight file's header
        +-- PickledError           a weight file that torch.save wrote
        +-- ShardIndexError        a shard index

A message says what is wrong, where, and how to mend it, on one line. Text that came from a file or
the network is escaped here, so that a repository cannot write to the user's terminal.
"""

from __future__ import annotations

import unicodedata

EXIT_OK = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_MEASURED = 3
EXIT_INTERRUPTED = 130


class AuditError(Exception):
    """What is wrong, where it is, and how to mend it.

    >>> str(AuditError("config.json is not JSON", "./ours/config.json:3", "write it again with json.dump"))
    'config.json is not JSON, ./ours/config.json:3, write it again with json.dump'
    """

    exit_code = EXIT_NOT_MEASURED

    def __init__(self, what: str, where: str, mend: str) -> None:
        self.what, self.where, self.mend = (_shorten(escape(_shorten(part))) for part in (what, where, mend))
        super().__init__(f"{self.what}, {self.where}, {self.mend}")


class UsageError(AuditError):
    exit_code = EXIT_USAGE


class BadReferenceError(UsageError):
    pass


class ProjectFileError(UsageError):
    """Of `file`, as it was opened; `place` is a table in it."""

    def __init__(self, what: str, file: str, mend: str, place: str = "") -> None:
        self.file, self.place = file, place
        super().__init__(what, f"{file}, {place}" if place else file, mend)


class SourceError(AuditError):
    pass


class NotFoundError(SourceError):
    pass


class AccessError(SourceError):
    pass


class NetworkError(SourceError):
    pass


class CannotRunError(AuditError):
    pass


class RankError(AuditError):
    pass


class ServerError(AuditError):
    pass


class LostServerError(ServerError):
    pass


class InputsError(AuditError):
    pass


class RecordingError(AuditError):
    pass


class CheckpointError(AuditError):
    pass


class ConfigError(CheckpointError):
    pass


class HeaderError(CheckpointError):
    pass


class PickledError(CheckpointError):
    pass


class ShardIndexError(CheckpointError):
    pass


def lacks_memory(error: BaseException) -> bool:
    """Whether it says that memory ran out: of Python, a library that is loaded, a thread that is started, or torch."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _MEMORY)


_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory", "bad_alloc"),
    *("failed to map segment", "can't start new thread"),
)


def _shorten(part: str) -> str:
    """A reference or key of thousands of characters is cut in its middle: a line is to be read."""
    return part if len(part) <= _LONGEST else f"{part[: _LONGEST // 2]}...{part[-_LONGEST // 2 :]}"


_LONGEST = 400  # characters


def escape(text: str) -> str:
    r"""`text` with control, format and surrogate characters written as escapes, newlines too.

    >>> escape("a\x1b[31m\nb\u202e")
    'a\\x1b[31m\\nb\\u202e'
    """
    if text.isprintable():  # in Unicode's sense: none of the categories below
        return text
    return "".join(character if character.isprintable() else _escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    # Cc control, Cf format (bidi overrides), Cs lone surrogates, Co private, Zl/Zp line separators.
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character
