"""Cases of audit/rules/reach.py."""

from __future__ import annotations

from tests.findings.case import Case
from tests.findings.positions import llama

CASES = (
    Case(
        "MAXPOS",
        fires=llama(target={"max_position_embeddings": 40960}),
        silent=llama({"max_position_embeddings": 40960}),
    ),
    Case(
        "WINDOW",
        fires=llama({"layer_types": ["sliding_attention"], "sliding_window": 128}),
        silent=llama({"layer_types": ["full_attention"], "sliding_window": 128}),
    ),
    # a window that its config switches off, as templates of Qwen's and Gemma's family carry it
    Case(
        "WINDOW",
        fires=llama({"sliding_window": 512}),
        silent=llama({"sliding_window": 512, "use_sliding_window": False}),
    ),
)
