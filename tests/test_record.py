"""What a recording holds is what the target says and computes, however the run went."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

from drafter_audit.errors import EXIT_NOT_MEASURED, AuditError, InputsError, UsageError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording import size
from drafter_audit.recording.answer import Settings, recorded_answer
from drafter_audit.recording.describe import Origin, Ran, describe
from drafter_audit.recording.make import record
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.recording import RecordedPrompt
from drafter_audit.recording.size import largest
from tests.recorder import LOOKAHEAD, NEW, settings
from tests.tiny_targets import LAYERS, VOCABULARY, llama

EVERY = tuple(range(LAYERS + 1))
PROMPTS = [list(range(9, 26)), [40, 3, 77, 12], [5, 6, 7, 5, 6, 7, 5, 6]]


@pytest.fixture(scope="module")
def ref(tmp_path_factory: pytest.TempPathFactory) -> str:
    return llama(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def target(ref: str) -> TargetModel:
    return load_target(ref)


def prompts(texts: Sequence[Sequence[int]] = tuple(PROMPTS)) -> list[TokenPrompt]:
    return [TokenPrompt(f"p{index}", "made", tuple(ids)) for index, ids in enumerate(texts)]


def recorded(target: TargetModel, folder: Path, asked: Settings) -> list[RecordedPrompt]:
    record(target, prompts(), folder, asked)
    return list(open_recording(folder).prompts())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ends_early(target: TargetModel) -> tuple[TargetModel, int]:
    """The target with an end token that comes within the first prompt's answer, and how long that then is."""
    said = target.greedy(PROMPTS[0], NEW, ()).tokens.tolist()
    end = next(token for index, token in enumerate(said) if 0 < index < NEW - 1 and token not in said[:index])
    return replace(target, end_ids=(end,)), said.index(end) + 1


# --- what it holds


def test_the_text_is_greedy_and_goes_on_beyond_its_end(ref: str, target: TargetModel, tmp_path: Path) -> None:
    ending, length = ends_early(target)
    for asked, made in zip(PROMPTS, recorded(ending, tmp_path, settings()), strict=True):
        said = transformers.LlamaForCausalLM.from_pretrained(ref).generate(
            torch.tensor([asked]),
            attention_mask=torch.ones((1, len(asked))),
            max_new_tokens=NEW + LOOKAHEAD,
            do_sample=False,
            eos_token_id=None,
        )
        assert made.tokens.tolist() == said[0, : len(made.tokens)].tolist()
        assert made.prompt_length == len(asked)
        assert len(made.tokens) == made.prompt_length + made.answer_length + LOOKAHEAD
        ended = made.tokens[made.prompt_length :][: made.answer_length].tolist().index
        assert made.capped or ended(ending.end_ids[0]) == made.answer_length - 1
    first = next(open_recording(tmp_path).prompts())
    assert (first.answer_length, first.capped) == (length, False)


def test_states_and_logits_are_those_of_one_plain_forward(ref: str, target: TargetModel, tmp_path: Path) -> None:
    model = transformers.LlamaForCausalLM.from_pretrained(ref)
    for made in recorded(target, tmp_path, replace(settings(), boundaries=EVERY, top=16)):
        with torch.no_grad():
            plain = model(made.tokens[None], output_hidden_states=True)
            ours = [*made.states[:-1], model.model.norm(made.states[-1])]  # transformers' last is behind the norm
        rows = made.prompt_length + made.answer_length - 1
        assert made.states.shape == (len(EVERY), rows, target.hidden_size)
        for state, expected in zip(ours, plain.hidden_states, strict=True):
            assert float((state - expected[0, :rows]).abs().max()) <= 1e-4
        after = plain.logits[0, made.prompt_length - 1 : -1]
        answer = after[: made.answer_length]
        values, ids = answer.sort(descending=True)
        assert torch.equal(made.top_ids, ids[:, :16])
        assert float((made.top_logits - values[:, :16]).abs().max()) <= 1e-4
        assert float((made.logsumexp - answer.logsumexp(-1)).abs().max()) <= 1e-4
        two = after.topk(2).values
        assert float((made.gaps - (two[:, 0] - two[:, 1])).abs().max()) <= 1e-4


def test_all_logits_are_kept_of_a_small_vocabulary(target: TargetModel, tmp_path: Path) -> None:
    for made in recorded(target, tmp_path, replace(settings(), top=256)):
        assert made.top_ids.shape == (made.answer_length, VOCABULARY)
        assert float((made.top_logits.logsumexp(-1) - made.logsumexp).abs().max()) <= 1e-5
    assert open_recording(tmp_path).manifest.top == VOCABULARY


def test_the_first_prompts_have_every_boundary(target: TargetModel, tmp_path: Path) -> None:
    """All for 20 states: the first prompt has 17 + 6 - 1, so the second has the default ones."""
    first, *others = recorded(target, tmp_path, settings())
    assert first.boundaries == EVERY
    assert [each.boundaries for each in others] == [(0, 2), (0, 2)]


def test_states_are_read_in_the_order_asked_for(target: TargetModel, tmp_path: Path) -> None:
    whole = recorded(target, tmp_path, replace(settings(), boundaries=EVERY))
    for made, some in zip(whole, open_recording(tmp_path).prompts((3, 1)), strict=True):
        assert some.boundaries == (3, 1)
        assert torch.equal(some.states, made.states[[3, 1]])


def test_states_keep_the_dtype_of_the_target(ref: str, tmp_path: Path) -> None:
    half = load_target(ref, dtype="bfloat16")
    made = recorded(half, tmp_path, settings())
    assert {each.states.dtype for each in made} == {torch.bfloat16}
    assert {each.top_logits.dtype for each in made} == {torch.float32}


def test_quantisation_is_named_where_modelopt_alone_tells_it(ref: str, tmp_path: Path) -> None:
    """Beside config.json, not in it: transformers reads the weights as they are."""
    shutil.copytree(ref, tmp_path / "target")
    told = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    (tmp_path / "target" / "hf_quant_config.json").write_text(json.dumps(told))
    packed = load_target(str(tmp_path / "target"))
    ran = Ran({}, packed.dtype, (), 1)
    assert describe(packed, prompts(), settings(), Origin(), ran).quantization == "modelopt FP8"


def test_an_answer_that_loops_is_marked(tmp_path: Path) -> None:
    """A target whose likeliest token is always the same one."""
    stuck = load_target(llama(tmp_path / "stuck"))
    with torch.no_grad():
        stuck.model.lm_head.weight.zero_()  # token 0, whose embedding is all zeros, as padding's is
        stuck.model.model.embed_tokens.weight[0] = stuck.model.model.embed_tokens.weight[1]
    record(stuck, prompts(), tmp_path / "rec", replace(settings(), max_new_tokens=40))
    assert [answer.degenerate for answer in open_recording(tmp_path / "rec").manifest.answers] == [True] * 3


def test_sampled_tokens_follow_the_distribution(target: TargetModel) -> None:
    """Chi-square of 600 first tokens against the softmax that a plain forward gives, rare tokens lumped."""
    temperature, draws = 2.0, 600
    asked = Settings((), max_new_tokens=1, temperature=temperature, lookahead=0)
    made = [recorded_answer(target, prompts()[1], (), asked, seed) for seed in range(draws)]
    seen = torch.bincount(torch.tensor([int(each.tokens[-1]) for each in made]), minlength=VOCABULARY).double()
    logits, _ = target.forward_with_taps(PROMPTS[1], ())
    expected = (logits[-1].double() / temperature).softmax(-1) * draws
    common = expected >= 5
    groups = [(seen[common], expected[common]), (seen[~common].sum()[None], expected[~common].sum()[None])]
    statistic = sum(float(((a - b) ** 2 / b).sum()) for a, b in groups)
    freedom = int(common.sum())
    assert freedom >= 10
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


# --- going on


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(ref: str, tmp_path: Path, temperature: float) -> None:
    command = [sys.executable, "-m", "tests.recorder", ref, json.dumps(PROMPTS), str(tmp_path), str(temperature)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 0, done.stderr
    whole = contents(tmp_path / "whole")
    assert sorted(whole) == [*(f"{index:05}.safetensors" for index in range(len(PROMPTS))), "manifest.json"]
    ended = json.loads(done.stdout)
    assert {tuple(each[:2]) for each in ended.values()} == {(-9, 0)}, "each was killed, and each went on"
    assert {each[2] for each in ended.values()} == {0, 1, 2, 3}, "with any number of prompts done"
    assert all(each[3] for each in ended.values()), "what was there was not written again"
    for name in ended:
        assert contents(tmp_path / name) == whole, name


def test_a_finished_recording_is_not_made_again(target: TargetModel, tmp_path: Path) -> None:
    record(target, prompts(), tmp_path, settings())
    before = contents(tmp_path)
    record(replace(target, model=None_that_runs(target)), prompts(), tmp_path, settings())
    assert contents(tmp_path) == before


def None_that_runs(target: TargetModel) -> object:  # noqa: N802
    """A model that has what a manifest asks, and fails when it is run."""
    return SimpleNamespace(parameters=target.model.parameters, config=target.model.config)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("temperature 0.0", {"temperature": 0.5}),
        ("seed 3", {"seed": 4}),
        ("max_new_tokens 6", {"max_new_tokens": 7}),
        ("lookahead 3", {"lookahead": 4}),
        ("boundaries", {"boundaries": (0, 1)}),
        ("all_tokens 20", {"all_tokens": 0}),
    ],
)
def test_other_settings_are_refused(target: TargetModel, tmp_path: Path, name: str, change: dict[str, object]) -> None:
    record(target, prompts(), tmp_path, settings())
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=f"was made with {name}"):
        record(target, prompts(), tmp_path, replace(settings(), **change))
    assert contents(tmp_path) == before


def test_other_prompts_and_targets_are_refused(target: TargetModel, tmp_path: Path) -> None:
    record(target, prompts(), tmp_path / "rec", settings(), Origin(prompts_sha256="same"))
    with pytest.raises(UsageError, match="was made with tokens_sha256"):
        record(target, prompts([*PROMPTS[:2], [1]]), tmp_path / "rec", settings(), Origin(prompts_sha256="same"))
    with pytest.raises(UsageError, match="was made with prompts_sha256"):
        record(target, prompts(), tmp_path / "rec", settings())
    other = load_target(llama(tmp_path / "other", rms_norm_eps=1e-5))
    with pytest.raises(UsageError, match="was made with target"):
        record(other, prompts(), tmp_path / "rec", settings(), Origin(prompts_sha256="same"))
    with pytest.raises(UsageError, match="was made with config_sha256"):
        record(replace(other, ref=other.ref), prompts(), moved(tmp_path, target, other), settings())


def moved(folder: Path, target: TargetModel, other: TargetModel) -> Path:
    """A recording that says it is of `other`, by its name, and is not."""
    record(target, prompts(), folder / "moved", settings())
    manifest = folder / "moved" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(json.dumps(target.ref), json.dumps(other.ref)))
    return folder / "moved"


def test_a_folder_of_other_files_is_refused(target: TargetModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"it holds 'thesis.tex' and no recording"):
        record(target, prompts(), tmp_path, settings())


# --- room


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_is_full_leaves_no_half_file(target: TargetModel, tmp_path: Path) -> None:
    record(target, prompts(), tmp_path / "whole", settings())
    sizes = {answer.file: answer.nbytes for answer in open_recording(tmp_path / "whole").manifest.answers}
    first, *others = sizes.values()
    assert first > max(others), "the first has every boundary"
    with files_of_at_most(first - 1), pytest.raises(AuditError, match=r"cannot write: .*make room") as failure:
        record(target, prompts(), tmp_path / "rec", settings())
    assert failure.value.exit_code == EXIT_NOT_MEASURED
    assert list(contents(tmp_path / "rec")) == ["manifest.json"]
    record(target, prompts(), tmp_path / "rec", settings())
    assert contents(tmp_path / "rec") == contents(tmp_path / "whole")


def test_too_little_room_is_told_before_any_answer(
    target: TargetModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = largest(target, prompts(), settings())
    monkeypatch.setattr(size.shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    with pytest.raises(AuditError, match=rf"takes up to {needed:,} bytes, and {needed - 1:,} are free"):
        record(replace(target, model=None_that_runs(target)), prompts(), tmp_path, settings())


@pytest.mark.parametrize("all_tokens", [0, 20, 10_000])
def test_the_estimate_is_what_answers_that_hit_the_cap_take(
    target: TargetModel, tmp_path: Path, all_tokens: int
) -> None:
    asked = replace(settings(), all_tokens=all_tokens, boundaries=(0, 1, 2), max_new_tokens=60, top=96)
    record(replace(target, end_ids=()), prompts(), tmp_path, asked)
    taken = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 0.75 * largest(target, prompts(), asked) < taken <= largest(target, prompts(), asked)


# --- what is refused before any answer


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], "no prompts"),
        ([[5], []], "no tokens, .*prompt 'p1'"),
        ([[5], [VOCABULARY]], f"token {VOCABULARY} is outside the target's vocabulary of {VOCABULARY}, .*prompt 'p1'"),
        ([[5] * 120], "120 tokens and .* do not fit the target's 128 positions"),
    ],
)
def test_prompts_that_cannot_be_asked(target: TargetModel, tmp_path: Path, texts: list[list[int]], told: str) -> None:
    with pytest.raises(InputsError, match=told):
        record(target, prompts(texts), tmp_path / "rec", settings())
    assert not (tmp_path / "rec").exists()


@pytest.mark.parametrize(
    "wrong", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}, {"top": 1}, {"seed": -1}]
)
def test_settings_that_mean_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Settings((0,), **wrong)


def test_a_boundary_beyond_the_target(target: TargetModel, tmp_path: Path) -> None:
    with pytest.raises(InputsError, match=r"boundaries \[5\]"):
        record(target, prompts(), tmp_path / "rec", replace(settings(), boundaries=(5,)))
