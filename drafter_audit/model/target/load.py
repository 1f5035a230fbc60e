"""From a reference to a target that runs: transformers reads it, and nothing that it leaves out passes in silence."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from logging import LogRecord
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError

from drafter_audit.checkpoint.config import read_config
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.target import UNQUANTISED, quantization_label
from drafter_audit.errors import AuditError, CannotRunError, CheckpointError, UsageError
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.parts import Untyped, find_parts
from drafter_audit.model.target.ranks import ALONE, TIMEOUT_S, Ranks, failures
from drafter_audit.model.target.stated import end_ids, max_positions
from drafter_audit.sources.open import open_source
from drafter_audit.sources.reference import parse_reference

READ_AS = {"kimi_k2": "deepseek_v3"}
"""Model types that are another's under a new name, and whose own code is on the Hub only. Kimi-K2's config.json names
DeepseekV3ForCausalLM; transformers 5.24 maps it so inside Kimi-K2.5 (models/kimi_k25/configuration_kimi_k25.py:85)."""

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


def load_target(
    ref: str,
    *,
    dtype: str | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    tensor_parallel: bool | None = None,
    trust_remote_code: bool = False,
    offload_folder: str | None = None,
    ranks_timeout_s: float = TIMEOUT_S,
) -> TargetModel:
    """The target `ref`, any causal language model that transformers reads from a folder or the Hub, checked to run.

    `dtype` is a torch name; without one the checkpoint's own, float32 on a CPU. `device_map` is "auto" or accelerate's
    map of modules to devices, with `offload_folder` for what is on "disk"; without one a single device, the GPU where
    there is one. `tensor_parallel` splits each layer over the ranks that torchrun started, by transformers' own plan;
    None does so under torchrun. A rank waits `ranks_timeout_s` for the others. Code from a repository runs only with
    `trust_remote_code`. Raises UsageError, CannotRunError, CheckpointError for weights that are missing, RankError,
    and what opening a reference raises.
    """
    ranks = Ranks.here()
    split = ranks.size > 1 if tensor_parallel is None else tensor_parallel
    _check_usage(split, ranks, device_map, dtype)
    source = open_source(ref)
    files, raw = _files(ref), read_config(source)
    ends = end_ids(source, raw)
    packed = quantization_label(ConfigView(raw, ref))
    _check_packing(ConfigView(raw, ref), ref)
    if split:
        ranks.start(ranks_timeout_s)
    settings = {
        "dtype": dtype or ("float32" if packed == UNQUANTISED and not torch.cuda.is_available() else "auto"),
        "trust_remote_code": trust_remote_code,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # told in one line below, not in a table
    }
    _quieten(ranks)
    with _explained(ref, packed), failures(ref):
        config = _config(raw, files, trust_remote_code)
        place = _split(config, ranks) if split else _placed(device_map, offload_folder)
        model, info = _class_for(config).from_pretrained(config=config, **files, **settings, **place)
    notes = _renamed(raw, model) + _left_out(info, ref) + (() if ends else (_ENDLESS,))
    with _explained(ref, packed, "it does not run"):
        target = replace(
            _described(model, ref, notes, ranks if split else ALONE), revision=source.revision, end_ids=ends
        )
        target.check()
    return target


def _check_usage(split: bool, ranks: Ranks, device_map: object, dtype: str | None) -> None:
    if split and ranks.size == 1:
        mend = "start it as torchrun --nproc-per-node N -m drafter_audit ..."
        raise UsageError("tensor parallelism needs several ranks, and this is the only one", "load_target", mend)
    if split and device_map is not None:
        mend = "take the device map in one process, or torchrun without it"
        raise UsageError("a device map and tensor parallelism exclude each other", "load_target", mend)
    named = getattr(torch, str("float32" if dtype is None else dtype), None)
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise UsageError(f"no dtype {dtype!r}", "load_target", "name one of torch: float32, bfloat16, float16")


def _files(ref: str) -> dict[str, Any]:
    """What `from_pretrained` is told of where the files are: a folder, or a repository at a commit."""
    reference, source = parse_reference(ref), open_source(ref)
    if reference.kind == "bundled":
        raise CannotRunError("a bundled record holds no weights", ref, "name the target's repository or folder")
    if reference.weights_file:
        raise CannotRunError("one weight file is no target", ref, "name the folder that holds it and config.json")
    files = {"pretrained_model_name_or_path": reference.name}
    return files if source.revision is None else files | {"revision": source.revision, "subfolder": reference.path}


def _config(raw: Mapping[str, Any], files: Mapping[str, Any], trust_remote_code: bool) -> Untyped:
    """transformers' config, of the type that stands behind the name where the name is unknown to it."""
    from transformers import CONFIG_MAPPING, AutoConfig

    known = READ_AS.get(str(raw.get("model_type")))
    if known is None:
        return AutoConfig.from_pretrained(**files, trust_remote_code=trust_remote_code)
    own = {key: value for key, value in raw.items() if key not in ("model_type", "auto_map")}
    return CONFIG_MAPPING[known].from_dict(own)


def _class_for(config: Untyped) -> Untyped:
    """The automatic class that builds what config.json's `architectures` names: a wrapper's is no causal one."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM

    named = (config.architectures or [None])[0]
    classes: tuple[Untyped, ...] = (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM)
    built = [(each, each._model_mapping.get(type(config), None)) for each in classes]
    exact = [each for each, model in built if model is not None and model.__name__ == named]
    return next(iter(exact + [each for each, model in built if model is not None]), AutoModelForCausalLM)


def _split(config: Untyped, ranks: Ranks) -> dict[str, Any]:
    """transformers' plan for the layers; where that leaves experts whole (gpt-oss), its plan for experts too."""
    from transformers.distributed.configuration_utils import DistributedConfig

    text = config.get_text_config(decoder=True)
    plan = text.base_model_tp_plan or {}
    whole = bool(text.base_model_ep_plan) and not any("experts" in rule for rule in plan)
    return {"distributed_config": DistributedConfig(tp_plan="auto", ep_size=ranks.size if whole else None)}


def _quieten(ranks: Ranks) -> None:
    """transformers' bars are for a terminal, and its words for one rank."""
    from transformers.utils import logging as untyped

    logging: Untyped = untyped
    if not (ranks.first and sys.stderr.isatty()):
        logging.disable_progress_bar()
    if not ranks.first:
        logging.set_verbosity_error()
    logging.get_logger("transformers.modeling_utils").addFilter(_not_told_here)


def _not_told_here(record: LogRecord) -> bool:
    """Its table of weights that do not fit holds names from the file as they are: `_left_out` tells the same."""
    return "LOAD REPORT" not in record.getMessage()


def _placed(device_map: str | Mapping[str, Any] | None, offload_folder: str | None) -> dict[str, Any]:
    one = "cuda" if torch.cuda.is_available() else None
    folder = {} if offload_folder is None else {"offload_folder": offload_folder}
    return {"device_map": device_map if device_map is not None else one, **folder}


@contextmanager
def _explained(ref: str, packed: str, what: str = "transformers does not load it") -> Iterator[None]:
    """What transformers raises while it loads or runs, as one line."""
    try:
        yield
    except AuditError:
        raise
    except ImportError as error:
        package = PACKAGES.get(packed.split()[0])
        mend = f"pip install {package}" if package else "install the package that it names"
        told = f"a package is missing to load {_kind(packed)} weights: {_line(error)}"
        raise CannotRunError(told, ref, mend) from error
    except (OSError, SafetensorError, UnpicklingError) as error:
        mend = "see that every weight file is there and whole"
        raise CheckpointError(f"{what}: {_line(error)}", ref, mend) from error
    except Exception as error:  # a library's, or code of the repository's: of any type
        mend = "see that transformers knows its model_type and format, or pass trust_remote_code to run its own code"
        raise CannotRunError(f"{what}: {_line(error)}", ref, mend) from error


def _kind(packed: str) -> str:
    return "these" if packed == UNQUANTISED else packed


def _line(error: Exception) -> str:
    """Its first line, and the next after a heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]) or type(error).__name__


_FACTORS = (".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale")
"""Last parts of the names under which ModelOpt, fp8 blocks and compressed-tensors store what a weight is times."""


def _check_packing(config: ConfigView, ref: str) -> None:
    """transformers only warns of a `quant_method` that it does not know, and takes packed numbers for the weights."""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    label = quantization_label(config)
    known = {*AUTO_QUANTIZATION_CONFIG_MAPPING, "bitsandbytes"}
    if label != UNQUANTISED and label.split()[0] not in known:
        what = f"transformers does not read {label} weights"
        raise CannotRunError(what, ref, f"name a checkpoint that is not packed, or of {', '.join(sorted(PACKAGES))}")


def _renamed(raw: Mapping[str, Any], model: Untyped) -> tuple[str, ...]:
    """A word where config.json names another class than the one that runs."""
    named, ours = raw.get("architectures"), type(model).__name__
    other = named and named not in (ours, [ours])
    return (f"config.json names {named}, and what runs is transformers' {ours}",) if other else ()


def _left_out(info: Mapping[str, Any], ref: str) -> tuple[str, ...]:
    """What of the files was not read, in words. Raises CheckpointError for weights that the model has at random."""
    missing = [str(name) for name in info["missing_keys"]]
    misshapen = [f"{name} ({list(theirs)}, not {list(ours)})" for name, theirs, ours in info["mismatched_keys"]]
    for names, what in ((sorted(missing), "are missing"), (sorted(misshapen), "have another shape")):
        if names:
            told = f"{len(names)} weights {what}: {', '.join(names[:3])}"
            raise CheckpointError(told, ref, "transformers would draw them at random: complete the checkpoint")
    extra = sorted(str(name) for name in info["unexpected_keys"])
    scaled = ((name, f"{name.rpartition('.')[0]}.weight") for name in extra if name.endswith(_FACTORS))
    factors = [name for name, weight in scaled if weight not in extra]  # else the weight is left out with its factor
    if factors:
        told = f"{len(factors)} factors of packed weights are not read: {', '.join(factors[:3])}"
        raise CannotRunError(
            told, ref, "without them the weights are other numbers: take a checkpoint that is not packed"
        )
    return (f"{len(extra)} tensors are no part of the model: {', '.join(extra[:3])}",) if extra else ()


_ENDLESS = "no file states an end token: its texts end at the cap alone"


def _described(model: Untyped, ref: str, notes: tuple[str, ...], ranks: Ranks) -> TargetModel:
    text = model.config.get_text_config(decoder=True)
    if ranks.size > 1 and not model._tp_plan:
        mend = "spread it by device_map auto in one process instead"
        raise CannotRunError(f"transformers has no plan to split a {model.config.model_type}", ref, mend)
    return TargetModel(
        ref=ref,
        revision=None,
        model=model,
        parts=find_parts(model, text.num_hidden_layers, ref),
        dtype=str(model.dtype).removeprefix("torch."),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        notes=notes,
        ranks=ranks,
        max_positions=max_positions(model.config),
    )
