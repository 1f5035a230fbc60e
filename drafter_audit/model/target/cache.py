"""What a target remembers of a text, and how it forgets the end of it: exactly, or not at all."""

from __future__ import annotations

from collections.abc import Container
from typing import cast

from torch import Tensor

from drafter_audit.errors import CannotRunError, InputsError
from drafter_audit.model.target.parts import Untyped

_NAMES = ("cache", "past_key_values", "cache_params")
"""What a model's forward calls its cache: transformers 5.24 says `cache`, which was `past_key_values` before."""

_PER_TOKEN = {"DynamicLayer", "DynamicIndexedLayer", "DummyLayer"}
"""Layers of transformers' cache that keep what they hold of each token apart (5.24 cache_utils.py)."""

_PAIRS = {"DynamicLayer", "DummyLayer"}
"""Those that hold keys and values alone. A window's becomes one in a whole cache: ask it of an ordinary one."""

_WINDOW = "DynamicSlidingWindowLayer"
"""One that keeps the last tokens only, for sliding and for chunked attention."""


def name_in(parameters: Container[str]) -> str | None:
    """What a forward with those parameters calls its cache; None where it takes none.

    >>> name_in({"input_ids", "past_key_values"})
    'past_key_values'
    """
    return next((name for name in _NAMES if name in parameters), None)


def new_cache(config: Untyped, *, whole: bool = False) -> Untyped:
    """An empty cache for the language model of `config`. `whole` keeps every token where a window would do: the mask
    hides the others, at the price of their memory, and the text can be rolled back to any length."""
    from transformers import DynamicCache, cache_utils

    cache, of_all = DynamicCache(config=config.get_text_config(decoder=True)), cast(Untyped, cache_utils).DynamicLayer
    if whole:
        cache.layers = [of_all() if _kind(layer) == _WINDOW else layer for layer in cache.layers]
    return cache


def forgets_exactly(past: Untyped) -> bool:
    """Whether each layer of `past` can be cut back to any length of its text."""
    return all(_kind(layer) in _PER_TOKEN for layer in past.layers)


def keeps_each_token(past: Untyped) -> bool:
    """Whether each layer of `past` holds keys and values of every token and nothing else: full attention."""
    return all(_kind(layer) in _PAIRS for layer in past.layers)


def keep(past: Untyped, places: Tensor, where: str) -> None:
    """Leaves of `past` the tokens at `places` int64 [n], rising. Raises CannotRunError for another kind of cache."""
    if not keeps_each_token(past):
        raise CannotRunError("a cache that cannot be thinned out", where, "run the text anew")
    for layer in past.layers:
        if layer.get_seq_length():
            at = places.to(layer.keys.device)
            layer.keys, layer.values = layer.keys.index_select(-2, at), layer.values.index_select(-2, at)


def length_of(past: Untyped) -> int:
    """How many tokens `past` has seen."""
    return int(past.get_seq_length())


def roll_back(past: Untyped, length: int, where: str) -> None:
    """Cuts `past` back to its first `length` tokens. Raises InputsError where it has seen fewer, CannotRunError where a
    layer cannot: linear attention has one state for all tokens, and a window that was passed has lost the earlier."""
    seen = length_of(past)
    if not 0 <= length <= seen:
        raise InputsError(f"a text of {seen} tokens rolled back to {length}", where, f"give a length within 0..{seen}")
    if length == seen:
        return
    lost = next((layer for layer in past.layers if not _can_cut(layer)), None)
    if lost is not None:
        mend = "run the text anew, or ask for a cache of whole texts" if _kind(lost) == _WINDOW else "run the text anew"
        raise CannotRunError(f"a {_kind(lost)} of the cache cannot be rolled back from {seen} to {length}", where, mend)
    past.crop(length - seen)


def _can_cut(layer: Untyped) -> bool:
    """A window loses nothing until the text is as long as it is."""
    return _kind(layer) in _PER_TOKEN or (_kind(layer) == _WINDOW and layer.get_seq_length() < layer.sliding_window)


def _kind(layer: Untyped) -> str:
    return type(layer).__name__
