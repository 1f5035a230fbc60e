"""The reference pair is what its README says: it loads by name, it drafts, and each fault shows on a few prompts.

The figures of all prompts are in reference_models/tiny/log/measures.json; here 16 of them are measured anew.
"""

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaForCausalLM

from drafter_audit.audit.lint import lint
from drafter_audit.cli.main import main
from drafter_audit.drafter.open import open_drafter
from drafter_audit.model.load import load_drafter
from drafter_audit.model.target.load import load_target
from reference_models.tiny.training import measure, plot, text
from reference_models.tiny.training.answers import answer
from reference_models.tiny.training.drafter import BOUNDARIES, DRAFT_VOCAB, INNER
from reference_models.tiny.training.faults import declared, faults
from reference_models.tiny.training.network import DraftNetwork
from reference_models.tiny.training.recordings import record, spread

FOLDER = Path(__file__).resolve().parents[1] / "reference_models" / "tiny"
COSTLY = ("embedding output in slot 0", "slots 0 and 1 swapped", "slots 1 and 2 swapped", "slots 0 and 2 swapped")
SHARP = ("all boundaries +1", "all boundaries -1", *COSTLY)
DEAD = ("vocabulary map dropped", "head at random")


@pytest.fixture(scope="module")
def recordings():
    return record(load_target("tiny-target"), FOLDER / "target", spread(text.HELD_OUT, 16))


@pytest.fixture(scope="module")
def right(recordings):
    return measure.measured(declared("tiny"), recordings)


@pytest.fixture(scope="module")
def wrong(recordings):
    cases = (case for case in faults("tiny") if case.name in SHARP + DEAD)
    return {case.name: measure.measured(case, recordings) for case in cases}


def accept_len(found):
    return 1 + measure.pooled(found.accepted)


def test_it_is_small():
    files = [path for part in ("target", "drafter") for path in (FOLDER / part).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 12_000_000


def test_its_readme_names_the_files_as_they_are():
    listed = dict(
        re.findall(r"\| ((?:target|drafter)/\S+) \| [\d,]+ \| `(\w+)` \|", (FOLDER / "README.md").read_text())
    )
    assert {"target/model.safetensors", "drafter/model.safetensors", "target/tokenizer.json"} <= set(listed)
    assert {name: sha256((FOLDER / name).read_bytes()).hexdigest() for name in listed} == listed


def test_both_names_resolve_and_the_drafter_knows_its_target():
    spec = open_drafter("tiny")
    assert (spec.kind.name, spec.dialect.name, spec.target.ref) == ("eagle3", "specforge", "tiny-target")
    assert (spec.target.num_layers, spec.aux_layers.boundaries) == (12, BOUNDARIES)
    assert load_target("tiny-target").num_layers == 12


@pytest.mark.parametrize("name", ["tiny", "tiny-target"])
def test_models_says_where_its_facts_are(name, capsys):
    assert main(["models", name]) == 2
    assert capsys.readouterr().err.endswith(f"drafter-audit params {name}\n")


def test_its_embedding_is_the_targets_row_for_row():
    roles = {tensor.name: tensor for tensor in open_drafter("tiny", target="tiny-target").tensors}
    assert roles["embed_tokens.weight"].role == "frozen"
    assert roles["lm_head.weight"].role == "trainable"


def test_lint_finds_no_error():
    findings = lint("tiny").findings
    assert [finding.code for finding in findings if finding.severity == "error"] == []


def test_no_offset_of_the_vocabulary_map_is_zero():
    offsets = load_file(FOLDER / "drafter" / "model.safetensors")["d2t"]
    assert len(offsets) == DRAFT_VOCAB
    assert int(offsets.min()) > 0


def test_the_chat_template_has_a_switch_for_thinking():
    tokenizer, asked = AutoTokenizer.from_pretrained(FOLDER / "target"), [{"role": "user", "content": "Sort: 3, 1"}]
    settings = {"tokenize": False, "add_generation_prompt": True}
    assert tokenizer.apply_chat_template(asked, **settings).endswith("<|im_start|>assistant\n")
    assert tokenizer.apply_chat_template(asked, **settings, enable_thinking=False).endswith("<think>\n\n</think>\n\n")


def test_the_network_that_was_trained_is_the_one_that_is_loaded():
    stored = {name: each.float() for name, each in load_file(FOLDER / "drafter" / "model.safetensors").items()}
    network = DraftNetwork(stored["embed_tokens.weight"], 3, INNER, DRAFT_VOCAB)
    network.load_state_dict({name: each for name, each in stored.items() if name not in ("d2t", "t2d")})
    generator = torch.Generator().manual_seed(0)
    ids, states = torch.randint(0, 1024, (40,), generator=generator), torch.randn((3, 40, 128), generator=generator)
    with torch.no_grad():
        ours = network(ids[None], states.transpose(0, 1).flatten(1)[None], 5)[:, 0]
    torch.testing.assert_close(load_drafter("tiny").unroll(ids, states, 5), ours, rtol=1e-4, atol=1e-4)


def test_the_prompts_are_those_that_the_tasks_give_and_none_occurs_twice():
    files = text.prompt_files()
    assert {path: path.read_text("utf-8") for path in files} == files
    prompts = [json.loads(row)["messages"][0]["content"] for rows in files.values() for row in rows.splitlines()]
    assert len(set(prompts)) == len(prompts) == 336


def test_no_training_sees_a_held_out_prompt():
    apart = text.held_out()
    assert not apart & {sample.task.prompt for seed in (1, 2, 4) for sample in text.samples(2000, seed, apart)}


class _OfBefore(LlamaForCausalLM):
    """With the cache's name of transformers before 5.24."""

    def forward(self, input_ids, past_key_values=None, use_cache=None, logits_to_keep=0):
        return super().forward(input_ids, cache=past_key_values, use_cache=use_cache, logits_to_keep=logits_to_keep)


@pytest.mark.parametrize("kind", [LlamaForCausalLM, _OfBefore])
def test_the_training_answers_as_the_tool_does(kind):
    prompt = AutoTokenizer.from_pretrained(FOLDER / "target")("user: Sort: 3, 1")["input_ids"]
    model = kind.from_pretrained(FOLDER / "target", dtype=torch.float32)
    (_, ours), _ = answer(model, [prompt, prompt[:-1]], 12, 12)
    assert ours[:12] == load_target("tiny-target").greedy(torch.tensor(prompt), 12, []).tokens.tolist()


def test_a_plot_on_a_logarithmic_scale_shows_the_small_beside_the_large():
    drawn = plot.bars("a", [("small", 0.1, 0.1, 0.1), ("large", 10.0, 10.0, 10.0), ("none", -0.0, 0.0, 0.0)], 0.01)
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="12"', drawn)]
    assert widths == pytest.approx([widths[1] / 3, widths[1], 0.0], abs=0.1)


def test_answers_end(recordings):
    assert sum(each.ended for each in recordings) >= 0.8 * len(recordings)


def test_it_drafts_as_a_real_one_does(right):
    assert 2.0 <= accept_len(right) <= 3.6


@pytest.mark.parametrize("name", SHARP)
def test_a_wrong_tap_worsens_kl(name, right, wrong):
    assert measure.difference(wrong[name].kl, right.kl)["low"] > 0


@pytest.mark.parametrize("name", COSTLY)
def test_a_grave_one_costs_accepted_tokens(name, right, wrong):
    assert measure.difference(wrong[name].accepted, right.accepted)["high"] < 0


@pytest.mark.parametrize("name", DEAD)
def test_without_its_map_or_its_head_it_drafts_nothing(name, wrong):
    assert accept_len(wrong[name]) <= 1.1


def test_each_slot_is_best_where_it_was_trained(recordings):
    lowest = [curve.index(min(curve)) for curve in measure.curves("tiny", recordings)]
    assert tuple(lowest) == BOUNDARIES
