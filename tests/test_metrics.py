"""docs/metrics.md: each tool's figure as that tool gets it from rounds, its formula in our counts, and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable
from statistics import fmean

import pytest

from drafter_audit.decode.result import DecodeResult, DrafterFacts, PromptFacts, Provenance, TargetFacts
from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from tests.test_docs import doc, table

STEPS = 3
ROUNDS = [[3, 0, 2, 3, 3], [1, 0]]
OVERSHOOT = [1, 0]
RUN = Acceptance.pooled(
    [
        PromptCounts.of(id, None, accepted, steps=STEPS, overshoot=over)
        for id, accepted, over in zip("ab", ROUNDS, OVERSHOOT, strict=True)
    ],
    steps=STEPS,
)
ROWS = {(row[0], row[1].strip("`")): row[2:] for row in table(doc("metrics.md"), "## Other tools' definitions")}


def chunks(answer: int) -> list[int]:
    """Tokens as they are streamed: the prefill's, then those of each round, cut at the end."""
    lengths = [1, *(accepted + 1 for accepted in ROUNDS[answer])]
    lengths[-1] -= OVERSHOOT[answer]
    return lengths


ANSWERS = range(len(ROUNDS))
EVERY = [accepted for answer in ROUNDS for accepted in answer]


def per_answer(figure: Callable[[int], float]) -> list[float]:
    return [figure(answer) for answer in ANSWERS]


# As each tool counts, from what it sees: streamed chunks, or drafts accepted in each step.
COMPLETION_OVER_VERIFY = per_answer(lambda i: sum(chunks(i)) / len(ROUNDS[i]))
STEPS_POOLED = [sum(accepted + 1 for accepted in EVERY) / len(EVERY)]
DRAFTS_POOLED = [1 + sum(EVERY) / len(EVERY)]
ACCEPTED_OF_DRAFTED = [sum(EVERY) / sum(STEPS for _ in EVERY)]
BY_REQUEST = [fmean(per_answer(lambda i: sum(ROUNDS[i]) / len(ROUNDS[i]) + 1))]
CHUNK_MEANS = per_answer(lambda i: fmean(chunks(i)))
THEIRS = {
    ("SGLang, a request", "spec_accept_length"): COMPLETION_OVER_VERIFY,
    ("SGLang, a request", "spec_accept_rate"): per_answer(lambda i: sum(ROUNDS[i]) / (len(ROUNDS[i]) * STEPS)),
    ("SGLang, a server", "avg_spec_accept_length"): STEPS_POOLED,
    ("SGLang, a gauge", "sglang:spec_accept_length"): STEPS_POOLED,
    ("SGLang, `bench_serving`", "accept_length"): STEPS_POOLED,
    ("vLLM, log and counters", "mean acceptance length"): DRAFTS_POOLED,
    ("vLLM, log and counters", "draft acceptance rate"): ACCEPTED_OF_DRAFTED,
    ("vLLM, a request", "mean_acceptance_length"): per_answer(lambda i: 1 + sum(ROUNDS[i]) / len(ROUNDS[i])),
    ("speculators, `evaluate.py`", "acceptance length"): DRAFTS_POOLED,
    ("SpecForge, `bench_eagle3.py`", "accept_length"): [
        sum(sum(chunks(i)) for i in ANSWERS) / sum(len(ROUNDS[i]) for i in ANSWERS)
    ],
    ("SpecForge, `specforge benchmark`", "average_acceptance_length"): [fmean(COMPLETION_OVER_VERIFY)],
    ("ModelOpt, `specdec_bench`", "Average_AL"): [fmean(CHUNK_MEANS)],
    ("ModelOpt, `ar_validate`", "acceptance rate"): [fmean(per_answer(lambda i: sum(chunks(i)) / len(chunks(i))))],
    ("AIPerf", "spec_decode_acceptance_length"): BY_REQUEST,
    ("AIPerf", "spec_decode_token_weighted_acceptance_length"): DRAFTS_POOLED,
    ("AIPerf", "spec_decode_accepted_per_verified"): [
        fmean(per_answer(lambda i: sum(j + 1 for j in ROUNDS[i]) / sum(STEPS + 1 for _ in ROUNDS[i])))
    ],
    ("TensorRT-LLM, a request", "avg_decoded_tokens_per_iter"): CHUNK_MEANS,
    ("TensorRT-LLM, `trtllm-bench`", "acceptance length"): [
        sum(sum(chunks(i)) for i in ANSWERS) / sum(len(chunks(i)) for i in ANSWERS)
    ],
    ("TensorRT-LLM, a gauge", "trtllm_spec_decode_acceptance_length"): [(sum(EVERY) + len(EVERY)) / len(EVERY)],
    ("llama.cpp", "mean acceptance length"): DRAFTS_POOLED,
    ("llama.cpp", "draft acceptance"): ACCEPTED_OF_DRAFTED,
    ("Spec-Bench", "mean accepted tokens"): [fmean(accepted + 1 for accepted in EVERY)],
    ("EAGLE", "τ"): [fmean(accepted + 1 for accepted in EVERY)],
    ("AngelSlim, torch", "acceptance_length"): BY_REQUEST,
    ("AngelSlim, vLLM", "average_acceptance_length"): DRAFTS_POOLED,
}

TOTALS = {
    "S": RUN.rounds, "A": RUN.accepted, "D": RUN.drafted, "N": RUN.tokens, "P": RUN.prompts, "O": RUN.overshoot,
    "V": RUN.num_draft_tokens, "k": RUN.steps,
}  # fmt: skip
OF_ANSWERS = [
    {"s": p.rounds, "a": p.accepted, "d": p.rounds * STEPS, "n": p.tokens, "o": p.overshoot} for p in RUN.per_prompt
]


def computed(formula: str, figures: list[float | None] | None = None) -> list[float]:
    """A formula of the table: of the totals, of each answer where it has small letters, or the mean over answers."""
    mean, expression = formula.startswith("mean of "), formula.removeprefix("mean of ")
    each = re.search(r"\b[sadno]\b", expression) or len(figures or ()) > 1
    counts = OF_ANSWERS if each else [{}]
    every = zip(counts, figures or [None] * len(counts), strict=True)
    values = [eval(expression, {"__builtins__": {}}, {**TOTALS, **own, "x": x}) for own, x in every]
    return [fmean(values)] if mean else values


def accept_len_like(figures: list[float]) -> list[float | None]:
    """What a conversion must give: that of the run, or of each answer."""
    return [RUN.accept_len] if len(figures) == 1 else [p.accept_len for p in RUN.per_prompt]


def test_every_definition_is_computed() -> None:
    assert ROWS.keys() == THEIRS.keys()


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_a_definition(row: tuple[str, str]) -> None:
    formula, back, example = ROWS[row]
    assert computed(formula) == pytest.approx(THEIRS[row])
    assert example == ", ".join(f"{figure:.3f}" for figure in THEIRS[row])
    if back not in ("", "none"):
        assert computed(back, THEIRS[row]) == pytest.approx(accept_len_like(THEIRS[row]))
    assert (back == "") == (THEIRS[row] == pytest.approx(accept_len_like(THEIRS[row])))


def test_the_worked_counts_are_those_of_the_text() -> None:
    (sentence,) = re.findall(r"So S = .*? accept_len is [\d.]+\.", doc("metrics.md").replace("\n", " "))
    told = dict(re.findall(r"(\w+) (?:=|is) (\d+(?:\.\d+)?)", sentence))
    assert {name: int(told[name]) for name in "SADNPO"} == {name: TOTALS[name] for name in "SADNPO"}
    assert float(told["accept_len"]) == pytest.approx(RUN.accept_len, abs=5e-4)
    assert RUN.request_mean == pytest.approx(BY_REQUEST[0])


def test_a_published_log_of_llama_cpp() -> None:
    """PR 24536: 167 of 259 drafted in 87 rounds, mean length 2.92, (0.805, 0.632, 0.483); two rounds drafted less."""
    run = Acceptance.from_counters(steps=3, rounds=87, accepted=167, drafted=259, per_position_counts=[70, 55, 42])
    assert round(run.accept_len, 2) == 2.92
    assert [round(rate, 3) for rate in run.per_position or ()] == [0.805, 0.632, 0.483]
    assert run.accept_rate == pytest.approx(0.64479, abs=5e-6)


def test_every_count_and_figure_of_the_page_is_in_the_json() -> None:
    provenance = Provenance(
        "replay", DrafterFacts("d", None), TargetFacts("t", None, "float32", None), PromptFacts("p", "00", 2)
    )
    told = DecodeResult(provenance, RUN).to_dict()
    page = doc("metrics.md")
    counts = [row[1].strip("`").split(".")[0] for row in table(page, "## The record")]
    figures = [row[0].strip("`").split("[")[0] for row in table(page, "## The figures") + table(page, "## Costs")]
    assert [name for name in counts + figures if name not in told] == []
