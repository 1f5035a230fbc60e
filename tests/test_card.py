"""Model cards as facts. The layouts are those of published cards; the figures are theirs, the words are not."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from drafter_audit.facts.card import FROM_METADATA, FROM_TEXT, read_card
from drafter_audit.facts.records import Facts

AQ_K2 = """---
license: mit
---
## Overview
All 7 benchmarks get faster, +24% at the least (configured with bs=8, steps=3, topk=1, num_draft_tokens=4).

The drafter was trained on **1.4 million high-quality samples** from the **Open-PerfectBlend** dataset.

**Average Token Acceptance Lengths (MLA):**

| Benchmark | Average Acceptance Length |
| :--- | :--- |
| **HumanEval** (Code) | **3.372** |
| **GSM8K** (Math) | **3.165** |
| **Math500** (Complex Math) | **3.490** |

```bash
pip install sglang==0.5.6
python3 -m sglang.launch_server \\
    --model-path /models/Kimi-K2-Instruct \\
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
```
"""

LIGHTSEEK_MLA = """---
base_model:
- moonshotai/Kimi-K2.5
datasets:
- lightseekorg/kimi-mtp-dataset
---
# Performance
accept_length with topk=1, num_steps=3, num_draft_tokens=4.

| Category | Benchmark | N | Acc Len |
|---|---|---:|---|
| Dialogue | MTBench | 80 | 2.94 |
| Math | GSM8K | 500 | 3.02 |
| | **Average** | | 2.98 |
"""

LIGHTSEEK_PHASES = """---
base_model: moonshotai/Kimi-K2.5
---
Two phases, each 20k training steps (~300k samples):
- Phase 1: open-perfectblend

Both eval sets hold 256 samples drawn from the training corpus.

The measure is accept_length with topk=1, num_steps=3, num_draft_tokens=4.

| Category | Dataset | n | Phase 1 (20k steps) | Phase 2 (40k steps) |
|---|---|---|---|---|
| Dialogue | MTBench | 80 | 2.624 | 2.687 |
| Math | GSM8K | 500 | 3.123 | 3.201 |
"""

K2_7 = """
| Benchmark | Samples | AccLen | AccRate |
|---|---|---|---|
| MTBench | 80 | 2.35 | 0.45 |
| GSM8K | 200 | 2.95 | 0.65 |
"""

K_L_LAMBDA = """---
base_model: moonshotai/Kimi-K2.6
---
accept_length with num_speculative_tokens=3, judged on 912 prompts, vLLM 0.20.0.

| Model | accept_len | pos-0 | pos-1 |
|---|---|---|---|
| lightseek (official init) | 2.30 | 0.633 | 0.404 |
| this model | 2.345 | 0.648 | 0.419 |
"""


def rows(text: str) -> list[tuple[str | None, float]]:
    return [(row.benchmark, row.value) for row in read_card(text).accept_len]


def table(header: str, *lines: str, lead: str = "") -> str:
    rule = "|" + "---|" * (header.strip("|").count("|") + 1)
    return "\n".join([lead, "", header, rule, *lines, ""])


def test_the_card_of_kimi_k2():
    facts = read_card(AQ_K2)
    assert (facts.target, facts.target_source) == (None, None)
    assert facts.training is not None
    assert (facts.training.dataset, facts.training.samples) == ("Open-PerfectBlend", 1_400_000)
    assert facts.training.source == FROM_TEXT
    assert rows(AQ_K2) == [("HumanEval", 3.372), ("GSM8K", 3.165), ("Math500", 3.49)]
    for row in facts.accept_len:
        assert (row.steps, row.topk, row.num_draft_tokens, row.batch_size) == (3, 1, 4, 8)
        assert (row.engine, row.source, row.publisher, row.temperature) == ("sglang 0.5.6", FROM_TEXT, "author", None)


def test_a_table_with_categories_and_counts():
    facts = read_card(LIGHTSEEK_MLA)
    assert (facts.target, facts.target_source) == ("moonshotai/Kimi-K2.5", FROM_METADATA)
    assert facts.training is not None
    assert (facts.training.dataset, facts.training.samples) == ("lightseekorg/kimi-mtp-dataset", None)
    assert facts.training.source == FROM_METADATA
    assert rows(LIGHTSEEK_MLA) == [("MTBench", 2.94), ("GSM8K", 3.02)]
    assert (facts.accept_len[0].steps, facts.accept_len[0].topk, facts.accept_len[0].engine) == (3, 1, None)


def test_phases_side_by_side_are_not_guessed_between():
    facts = read_card(LIGHTSEEK_PHASES)
    assert facts.accept_len == ()
    assert facts.training is not None
    assert facts.training.samples is None
    assert "parts" in facts.training.source


def test_a_table_with_samples_is_no_training_set():
    assert rows(K2_7) == [("MTBench", 2.35), ("GSM8K", 2.95)]
    assert read_card(K2_7).training is None


def test_rows_that_are_models_are_no_benchmarks():
    facts = read_card(K_L_LAMBDA)
    assert rows(K_L_LAMBDA) == [(None, 2.345)]
    assert (facts.accept_len[0].steps, facts.accept_len[0].num_draft_tokens) == (3, None)
    assert facts.accept_len[0].engine == "vllm 0.20.0"
    assert rows(K_L_LAMBDA.replace("this model", "final run")) == []


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("Trained on 1.4 million high-quality samples.", 1_400_000),
        ("Training used 1.4M samples.", 1_400_000),
        ("We train on 37K samples of chat.", 37_000),
        ("It is trained with 2 million regenerated multi-turn samples.", 2_000_000),
        ("Training: ~300k samples", 300_000),
        ("For training, 500,000 samples were drawn from logs.", 500_000),
        ("500,000 samples were used for training.", 500_000),
        ("## Training data\n\nThere are 148,112 samples in it.", 148_112),
        ("Trained on 0.4M samples and evaluated on 80 samples of MT-Bench.", 400_000),
        ("Trained on 1.4M samples.\n\nAgain: trained on 1.4 million samples.", 1_400_000),
        ("The set has 600K samples, 1B tokens.", 600_000),
        ("The set has 12K samples. The model is trained on 600K samples.", 600_000),
        ("Evaluated on 256 samples.", None),
        ("Both eval sets hold 256 samples drawn from the training corpus.", None),
        ("Benchmarks use 200 samples.", None),
        ("Trained for 3 epochs on samples from logs.", None),
        ("Trained for 20k steps.", None),
        ("Version 1.4 of the samples was trained.", None),
    ],
)
def test_training_samples(text, samples):
    training = read_card(text).training
    assert (training.samples if training else None) == samples


def test_different_sample_counts_are_not_chosen_between():
    training = read_card("Trained on 1.4M samples.\n\nThis model was trained on 300k samples.").training
    assert training is not None
    assert training.samples is None
    assert training.source == "model card, read from text (2 different sample counts, none taken)"


@pytest.mark.parametrize(
    ("text", "dataset"),
    [
        ("Trained on 2M samples from the [EagleChat](https://example.org) and open-perfectblend datasets.",
         "EagleChat and open-perfectblend"),
        ("- **Training Data**: OpenPrompts (OPC), regenerated. More below.", "OpenPrompts (OPC), regenerated"),
        ("**Dataset:** ShareGPT-68K", "ShareGPT-68K"),
        ("The head is trained on the ultrachat_200k dataset.", "ultrachat_200k"),
        ("Trained on 2M samples from EagleChat, open-perfectblend and some multimodal data.",
         "EagleChat, open-perfectblend and some multimodal"),
        ("Evaluated on the GSM8K dataset.", None),
        ("Trained on K2.7 with real data.", None),
        ("Trained on a high-quality dataset.", None),
    ],
)  # fmt: skip
def test_training_dataset(text, dataset):
    training = read_card(text).training
    assert (training.dataset if training else None) == dataset


def test_metadata_names_the_dataset_and_text_the_samples():
    training = read_card("---\ndatasets: [a/b, c/d]\n---\nTrained on 37K samples.").training
    assert training is not None
    assert (training.dataset, training.samples) == ("a/b, c/d", 37_000)
    assert training.source == "model card, metadata; samples: model card, read from text"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (table("| Benchmark | Eagle3 |", "| GSM8K | 3.17 |", lead="**Token Acceptance Lengths:**"), [("GSM8K", 3.17)]),
        ("### Acceptance length\n" + table("| Task | N | Ours |", "| GSM8K | 80 | 3.17 |"), [("GSM8K", 3.17)]),
        (table("Benchmark | accept_length", "GSM8K | 3.17"), [("GSM8K", 3.17)]),
        (table("| Benchmark | AccLen |", "| GSM8K | 85% |", "| MTBench | 2.5 |"), [("MTBench", 2.5)]),
        (table("| Benchmark | AccLen |", "| GSM8K | 0.9 |", "| MTBench | 21.0 |"), []),
        (table("| Benchmark | Accept length | Speedup |", "| GSM8K | 3.1 | 2.1 |"), [("GSM8K", 3.1)]),
        (table("| Benchmark | Speedup |", "| GSM8K | 2.1 |", lead="The acceptance length is high:"), []),
        (table("| Benchmark | Baseline | Eagle3 |", "| GSM8K | 1.0 | 3.1 |", lead="Acceptance length:"), []),
        (table("| Benchmark | AccLen (base) | AccLen (ours) |", "| GSM8K | 2.0 | 3.1 |"), [("GSM8K", 3.1)]),
        (table("| Draft | Real traffic | Held-out |", "| This model | 2.3 | 2.2 |", lead="Accepted-token length:"), []),
        (table("| Model | Task | AccLen |", "| other | GSM8K | 2.0 |", "| ours | GSM8K | 3.1 |"), [("GSM8K", 3.1)]),
        (table("| | AccLen |", "| lmsys/other-eagle3 | 2.0 |", "| final | 3.1 |"), []),
        (table("| Benchmark | Accuracy |", "| GSM8K | 1.5 |"), []),
        (table("| Benchmark | AccLen |", "| GSM8K | 3.1 |").replace("|---|---|", "|---|"), []),
        ("```\n" + table("| Benchmark | AccLen |", "| GSM8K | 3.1 |") + "```", []),
    ],
)  # fmt: skip
def test_accept_len_tables(text, expected):
    assert rows(text) == expected


def test_settings_in_columns_outweigh_the_text():
    text = table("| Benchmark | Steps | topk | AccLen |", "| GSM8K | 5 | 1 | 4.1 |", lead="steps=3, topk=4")
    row = read_card(text).accept_len[0]
    assert (row.benchmark, row.value, row.steps, row.topk) == ("GSM8K", 4.1, 5, 1)


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        ("bs=8, steps=3, topk=1, num_draft_tokens=4", (3, 1, 4, 8)),
        ("`--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4`", (3, 1, 4, None)),
        ("num_speculative_tokens=3", (3, None, None, None)),
        ('{"num_speculative_tokens": 3}', (3, None, None, None)),
        ("topk=1, num_steps=3", (3, 1, None, None)),
        ("--speculative-num-steps=3 \\\n --speculative-eagle-topk=1", (3, 1, None, None)),
        ("steps=3 and later steps=5, topk=1", (None, 1, None, None)),
        ("ttt_steps=4, max_steps=100, num_steps 20000", (None, None, None, None)),
    ],
)
def test_settings(said, settings):
    row = read_card(f"{said}\n" + table("| Benchmark | AccLen |", "| GSM8K | 2.5 |")).accept_len[0]
    assert (row.steps, row.topk, row.num_draft_tokens, row.batch_size) == settings


def test_settings_that_cannot_be_the_tables_are_dropped():
    named = "steps=3\n" + table("| Benchmark | AccLen |", "| GSM8K | 4.5 |")
    assert rows(named) == [("GSM8K", 4.5)]
    assert read_card(named).accept_len[0].steps is None
    assert rows("steps=3\n" + table("| Benchmark | Eagle3 |", "| GSM8K | 4.5 |", lead="Acceptance length:")) == []


@pytest.mark.parametrize(
    ("said", "engine"),
    [
        ("pip install sglang==0.5.6", "sglang 0.5.6"),
        ("SGLang 0.5.14 on H200", "sglang 0.5.14"),
        ("SGLang version 0.4.9.post3", "sglang 0.4.9.post3"),
        ("vLLM 0.20.0", "vllm 0.20.0"),
        ("Serve it with vLLM.", "vllm"),
        ("vLLM 0.19.0, or vLLM 0.20.0", "vllm"),
        ("vLLM 0.20.0 or SGLang", None),
        ("an engine", None),
    ],
)
def test_engine(said, engine):
    assert read_card(f"{said}\n" + table("| Benchmark | AccLen |", "| GSM8K | 2.5 |")).accept_len[0].engine == engine


def test_temperature_is_read_beside_the_table_only():
    text = table("| Benchmark | AccLen |", "| GSM8K | 2.5 |", lead="At temperature=0:")
    assert read_card(text).accept_len[0].temperature == 0
    far = read_card("temperature=0.6\n\nResults:\n" + table("| Benchmark | AccLen |", "| GSM8K | 2.5 |"))
    assert far.accept_len[0].temperature is None


@pytest.mark.parametrize(
    ("text", "target", "source"),
    [
        ("---\nbase_model: 'Qwen/Qwen3-8B'\nbase_model_relation: finetune\n---\n", "Qwen/Qwen3-8B", FROM_METADATA),
        ("---\nbase_model: [Qwen/Qwen3-8B]\n---\n--model-path a/b", "Qwen/Qwen3-8B", FROM_METADATA),
        ("---\nbase_model: [a/b, c/d]\n---\n", None, None),
        ("---\nbase_model: a/b-eagle3\n---\nvllm serve moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.5", FROM_TEXT),
        ("```\n--model-path openai/gpt-oss-20b \\\n```", "openai/gpt-oss-20b", FROM_TEXT),
        ("**Verifier:** `openai/gpt-oss-20b`.", "openai/gpt-oss-20b", FROM_TEXT),
        ("vllm serve a/b\nvllm serve c/d", None, None),
        ("vllm serve /models/b\nvllm serve path/to/b\nvllm serve models/b --model-path <target>", None, None),
        ("---\nbase_model: [\n---\ntext", None, None),
        ("---\nbase_model: {a: b}\n---\n", None, None),
        ("---\nbase_model: a/b", None, None),
    ],
)  # fmt: skip
def test_target(text, target, source):
    facts = read_card(text)
    assert (facts.target, facts.target_source) == (target, source)


@pytest.mark.parametrize("text", ["", "---", "---\n---", "\ufeff", "plain words", "| a |", "\x00\x1b[31m|\n|-|\n"])
def test_an_empty_card_says_nothing(text):
    assert read_card(text) == Facts()


@pytest.mark.parametrize(
    "piece",
    ["|", "|-", "a ", "1.4 ", "1", "1,", "[a", "<a", "*", "\n|", "|a|\n|-|\n", "1k a ", "1 samples ", "from A, ",
     "bs=1 ", "--model-path a/", "```\n"],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(piece):
    text = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    start = time.perf_counter()
    read_card(text)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    "front",
    ["[" * 60_000, "{a: " * 10_000, "a: &a {b: c}\n" + "x: {<<: [*a, *a]}\n" * 2000, "a: !!python/name:os.system x",
     "a: 2024-99-99"],
)  # fmt: skip
def test_hostile_metadata_is_left_alone(front):
    assert read_card(f"---\n{front}\n---\nTrained on 37K samples.").training is not None


def test_reading_a_card_loads_nothing_heavy():
    code = """
import sys
from drafter_audit.facts.card import read_card
read_card("Trained on 37K samples.")
heavy = {"huggingface_hub", "numpy", "yaml", "torch"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "of", ["samples of Open-PerfectBlend", "conversations of Open-PerfectBlend", "dialogues from it"]
)
def test_a_word_inside_a_name_is_no_share(of):
    assert read_card(f"# Training\n\nTrained on 1.4M {of}.\n").training.samples == 1_400_000


@pytest.mark.parametrize(
    ("card", "unread"),
    [
        ("---\na: [b\n---\nText.", "not YAML"),
        ("---\n" + "[" * 60 + "\n---\nText.", "too long or too deeply nested"),
        ("word " * 60_000, "262,144 only"),
        ("---\nlicense: mit\n---\nText.", None),
    ],
)
def test_what_of_a_card_was_not_read_is_told(card, unread):
    told = read_card(card).unread
    assert told is None if unread is None else unread in told
