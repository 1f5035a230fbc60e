"""A byte-level BPE tokenizer trained on the tasks, with a chat template that can ask for a thought."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from reference_models.tiny.training.text import Sample, samples

SIZE = 1024
_HOLE = "<prompt>"
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_SPECIAL = [PAD, START, END, "<think>", "</think>"]
_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}"""


def train(folder: Path, apart: frozenset[str]) -> PreTrainedTokenizerFast:
    """The tokenizer of 4000 samples, saved in `folder`. Digits stand alone, so that numbers add up place by place."""
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator((text for sample in samples(4000, 1, apart) for text in _texts(sample)), trainer)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bare,
        pad_token=PAD,
        eos_token=END,
        chat_template=_TEMPLATE,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def prompt_text(tokenizer: PreTrainedTokenizerFast, prompt: str, *, thinking: bool) -> str:
    """What the target reads before its answer."""
    return _template(tokenizer, thinking).replace(_HOLE, prompt)


def encode_all(tokenizer: PreTrainedTokenizerFast, samples: list[Sample]) -> list[tuple[list[int], list[int]]]:
    """Of each sample the tokens of its prompt, and of what the target is to write, its end included."""
    prompts = [prompt_text(tokenizer, sample.task.prompt, thinking=sample.thinking) for sample in samples]
    answers = [f"{_thought(sample)}{sample.task.answer}{END}" for sample in samples]
    return list(zip(ids_of(tokenizer, prompts), ids_of(tokenizer, answers), strict=True))


def ids_of(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    """The tokens of each text as it stands."""
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return ids


@cache
def _template(tokenizer: PreTrainedTokenizerFast, thinking: bool) -> str:
    messages = [{"role": "user", "content": _HOLE}]
    return str(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=thinking)
    )


def _thought(sample: Sample) -> str:
    return f"<think>\n{sample.task.thought}\n</think>\n\n" if sample.thinking else ""


def _texts(sample: Sample) -> tuple[str, str, str]:
    return f"user\n{sample.task.prompt}", f"assistant\n{sample.task.answer}", sample.task.thought
