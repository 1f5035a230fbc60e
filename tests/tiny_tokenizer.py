"""A tokenizer of bytes, written as a target ships one: id i is byte i, then <bos>, and the marks of a chat."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

BOS, START, END = 256, 257, 258
VOCABULARY = 259

CHAT = (
    "{{ '<bos>' }}{% for m in messages %}{{ '<start>' + m['role'] + '\n' + m['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start>assistant\n' }}{% endif %}"
)
SWITCHED = CHAT + "{% if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}"
STRICT = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}" + CHAT


def write_tokenizer(folder: Path, template: str | None = CHAT) -> str:
    """Text becomes <bos> and its bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    by_byte = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelled = {bytes([i]): by_byte.pre_tokenize_str(chr(i))[0][0] for i in range(128)}
    rest = [letter for letter in alphabet if letter not in spelled.values()]
    vocab = {spelled[bytes([i])]: i for i in range(128)} | {letter: 128 + i for i, letter in enumerate(rest)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer, backend.decoder = by_byte, decoders.ByteLevel()
    backend.add_special_tokens(["<bos>", "<start>", "<end>"])
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<bos>", eos_token="<end>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return str(folder)
