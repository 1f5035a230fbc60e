"""Cases of audit/rules/facts.py."""

from __future__ import annotations

from pathlib import Path

from drafter_audit.audit.lint import Lint, lint
from drafter_audit.facts import registry
from tests.checkpoints import KIMI_CONFIG, kimi_tensors, write_checkpoint
from tests.findings.case import Build, Case
from tests.findings.drafters import kimi


def _record(origin: str) -> Build:
    """The first bundled drafter whose config, of that origin, was not seen whole."""

    def build(folder: Path) -> Lint:
        records = (registry.load(name) for name in registry.names())
        seen = [one for one in records if (one.role, one.config_origin) == ("drafter", origin)]
        return lint(next(one.name for one in seen if not one.config_complete))

    return build


def _told(*, card: str, target: str = "moonshotai/Kimi-K2.5") -> Build:
    """Kimi's drafter with a model card, and a project file that names its target."""

    def build(folder: Path) -> Lint:
        ref = write_checkpoint(folder / "drafter", KIMI_CONFIG, kimi_tensors())
        (folder / "drafter" / "README.md").write_text(card, encoding="utf-8")
        (folder / "drafter" / "drafter-audit.toml").write_text(f'[[drafter]]\ntarget = "{target}"\n', encoding="utf-8")
        return lint(ref)

    return build


CASES = (
    Case("CONFIG-TRAINER", fires=_record("trainer_repo"), silent=_record("published")),
    Case("CONFIG-PARTIAL", fires=_record("published"), silent=kimi()),
    # The Hub takes names in any case.
    Case(
        "FACTS-DISAGREE",
        fires=_told(card="---\nbase_model: moonshotai/Kimi-K2-Instruct\n---\nText."),
        silent=_told(card="---\nbase_model: moonshotai/kimi-k2.5\n---\nText."),
    ),
    Case(
        "FACTS-UNREAD",
        fires=_told(card="---\nlicense: [mit\n---\nText."),
        silent=_told(card="A card without metadata, which [ says nothing."),
    ),
)
