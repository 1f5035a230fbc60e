"""Files of dumped states, by the keys in them: vLLM's and speculators' safetensors, SpecForge's .ckpt.

vLLM's ExampleHiddenStatesConnector (0.32) writes `hidden_states` [T, ids, hidden] and `token_ids` [T]. Id k is boundary
k, 0 the embeddings, L before the final norm. `token_ids` is the prompt, with `include_output_tokens` the answer too,
less its last token. speculators 0.9 keeps these files as hs_N.safetensors, and drafts from all ids but the last; its
FP8 connector stores float8 states and `hidden_states_scales` [T, 1, 1], one factor for a token.

SpecForge's scripts/prepare_hidden_states.py saves `input_ids` [T], `loss_mask` [T], `aux_hidden_state` [1, T, n *
hidden], the n states side by side in ascending order of layers, and `hidden_state` [1, T, hidden], which SGLang hands
to the head: behind the final norm. Its defaults are the outputs of layers 1, L/2 - 1, L - 4: boundaries 2, L/2, L - 3.

No file is shifted: state t is that of token t. A pickle is read by checkpoint/pickled, and never unpickled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from drafter_audit.checkpoint.pickled import read_pickled
from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.errors import CheckpointError
from drafter_audit.model.reading import read_tensor
from drafter_audit.recording.dumps.dump import Dump
from drafter_audit.sources.local import LocalSource

SUFFIXES = (".safetensors", ".ckpt", ".ckpt.gz")

_CONNECTOR = {"hidden_states", "token_ids"}
_SPECFORGE = {"input_ids", "loss_mask", "hidden_state", "aux_hidden_state"}
_SCALES = "hidden_states_scales"
_FORMS = "name dumps of vLLM, speculators (hs_N.safetensors) or SpecForge (.ckpt)"


def read_dump(file: Path) -> Dump:
    """The one text in `file`. Raises CheckpointError for a file that is none of these, damaged, or still written to."""
    if _is_locked(file.with_name(f"{file.name}.lock")):
        raise CheckpointError("it is being written", str(file), "wait until its writer lets go of the .lock beside it")
    if file.name.endswith(".gz"):
        raise CheckpointError("a compressed file", str(file), f"unpack it: gunzip -k {file.name}")
    tensors = _safetensors(file) if file.suffix == ".safetensors" else _pickled(file)
    if tensors.keys() >= _CONNECTOR:
        return _connector(tensors, str(file))
    if tensors.keys() >= _SPECFORGE:
        return _specforge(tensors, str(file))
    what = f"neither {' and '.join(sorted(_CONNECTOR))}, nor {', '.join(sorted(_SPECFORGE))}"
    held = ", ".join(sorted(tensors)[:6]) or "nothing"
    mend = "dump it with --enable-aux-hidden-states" if "hidden_state" in tensors else _FORMS
    raise CheckpointError(f"{what}; it holds {held}", str(file), mend)


def _is_locked(lock: Path) -> bool:
    """Whether vLLM's writer holds the lock. The lock's file stays when it is done, so that alone says nothing."""
    if sys.platform == "win32" or not lock.exists():
        return False
    import fcntl

    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _safetensors(file: Path) -> Mapping[str, Tensor]:
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"not read as safetensors: {error}", str(file), "dump it anew") from error


def _pickled(file: Path) -> Mapping[str, Tensor]:
    source = LocalSource(str(file), file.parent)
    entries = read_pickled(source, file.name).entries
    infos = [TensorInfo(e.name, e.dtype, e.shape, file.name, e.start, e.nbytes, e.strides) for e in entries]
    return {info.name: read_tensor(source, info) for info in infos}


def _connector(tensors: Mapping[str, Tensor], where: str) -> Dump:
    states = tensors["hidden_states"]
    if states.dim() != 3:
        raise CheckpointError(f"hidden_states of {list(states.shape)}", where, "dump [tokens, ids, hidden]")
    if _SCALES in tensors:
        states = states.float() * tensors[_SCALES]
    elif states.element_size() == 1:
        raise CheckpointError(f"hidden_states of {states.dtype} without {_SCALES}", where, "dump both")
    return Dump(where, tensors["token_ids"], states.transpose(0, 1).contiguous())


def _specforge(tensors: Mapping[str, Tensor], where: str) -> Dump:
    tokens, side_by_side, last = (tensors[key].squeeze(0) for key in ("input_ids", "aux_hidden_state", "hidden_state"))
    if side_by_side.dim() != 2 or last.dim() != 2 or side_by_side.shape[1] % max(1, last.shape[1]):
        what = f"aux_hidden_state of {list(side_by_side.shape)} beside hidden_state of {list(last.shape)}"
        raise CheckpointError(what, where, "dump [1, tokens, n * hidden] beside [1, tokens, hidden]")
    states = side_by_side.view(len(side_by_side), -1, last.shape[1]).transpose(0, 1).contiguous()
    return Dump(where, tokens, states, last, tensors["loss_mask"].view(-1).bool())
