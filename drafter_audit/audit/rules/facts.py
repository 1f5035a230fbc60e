"""Facts and records: seen in part, not readable, contradictory."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.facts import registry

CODES: tuple[Code, ...] = (
    Code(
        "CONFIG-TRAINER",
        ("info",),
        what="A bundled record holds its trainer's settings, not the published config.json.",
        silent="Both look alike.",
        evidence="The record says where its config was seen.",
        fix="Name the repository to read what was published.",
        source="https://github.com/vllm-project/speculators/pull/268",
    ),
    Code(
        "CONFIG-PARTIAL",
        ("info",),
        what="A bundled record holds a config.json that was seen in part.",
        silent="A key that was not seen looks like one that is not declared.",
        evidence="The record says so.",
        fix="Name the repository to read all of it.",
        source="https://github.com/vllm-project/speculators/pull/268",
    ),
    Code(
        "FACTS-DISAGREE",
        ("warning",),
        what="Two sources give different values of one fact.",
        silent="A table shows one of them.",
        evidence="Both values with their sources.",
        fix="Correct the one that is wrong.",
        source="https://github.com/SafeAILab/EAGLE/issues/60",
    ),
    Code(
        "FACTS-UNREAD",
        ("warning",),
        what="A model card could not be read in whole or in part.",
        silent="What it says is missing without a trace.",
        evidence="The reason.",
        fix="Mend the card's metadata.",
        source="https://github.com/embeddings-benchmark/mteb/issues/3811",
    ),
)


def record(spec: DrafterSpec) -> Findings:
    """What a bundled record could not see of the config."""
    if spec.source != "bundled":
        return
    seen = registry.load(spec.ref)
    if seen.config_origin == "trainer_repo":
        what = "config.json was not seen: these are the settings in its trainer's repository"
        yield Finding("CONFIG-TRAINER", "info", what, "what was published may differ")
    elif not seen.config_complete:
        what = "config.json was seen in part"
        yield Finding("CONFIG-PARTIAL", "info", what, "a setting that is missing here may be declared there")


def facts(spec: DrafterSpec) -> Findings:
    for contradiction in spec.facts_disagree:
        yield Finding("FACTS-DISAGREE", "warning", contradiction, "the first is used", file="facts")
    for reason in spec.facts_unread:
        yield Finding("FACTS-UNREAD", "warning", reason, "what it may say is missing here", file="README.md")
