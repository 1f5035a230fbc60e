"""Where in a model the embedding, the decoder layers, the final norm and the head are, whatever wraps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from torch import nn

from drafter_audit.errors import CannotRunError

Untyped: TypeAlias = Any
"""Models, configs and caches of transformers: its classes differ by model, and tell a type checker nothing."""

STACKS = (
    "model.language_model",
    "language_model.model",
    "language_model.backbone",
    "model.text_model",
    "model.decoder",
    "thinker.model",
    "transformer",
    "gpt_neox",
    "backbone",
    "model",
)
"""Paths of the module that holds the decoder layers, a wrapper's before a plain model's: `model` is in both."""

LAYERS = ("layers", "h", "blocks")
NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f", "norm_f", "final_norm", "embedding_norm")
"""Names of the final norm beside the layers. LFM2 calls its own embedding_norm, though it comes last
(transformers 5.24 models/lfm2/modeling_lfm2.py)."""


@dataclass(frozen=True)
class Parts:
    """The modules that taps and the self-check need. `path` says where the layers were found."""

    embedding: nn.Module
    layers: tuple[nn.Module, ...]
    norm: nn.Module
    head: nn.Module
    path: str


def find_parts(model: Untyped, num_layers: int, where: str) -> Parts:
    """The parts of a transformers model whose language model has `num_layers` decoder layers.

    First by the known paths, then by structure: the module that holds `num_layers` layers and, after them, one norm.
    A list that is longer ends in layers that are no part of the plain forward (multi-token prediction). Raises
    CannotRunError that lists what was looked for.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    for path, stack in _candidates(model):
        layers, norm = _layers(stack, num_layers), _norm(stack)
        if layers is not None and norm is not None and embedding is not None and head is not None:
            name, modules = layers
            return Parts(embedding, tuple(modules[:num_layers]), norm, head, f"{path}.{name}".lstrip("."))
    raise _not_found(embedding, head, num_layers, where)


def _candidates(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path in STACKS:
        try:
            stack = attrgetter(path)(model)
        except AttributeError:
            continue
        if isinstance(stack, nn.Module):
            yield path, stack
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    beside = [(path, module) for path, module in model.named_modules() if embedding in module.children()]
    yield from beside
    yield from model.named_modules()


def _layers(stack: nn.Module, num_layers: int) -> tuple[str, nn.ModuleList] | None:
    """The list of at least `num_layers` decoder layers, a known name first, of any other name where the length fits."""
    lists = {name: child for name, child in stack.named_children() if isinstance(child, nn.ModuleList)}
    known = [(name, lists[name]) for name in LAYERS if name in lists and len(lists[name]) >= num_layers]
    other = [(name, found) for name, found in lists.items() if len(found) == num_layers]
    return next(iter(known + other), None)


def _norm(stack: nn.Module) -> nn.Module | None:
    """The final norm: by name, or the only child that is a norm."""
    children = dict(stack.named_children())
    named = next((children[name] for name in NORMS if name in children), None)
    norms = [child for child in children.values() if "norm" in type(child).__name__.lower()]
    return named or (norms[0] if len(norms) == 1 else None)


def _not_found(embedding: object, head: object, num_layers: int, where: str) -> CannotRunError:
    missing = [
        name
        for name, found in (("its input embedding", embedding), ("its head (output embeddings)", head))
        if found is None
    ]
    missing = missing or [f"a list of {num_layers} decoder layers with a final norm beside it"]
    looked = f"looked under {', '.join(STACKS)}, then everywhere; layers named {', '.join(LAYERS)}"
    mend = f"{looked}; norms named {', '.join(NORMS)}: a causal language model has them"
    return CannotRunError(f"the model does not show {' and '.join(missing)}", where, mend)
