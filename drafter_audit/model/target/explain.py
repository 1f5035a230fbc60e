"""What transformers raises while it loads or runs a target, as one line that says how to mend it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError

from safetensors import SafetensorError

from drafter_audit.drafter.target import UNQUANTISED
from drafter_audit.errors import AuditError, CannotRunError, CheckpointError

PACKAGES = {
    "awq": "gptqmodel",
    "gptq": "gptqmodel",
    "auto-round": "auto-round",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
    "fbgemm_fp8": "fbgemm-gpu",
    "hqq": "hqq",
    "mxfp4": "kernels",
    "quanto": "optimum-quanto",
    "quark": "amd-quark",
    "torchao": "torchao",
}
"""What transformers needs to read weights of a `quant_method` (transformers 5.24 quantizers/quantizer_*.py)."""

_FILES = "see that every weight file is there and whole"
_MAP = "mend --device-map: every module needs one device"
_MENDS = (
    ("offload", "name a folder for what does not fit: --offload-folder"),
    ("device_map", _MAP),
    ("meta device", _MAP),
    ("", "see that transformers knows its model_type and format, or pass trust_remote_code to run its own code"),
)
"""By a word of what was raised."""


@contextmanager
def explained(ref: str, packed: str, what: str = "transformers does not load it") -> Iterator[None]:
    """What is raised inside leaves as an AuditError. `packed` is how the weights are quantised."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:  # a library's, or code of the repository's: of any type
        raise _told(error, ref, packed, what) from error


def _told(error: Exception, ref: str, packed: str, what: str) -> AuditError:
    if isinstance(error, ImportError):
        package = PACKAGES.get(packed.split()[0])
        kind = "these" if packed == UNQUANTISED else packed
        mend = f"pip install {package}" if package else "install the package that it names"
        return CannotRunError(f"a package is missing to load {kind} weights: {_line(error)}", ref, mend)
    if isinstance(error, OSError | SafetensorError | UnpicklingError):
        return CheckpointError(f"{what}: {_line(error)}", ref, _FILES)
    text = str(error)
    return CannotRunError(f"{what}: {_line(error)}", ref, next(mend for word, mend in _MENDS if word in text))


def _line(error: Exception) -> str:
    """Its first line, and the next after a heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]) or type(error).__name__
