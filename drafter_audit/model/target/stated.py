"""What a target's files state of how a text ends: its end tokens, and how many positions it has."""

from __future__ import annotations

from drafter_audit.checkpoint.config import read_config
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.errors import ConfigError
from drafter_audit.model.target.parts import Untyped
from drafter_audit.sources.base import Source

GENERATION = "generation_config.json"
_END = "eos_token_id"


def end_ids(source: Source, config: ConfigView) -> tuple[int, ...]:
    """The end tokens by generation_config.json, else by config.json, else by its section of the language model.

    Empty where none of them states one: what transformers' class would take then is another model's. Raises
    ConfigError for what is no token.
    """
    generation = read_config(source, GENERATION) if GENERATION in source.files() else {}
    places = (generation, config.raw, config.layer)
    stated = [place[_END] for place in places if place.get(_END) is not None]
    ids = stated[0] if stated else []
    listed = tuple(ids) if isinstance(ids, list) else (ids,)
    if not all(type(each) is int and each >= 0 for each in listed):
        raise ConfigError(f"{_END} is {ids!r}", source.name, "write a token's number, or a list of them")
    return listed


def max_positions(config: Untyped) -> int | None:
    """How many tokens a text may have, by transformers' config; None for a model that states no bound."""
    bound = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return bound if isinstance(bound, int) and bound > 0 else None
