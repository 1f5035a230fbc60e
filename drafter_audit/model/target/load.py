"""From a reference to a target that runs: transformers reads it, and nothing that it leaves out passes in silence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from logging import LogRecord
from typing import Any

import torch

from drafter_audit.checkpoint.load import checkpoint_files
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.target import UNQUANTISED, quantization_label
from drafter_audit.errors import CannotRunError, UsageError
from drafter_audit.model.target.devices import check_map, check_names
from drafter_audit.model.target.explain import explained
from drafter_audit.model.target.left_out import check_packing, left_out, renamed
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.parts import Untyped, find_parts
from drafter_audit.model.target.ranks import ALONE, TIMEOUT_S, Ranks, failures
from drafter_audit.model.target.self_check import check
from drafter_audit.model.target.sizes import folder_of, parsed_config, raw_config, sizes_of
from drafter_audit.model.target.stated import end_ids
from drafter_audit.sources.hub import HubSource
from drafter_audit.sources.open import open_source


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
    check_map(device_map, offload_folder)
    source = open_source(ref)
    raw = raw_config(source)
    view = ConfigView(raw, ref)
    ends, packed = end_ids(source, view), quantization_label(view)
    check_packing(view, ref)
    if split:
        ranks.start(ranks_timeout_s)
    settings = {
        "dtype": dtype or ("float32" if packed == UNQUANTISED and not torch.cuda.is_available() else "auto"),
        "trust_remote_code": trust_remote_code,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # told in one line below, not in a table
    }
    _quieten(ranks)
    weights = checkpoint_files(source)[0] if isinstance(source, HubSource) else ()
    folder = folder_of(source, ref, weights)
    with explained(ref, packed), failures(ref):
        config = parsed_config(raw, folder, trust_remote_code)
        place = _split(config, ranks) if split else _placed(device_map, offload_folder)
        if isinstance(device_map, Mapping):
            check_names(device_map, _empty(config, trust_remote_code))
        model, info = _class_for(config).from_pretrained(folder, config=config, **settings, **place)
    notes = renamed(raw, model) + left_out(info, ref) + (() if ends else (_ENDLESS,))
    with explained(ref, packed, "it does not run"):
        described = _described(model, ref, ranks if split else ALONE)
        target = replace(described, revision=source.revision, end_ids=ends, notes=notes)
        check(target)
    return target


_ENDLESS = "no file states an end token: its texts end at the cap alone"


def _check_usage(split: bool, ranks: Ranks, device_map: object, dtype: str | None) -> None:
    if split and ranks.size == 1:
        mend = "start it as torchrun --nproc-per-node N -m drafter_audit ..."
        raise UsageError("tensor parallelism needs several ranks, and this is the only one", "tensor_parallel", mend)
    if split and device_map is not None:
        mend = "take the device map in one process, or torchrun without it"
        raise UsageError("a device map and tensor parallelism exclude each other", "--device-map", mend)
    named = getattr(torch, str("float32" if dtype is None else dtype), None)
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise UsageError(f"no dtype {dtype!r}", "--dtype", "name one of torch: float32, bfloat16, float16")


def _class_for(config: Untyped) -> Untyped:
    """The automatic class that builds what config.json's `architectures` names: a wrapper's is no causal one."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM

    named = next(iter(config.architectures or ()), None)
    classes: tuple[Untyped, ...] = (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM)
    built = [(each, each._model_mapping.get(type(config), None)) for each in classes]
    exact = [each for each, model in built if model is not None and model.__name__ == named]
    return next(iter(exact + [each for each, model in built if model is not None]), AutoModelForCausalLM)


def _empty(config: Untyped, trust_remote_code: bool) -> Untyped:
    """The model without its numbers."""
    with torch.device("meta"):
        return _class_for(config).from_config(config, trust_remote_code=trust_remote_code)


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
    """Its table of weights that do not fit holds names from the file as they are: `left_out` tells the same."""
    return "LOAD REPORT" not in record.getMessage()


def _placed(device_map: str | Mapping[str, Any] | None, offload_folder: str | None) -> dict[str, Any]:
    one = "cuda" if torch.cuda.is_available() else None
    folder = {} if offload_folder is None else {"offload_folder": offload_folder}
    return {"device_map": device_map if device_map is not None else one, **folder}


def _described(model: Untyped, ref: str, ranks: Ranks) -> TargetModel:
    sizes = sizes_of(model.config, ref)
    if ranks.size > 1 and not model._tp_plan:
        mend = "spread it by device_map auto in one process instead"
        raise CannotRunError(f"transformers has no plan to split a {model.config.model_type}", ref, mend)
    return TargetModel(
        revision=None,
        model=model,
        parts=find_parts(model, sizes.num_layers, ref),
        dtype=str(model.dtype).removeprefix("torch."),
        ranks=ranks,
        **asdict(sizes),
    )
