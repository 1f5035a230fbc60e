"""The bundled records: each file against the schema, and their values against what was published."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from drafter_audit.errors import AuditError, BadReferenceError, CheckpointError, NotFoundError
from drafter_audit.facts import registry, schema
from drafter_audit.sources.bundled import bundled_names, open_bundled

FOLDER = Path(__file__).parent.parent / "reference_models"
FILES = sorted(FOLDER.glob("*.toml"))
AQ_K2 = "AQ-MedAI/Kimi-K2-Instruct-eagle3"

GOOD = """
schema_version = 1
role = "drafter"
repo = "someone/drafter"
[target]
repo = "someone/target"
source = "https://example.org/card"
confidence = "high"
[config_origin]
source = "https://example.org/config.json"
confidence = "low"
complete = true
null_keys = ["rope_scaling", "text_config.pad"]
[config]
hidden_size = 64
[[accept_len]]
benchmark = "GSM8K"
value = 2
steps = 3
publisher = "author"
source = "https://example.org/card"
confidence = "medium"
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_follows_the_schema(path):
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    assert schema.problems(raw) == []
    assert path.stem == raw["repo"].lower().replace("/", "-")
    assert isinstance(raw.get("training", {}).get("samples", 0), int)
    for fact in [*(raw[group] for group in schema.GROUPS if group in raw), *raw.get("accept_len", [])]:
        assert re.match(r"https://[\w.-]+/", fact["source"])
        assert fact["confidence"] in {"high", "medium", "low"}
    for row in raw.get("accept_len", []):
        assert 1 <= row["value"] <= 1 + row.get("steps", 20)


def test_there_are_enough_of_them():
    roles = [registry.load(name).role for name in registry.names()]
    assert roles.count("drafter") >= 60
    assert roles.count("target") >= 60


def test_aq_medai_kimi_k2_is_as_published():
    record = registry.load("aq-medai-kimi-k2-instruct-eagle3")
    assert record.config == {
        "architectures": ["LlamaForCausalLMEagle3"],
        "attention_bias": False,
        "bos_token_id": 163584,
        "eos_token_id": 163585,
        "draft_vocab_size": 32000,
        "dtype": "bfloat16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "max_position_embeddings": 131072,
        "max_window_layers": 48,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 64,
        "num_hidden_layers": 1,
        "num_key_value_heads": 64,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "transformers_version": "4.57.0",
        "vocab_size": 163840,
    }
    facts = record.facts()
    assert facts.target == "moonshotai/Kimi-K2-Instruct"
    assert facts.training is not None
    assert (facts.training.dataset, facts.training.samples) == ("Open-PerfectBlend", 1_400_000)
    assert record.license == "mit"
    assert record.left_out == ("embed_tokens",)
    assert record.provenance["stored_tensors"].confidence == "medium"


def test_aq_medai_kimi_k2_accept_lengths_are_as_published():
    rows = registry.load("aq-medai-kimi-k2-instruct-eagle3").accept_len
    author = [(row.benchmark, row.value) for row in rows if row.publisher == "author"]
    assert author == [("HumanEval", 3.372), ("GSM8K", 3.165), ("Math500", 3.49)]
    bundle = [row for row in rows if row.publisher == "SpecBundle"]
    settings = {(3, 1, 4), (5, 1, 6), (5, 3, 6), (7, 1, 8), (7, 4, 8)}
    benchmarks = {"gsm8k", "math500", "mtbench", "humaneval", "livecodebench", "financeqa", "gpqa"}
    assert len(bundle) == 35
    seen = {(row.benchmark, row.steps, row.topk, row.num_draft_tokens) for row in bundle}
    assert seen == {(benchmark, *setting) for benchmark in benchmarks for setting in settings}
    chain = {row.benchmark: row for row in bundle if row.steps == 3}
    assert (chain["mtbench"].value, chain["mtbench"].tokens_per_s) == (2.3897, 533.82)
    assert (chain["mtbench"].plain_tokens_per_s, chain["mtbench"].batch_size) == (430.92, 8)
    assert chain["math500"].value == pytest.approx(3.4681)


def test_aq_medai_kimi_k25_is_as_published():
    record = registry.load("aq-medai-kimi-k25-eagle3")
    assert record.target == "moonshotai/Kimi-K2.5"
    assert record.training is not None
    assert record.training.samples == 2_000_000
    assert record.config["max_position_embeddings"] == 262144
    assert record.config["hidden_size"] == 7168
    assert record.config["sliding_window"] is None


def test_targets_are_as_published():
    k2 = registry.load("moonshotai-kimi-k2-instruct").config
    k25 = registry.load("moonshotai-kimi-k2.5").config
    for text in (k2, k25["text_config"]):
        assert (text["num_hidden_layers"], text["hidden_size"], text["vocab_size"]) == (61, 7168, 163840)
        assert (text["intermediate_size"], text["num_attention_heads"]) == (18432, 64)
    assert k2["quantization_config"]["weight_block_size"] == [128, 128]
    assert k2["rope_scaling"]["factor"] == 32.0
    quantization = k25["text_config"]["quantization_config"]
    assert quantization["quant_method"] == "compressed-tensors"
    assert quantization["kv_cache_scheme"] is None
    weights = quantization["config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["group_size"], weights["actorder"]) == (4, 32, None)
    assert k25["text_config"]["rope_scaling"]["factor"] == 64.0
    assert k25["text_config"]["pruned_heads"] == {}


@pytest.mark.parametrize("repo", [AQ_K2, AQ_K2.lower(), AQ_K2.upper()])
def test_find_does_not_mind_case(repo):
    record = registry.find(repo)
    assert record is not None
    assert record.repo == AQ_K2


@pytest.mark.parametrize(
    "repo",
    ["nobody/nothing", "", "aq-medai-kimi-k2-instruct-eagle3", "aq/medai-kimi-k2-instruct-eagle3", "../README", "./x"],
)
def test_find_knows_only_what_it_has(repo):
    assert registry.find(repo) is None


def test_drafters_of_a_target():
    assert [record.repo for record in registry.drafters_of("MoonshotAI/kimi-k2.5")] == [
        "AQ-MedAI/Kimi-K25-eagle3",
        "k-l-lambda/Kimi-K2.5-Eagle3",
        "lightseekorg/kimi-k2.5-eagle3",
        "lightseekorg/kimi-k2.5-eagle3-mla",
        "nvidia/Kimi-K2.5-Thinking-Eagle3",
        "z-lab/Kimi-K2.5-DFlash",
        "Zhangdanyang/Kimi_K25_eagle3_v2_phase1_Lumen",
    ]
    assert registry.drafters_of("moonshotai/Kimi-K2") == ()


def test_looking_for_drafters_reads_few_of_the_records():
    code = """
import time
from drafter_audit.facts import registry
registry.find("AQ-MedAI/Kimi-K2-Instruct-eagle3")
start = time.perf_counter()
assert len(registry.drafters_of("moonshotai/Kimi-K2.5")) == 7
print(time.perf_counter() - start, registry._load.cache_info().currsize)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, parsed = run.stdout.split()
    assert float(seconds) < 0.15
    # Those, the first one, and the records that name the target elsewhere: itself, and drafters made from it.
    assert int(parsed) <= 12


def test_load_names_the_nearest_record():
    with pytest.raises(BadReferenceError, match=r"moonshotai-kimi-k2\.5"):
        registry.load("moonshotai-kimi-k25")


def test_load_names_no_record_as_near_where_none_is():
    with pytest.raises(BadReferenceError, match=r"called 'nosuch', reference_models, list them: drafter-audit models$"):
        registry.load("nosuch")


def test_parse_rebuilds_nulls():
    record = registry.parse(GOOD, "someone-drafter")
    assert record.config == {"hidden_size": 64, "rope_scaling": None, "text_config": {"pad": None}}
    assert record.accept_len[0].value == 2
    assert record.facts().target_source == "bundled record, https://example.org/card"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version"),
        ('role = "drafter"', 'role = "helper"', "role"),
        ('role = "drafter"', "", "lacks 'role'"),
        ('repo = "someone/drafter"', 'repo = "drafter"', "not org/name"),
        ("[target]", "[targets]", "unknown key 'targets'"),
        ('confidence = "low"', 'confidence = "certain"', "confidence"),
        ('source = "https://example.org/config.json"', 'source = "the card"', "not a URL"),
        ("complete = true", "complete = 1", "not of type bool"),
        ("complete = true", 'complete = true\norigin = "guess"', "origin is 'guess'"),
        ('confidence = "low"', 'confidence = "high"\norigin = "trainer_repo"', "more than a trainer's own config"),
        ("[config]\nhidden_size = 64", "", "go together"),
        ('null_keys = ["rope_scaling", "text_config.pad"]', "null_keys = [1]", "not of type list"),
        ('"rope_scaling"', '"hidden_size"', "another value"),
        ('"rope_scaling"', '"hidden_size.x"', "another value"),
        ("value = 2", "value = 4.5", "from 1 to 4"),
        ("value = 2", "value = 0.9", "from 1 to 4"),
        ("value = 2", "value = true", "not of type float"),
        ("steps = 3", "steps = 3.0", "not of type int"),
        ("[[accept_len]]", "[accept_len]", "array of tables"),
        ("[config]", "[config", "not TOML"),
    ],
)
def test_parse_refuses_what_breaks_the_schema(old, new, message):
    assert old in GOOD
    with pytest.raises(AuditError, match=re.escape(message)) as caught:
        registry.parse(GOOD.replace(old, new, 1), "someone-drafter")
    assert caught.value.where == "reference_models/someone-drafter.toml"


def test_a_bundled_source_holds_the_config_alone():
    source = open_bundled("moonshotai-kimi-k2.5")
    size = source.files()["config.json"]
    whole = source.read("config.json", limit=1 << 20)
    assert (source.kind, source.name, source.revision) == ("bundled", "moonshotai/Kimi-K2.5", None)
    assert (source.ref, source.weights_file) == ("moonshotai-kimi-k2.5", None)
    assert list(source.files()) == ["config.json"]
    assert len(whole) == size
    assert json.loads(whole)["text_config"]["hidden_size"] == 7168
    assert source.read_range("config.json", 1, 9) == whole[1:9]
    assert source.read_range("config.json", len(whole) - 2, len(whole) + 9) == whole[-2:]


def test_a_bundled_source_refuses_what_it_has_not():
    source = open_bundled("moonshotai-kimi-k2.5")
    with pytest.raises(NotFoundError, match=r"moonshotai/Kimi-K2\.5"):
        source.read("model.safetensors", limit=1 << 20)
    with pytest.raises(NotFoundError):
        source.read_range("model.safetensors", 0, 8)
    with pytest.raises(CheckpointError):
        source.read("config.json", limit=10)
    with pytest.raises(BadReferenceError):
        open_bundled("nobody")
    assert bundled_names() == tuple(sorted(path.stem for path in FILES))


def test_a_record_without_a_config_is_no_source():
    with pytest.raises(CheckpointError, match="the record holds license, target, 5 accept_len rows") as caught:
        open_bundled("z-lab-kimi-k2.5-dflash")
    assert caught.value.exit_code == 3
    assert "z-lab/Kimi-K2.5-DFlash" in caught.value.mend


def test_what_modelopt_keeps_beside_the_config_is_a_file_of_its_own():
    source = open_bundled("nvidia-deepseek-v3.1-nvfp4")
    whole = json.loads(source.read("hf_quant_config.json", limit=1 << 20))
    assert whole == {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}}


def test_bundled_names_are_compared_without_the_client_of_the_hub():
    code = """
import sys
from drafter_audit.cli.main import main
names = ["yuhuili-eagle3-llama3.1-instruct-8b", "k-l-lambda-kimi-k2.5-eagle3", "hyzeai-hyze1b"]
assert main(["compare", *names, "--target", "moonshotai/Kimi-K2.5"]) == 0
heavy = {"huggingface_hub", "httpx2", "numpy", "torch", "tomlkit"} & set(sys.modules)
assert not heavy, heavy
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stderr == ""


def test_facts_load_nothing_heavy():
    code = """
import sys
from drafter_audit.facts import registry
from drafter_audit.sources import bundled
registry.find("AQ-MedAI/Kimi-K2-Instruct-eagle3")
heavy = {"huggingface_hub", "numpy", "yaml", "requests", "torch"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
