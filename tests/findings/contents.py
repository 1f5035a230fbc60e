"""Cases of audit/rules/contents.py."""

from __future__ import annotations

import json
from pathlib import Path

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, LEFTOVER, read_peer
from tests.findings.case import Case
from tests.findings.drafters import HIDDEN, TOKENS, checkpoint, kimi

_FULL = {"lm_head.weight": ("BF16", (TOKENS, HIDDEN))}
_PADDED = {"lm_head.weight": ("BF16", (TOKENS + 64, HIDDEN))}
_MAP = ("d2t", "t2d")


def _config_alone(folder: Path) -> Lint:
    (folder / "config.json").write_text(json.dumps(KIMI_CONFIG))
    return lint(str(folder))


def _modelopt(*, norm: bool, declared: bool):
    """ModelOpt's drafter with or without the last norm, whose absence its config may declare."""
    config, tensors, _ = read_peer("modelopt_eagle3")
    config["eagle_config"]["use_last_layernorm"] = declared
    return checkpoint(config, tensors if norm else {k: v for k, v in tensors.items() if k != "norm.weight"})


def _kimi_without_config(folder: Path) -> Lint:
    return lint("aq-medai-kimi-k2-instruct-eagle3")


CASES = (
    Case("NO-WEIGHTS", fires=_config_alone, silent=kimi()),
    Case("NO-WEIGHTS", fires=_kimi_without_config, silent=kimi()),
    # Older files keep the table of the rotary embedding, which every reader makes for itself.
    Case(
        "TENSOR-UNKNOWN",
        fires=kimi(added={"adapter.weight": ("BF16", (64,))}),
        silent=kimi(added={"midlayer.self_attn.rotary_emb.inv_freq": ("F32", (64,))}),
    ),
    # With all of the target's tokens its own head serves, and ids need no map.
    Case(
        "HEAD-MISSING",
        fires=kimi(left_out=["lm_head.weight"]),
        silent=kimi(left_out=["lm_head.weight", *_MAP], draft_vocab_size=TOKENS),
    ),
    Case(
        "TENSOR-MISSING",
        fires=_modelopt(norm=False, declared=True),
        silent=_modelopt(norm=False, declared=False),
    ),
    # SpecForge leaves out the embedding, for engines take the target's.
    Case("TENSOR-MISSING", fires=kimi(left_out=["norm.weight"]), silent=kimi()),
    Case("D2T-MISSING", fires=kimi(left_out=_MAP), silent=kimi(left_out=_MAP, added=_FULL, draft_vocab_size=TOKENS)),
    # vllm-project/vllm#55133: padded beyond the target's vocabulary, draft ids are target ids.
    Case(
        "D2T-MISSING",
        fires=kimi(left_out=_MAP, draft_vocab_size=None),
        silent=kimi(left_out=_MAP, added=_PADDED, draft_vocab_size=TOKENS + 64),
    ),
    Case("TENSOR-TWICE", fires=kimi(added={"model.norm.weight": ("BF16", (HIDDEN,))}), silent=kimi()),
    # A copy of the target's embedding is no leftover: engines may read it.
    Case("LEFTOVER", fires=kimi(added=LEFTOVER), silent=kimi(added=EMBEDDING)),
)
