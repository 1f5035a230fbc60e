"""The bundled facts against what was published, and what is made of every bundled config."""

from __future__ import annotations

import pytest

from drafter_audit.audit.rules import find
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.target import named_target
from drafter_audit.facts import registry

RECORDS = [registry.load(name) for name in registry.names()]
WITH_CONFIG = [record for record in RECORDS if record.config_origin is not None]

# Copied from the model cards and from SpecBundle's raw data, by hand: repository, benchmark, value, then what else the
# row says.
ROWS = [
    ("AngelSlim/Qwen3-1.7B_eagle3", "GSM8K", 2.13, {"tokens_per_s": 616.9, "plain_tokens_per_s": 376.42}),
    ("AQ-MedAI/Kimi-K2.7-Code-eagle3", "HumanEval", 2.91, {"steps": 3, "topk": 1, "num_draft_tokens": 4}),
    ("AQ-MedAI/Kimi-K26-eagle3", "HumanEval", 3.217, {"steps": 3, "publisher": "author"}),
    ("AQ-MedAI/Ling-Flash-2.0-eagle3", "gsm8k", 3.4352, {"tokens_per_s": 1144.76, "plain_tokens_per_s": 674.35}),
    ("AQ-MedAI/Qwen3.5-397B-A17B-eagle3", "MT-Bench", 3.03, {"batch_size": 1, "tokens_per_s": 224.09}),
    ("chutesai/Qwen3-32B-FP8-DFLASH", "ShareGPT 200 prompts, concurrency 8", 2.46, {"engine": "sglang 0.5.13.post1"}),
    ("Dogacel/specdrift-gpt-oss-120b-eagle3", "MT-Bench", 2.41, {"temperature": 0.7, "plain_tokens_per_s": 212}),
    ("Inferact/MiniMax-M3-EAGLE3", "ShareGPT 100 prompts, 128 tokens", 2.73, {"publisher": "lightseekorg/tokenspeed"}),
    ("k-l-lambda/kimi-k2.7-code-eagle3-mla", "real K2.7-Code traffic", 2.345, {"steps": 3, "temperature": 0}),
    ("lightseekorg/kimi-k2.5-eagle3", "MTBench", 2.687, {"steps": 3, "publisher": "author"}),
    ("lightseekorg/kimi-k2.5-eagle3-mla", "MTBench", 2.94, {"num_draft_tokens": 4}),
    ("lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge", "gsm8k", 2.5482, {"batch_size": 1, "tokens_per_s": 321.25}),
    ("lmsys/sglang-EAGLE3-LLaMA3.3-Instruct-70B", "gsm8k", 1.2761, {"publisher": "SpecBundle", "batch_size": 8}),
    ("lmsys/sglang-EAGLE3-Llama-4-Maverick-17B-128E-Instruct-v1", "unnamed", 2.45, {"steps": 3}),
    ("nebius/EAGLE3-Qwen3-235B-A22B-Instruct-2507", "MT-bench", 3.18, {"steps": 7, "temperature": 1}),
    ("noctuashap/Confucius3-Math-Eagle3", "gsm8k", 4.3, {"steps": 7, "engine": "vllm", "tokens_per_s": 365}),
    ("nvidia/Kimi-K2.6-Eagle3", "MT-Bench", 2.62, {"steps": 3}),
    ("RedHatAI/Llama-4-Maverick-17B-128E-Instruct-speculator.eagle3", "HumanEval", 2.94, {"steps": 3}),
    ("RedHatAI/Qwen3-235B-A22B-Instruct-2507-speculator.eagle3", "MT-bench", 2.56, {"publisher": "nebius"}),
    ("yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "MT-Bench (80 q)", 5.88, {"steps": 8, "topk": 8, "num_draft_tokens": 64}),
    ("z-lab/Kimi-K2.5-DFlash", "GSM8K", 5.3, {"steps": None, "engine": "sglang"}),
]  # fmt: skip

SAMPLES = [
    ("AQ-MedAI/GLM-5.1-eagle3", "zai-org/GLM-5.1", 1_000_000),
    ("AQ-MedAI/Kimi-K2.7-Code-eagle3", "moonshotai/Kimi-K2.7-Code", 400_000),
    ("AQ-MedAI/Ling-Flash-2.0-eagle3", "inclusionAI/Ling-flash-2.0", 1_400_000),
    ("noctuashap/Confucius3-Math-Eagle3", "netease-youdao/Confucius3-Math", 148_112),
    ("Zjcxy-SmartAI/Eagle3-Qwen3-8B-zh", "Qwen/Qwen3-8B", 135_000),
    ("lightseekorg/kimi-k2.5-eagle3", "moonshotai/Kimi-K2.5", None),
]

COUNTS = [
    ("GavinLucky/SGLang-EAGLE3-Qwen3-0.6B-SpecForge", 56_000_000, "56M"),
    ("nvidia/Kimi-K2.6-Eagle3", 2_000_000_000, "2B"),
    ("xf2022/tiny-random-qwen3moe-eagle3", 6_080_000, "6.08M"),
    ("yuhuili/EAGLE-llama2-chat-13B", 370_000_000, "0.37B"),
]

# Layers, hidden size, vocabulary and quantisation of targets, from their config.json.
TARGETS = [
    ("deepseek-ai/DeepSeek-V3", 61, 7168, 129280, "fp8"),
    ("deepseek-ai/DeepSeek-V4-Flash", 43, 4096, 129280, "fp8"),
    ("google/gemma-4-26B-A4B", 30, 2816, 262144, "none"),
    ("meta-llama/Llama-3.3-70B-Instruct", 80, 8192, 128256, "none"),
    ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 48, 5120, 202048, "none"),
    ("MiniMaxAI/MiniMax-M2.5", 62, 3072, 200064, "fp8"),
    ("moonshotai/Kimi-K2.5", 61, 7168, 163840, "compressed-tensors int4"),
    ("nvidia/DeepSeek-V3.1-NVFP4", 61, 7168, 129280, "modelopt NVFP4"),
    ("nvidia/Kimi-K2.5-NVFP4", 61, 7168, 163840, "modelopt NVFP4"),
    ("openai/gpt-oss-120b", 36, 2880, 201088, "mxfp4"),
    ("stepfun-ai/Step-3.7-Flash-FP8", 45, 4096, 128896, "fp8"),
    ("XiaomiMiMo/MiMo-7B-Base", 36, 4096, 151680, "none"),
    ("zai-org/GLM-4.7-FP8", 92, 5120, 151552, None),
    ("zai-org/GLM-5.2", 78, 6144, 154880, "none"),
]

# What each bundled config of a drafter is, as its publisher names the format; the parameters of body and head, and the
# embedding where the dialect stores it, from the shapes: fc 3h x h, q, k and v over 2h, a gated MLP, 4 norms, the head.
# None: not counted.
DRAFTERS = {
    "angelslim-qwen3-1.7b_eagle3": ("eagle3", "angelslim", 448_012_288),
    "angelslim-qwen3-14b_eagle3": ("eagle3", "angelslim", 1_387_417_600),
    "angelslim-qwen3-32b_eagle3": ("eagle3", "angelslim", 1_560_432_640),
    "angelslim-qwen3-4b_eagle3": ("eagle3", "angelslim", 591_472_640),
    "angelslim-qwen3-8b_eagle3": ("eagle3", "angelslim", 1_021_853_696),
    "angelslim-qwen3-a3b_eagle3": ("eagle3", "angelslim", 456_400_896),
    "aq-medai-kimi-k2-instruct-eagle3": ("eagle3", "specforge", 1_190_948_864),
    "aq-medai-kimi-k25-eagle3": ("eagle3", "specforge", 1_190_948_864),
    "flashdrivevla-alpamayo-r1-10b-dflash": ("dflash", "unknown", None),
    "hyzeai-hyze1b": ("dflash", "unknown", None),
    "inference-optimization-mistral3_speculator_dummy": ("eagle3", "speculators", 1_807_511_552),
    "k-l-lambda-kimi-k2.5-eagle3": ("eagle3_mla", "unknown", 3_015_604_224),
    "linglingdan-eagle3_for_minicpm4": ("eagle3", "specforge", 367_640_576),
    "lmsys-eagle3-gpt-oss-120b-bf16": ("eagle3", "specforge", None),
    "lukeysong-llama3-draft": ("eagle3", "specforge", 818_954_240),
    "nm-testing-eagle3-llama3.1-instruct-8b-converted": ("eagle3", "speculators", 950_026_240),
    "nm-testing-for_testing_gptoss20b_spec_eagle3": ("eagle3", "speculators", None),
    # Published as 2.13 GB and 1.47 GB of float32, of which 0.37B and 0.24B are trained: the rest is the embedding.
    "yuhuili-eagle-llama2-chat-13b": ("eagle1", "eagle", 533_468_160),
    "yuhuili-eagle-llama2-chat-7b": ("eagle1", "eagle", 367_005_696),
    "yuhuili-eagle-vicuna-13b-v1.3": ("eagle1", "eagle", 533_468_160),
    "yuhuili-eagle-vicuna-7b-v1.3": ("eagle1", "eagle", 367_005_696),
    "yuhuili-eagle3-llama3.1-instruct-8b": ("eagle3", "eagle", 424_689_664),
    "zjxia-step-3.5-flash-eagle3-specforge-draft": ("eagle3", "specforge", 378_552_320),
}


def the(repo: str) -> registry.Record:
    record = registry.find(repo)
    assert record is not None
    return record


@pytest.mark.parametrize(("repo", "benchmark", "value", "said"), ROWS, ids=lambda value: str(value)[:40])
def test_measurements_are_as_published(repo, benchmark, value, said):
    rows = [row for row in the(repo).accept_len if row.benchmark == benchmark and row.value == value]
    assert any({key: getattr(row, key) for key in said} == said for row in rows)


@pytest.mark.parametrize(("repo", "target", "samples"), SAMPLES)
def test_training_is_as_published(repo, target, samples):
    record = the(repo)
    assert record.training is not None
    assert (record.target, record.training.samples) == (target, samples)


@pytest.mark.parametrize(("repo", "count", "written"), COUNTS)
def test_parameter_counts_are_as_published(repo, count, written):
    published = the(repo).published_parameters
    assert published is not None
    assert (published.count, published.written) == (count, written)


@pytest.mark.parametrize(("repo", "layers", "hidden", "vocabulary", "quantization"), TARGETS)
def test_targets_are_as_published(repo, layers, hidden, vocabulary, quantization):
    target = named_target(repo)
    assert target.read_from == f"bundled: {repo}"
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (layers, hidden, vocabulary)
    assert target.quantization == quantization


def test_the_drafter_of_step_3_5_flash_is_as_published():
    config = the("zjxia/step-3.5-flash-eagle3-SpecForge-draft").config
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [4, 20, 40]
    assert (config["head_dim"], config["hidden_size"], config["vocab_size"]) == (64, 4096, 128896)
    assert config["rope_scaling"] is None


def test_the_trainers_config_of_eagle3_is_told_from_a_published_one():
    record = the("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    assert record.config_origin == "trainer_repo"
    assert record.provenance["config_origin"].confidence == "medium"
    assert (record.config["max_position_embeddings"], record.config["torch_dtype"]) == (2048, "float16")
    assert {finding.code for finding in find(open_drafter(record.name))} >= {"CONFIG-TRAINER"}


@pytest.mark.parametrize("record", WITH_CONFIG, ids=lambda record: record.name)
def test_every_bundled_config_opens_without_an_error(record):
    """No published config that was seen is known to be faulty in a way that a config alone shows."""
    spec = open_drafter(record.name)
    assert [finding.what for finding in find(spec) if finding.severity == "error"] == []
    if record.role == "target":
        assert spec.kind.name == "lm"
    else:
        counted = spec.parameters.stored if spec.parameters.counted else None
        assert (spec.kind.name, spec.dialect.name, counted) == DRAFTERS[record.name]


def test_the_table_of_drafters_is_complete():
    assert {record.name for record in WITH_CONFIG if record.role == "drafter"} == set(DRAFTERS)
