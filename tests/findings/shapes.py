"""Cases of audit/rules/shapes.py."""

from __future__ import annotations

from pathlib import Path

from drafter_audit.audit.lint import lint
from tests.findings.case import Case
from tests.findings.drafters import HIDDEN, TOKENS, ids, kimi, peer

ORACLES = Path(__file__).parents[1] / "oracles"

CASES = (
    Case("SHAPE-MISMATCH", fires=kimi(intermediate_size=12288), silent=kimi()),
    # 7168 / 64 = 112 is not the stored 128; 7168 / 56 is.
    Case(
        "SHAPE-MISMATCH",
        fires=kimi(head_dim=None),
        silent=kimi(head_dim=None, num_attention_heads=56, num_key_value_heads=64),
    ),
    # speculators' format keeps the layer's sizes in a section: the edit goes there.
    Case(
        "SHAPE-MISMATCH",
        fires=peer("speculators_eagle3", nested="transformer_layer_config", intermediate_size=64),
        silent=peer("speculators_eagle3"),
    ),
    Case(
        "SHAPE-MISMATCH",
        fires=peer("speculators_eagle3", nested="transformer_layer_config", head_dim=None),
        silent=peer("speculators_eagle3"),
    ),
    # ModelOpt wrote the target's rank beside queries of full rank.
    Case(
        "SHAPE-MISMATCH",
        fires=lambda folder: lint(str(ORACLES / "modelopt_mla_no_q_lora")),
        silent=lambda folder: lint(str(ORACLES / "modelopt_mla")),
    ),
    Case("TENSOR-SHAPE", fires=kimi(added={"norm.weight": ("BF16", (4096,))}), silent=kimi()),
    # A drafter may be narrower or wider than its target.
    Case(
        "FC-WIDTH",
        fires=kimi(target_hidden_size=5000),
        silent=kimi(target_hidden_size=8192, added={"fc.weight": ("BF16", (HIDDEN, 3 * 8192))}),
    ),
    Case(
        "IDS-COUNT",
        fires=kimi(eagle_config=ids(1, 15, 29, 57)),
        silent=kimi(eagle_config=ids(1, 15, 29, 57), added={"fc.weight": ("BF16", (HIDDEN, 4 * HIDDEN))}),
    ),
    Case("D2T-LENGTH", fires=kimi(added={"d2t": ("I64", (31999,))}), silent=kimi()),
    Case(
        "T2D-LENGTH",
        fires=kimi(added={"t2d": ("BOOL", (32000,)), "embed_tokens.weight": ("BF16", (TOKENS, HIDDEN))}),
        silent=kimi(added={"embed_tokens.weight": ("BF16", (TOKENS, HIDDEN))}),
    ),
)
