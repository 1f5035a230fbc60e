"""The two questions this tool was built for, answered on what it bundles.

"How does our drafter compare with AQ-MedAI/Kimi-K2-Instruct-eagle3? That one says 1B and ours is 2B-ish."

Writes a checkpoint at real size to a temporary folder (its weights are a hole in a sparse file, so it takes no disk),
with the facts a team would state in drafter-audit.toml, and compares it with the bundled facts of the published one.

"Why does it accept so little?"

Lets the bundled target answer a few prompts, and checks the bundled drafter on that recording: as it is, and with the
ids of two layers exchanged for their neighbours, as a slip in a config does.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import drafter_audit
from drafter_audit.cli.main import main
from drafter_audit.facts import pair

HIDDEN, INNER, HEADS_TIMES_DIM, VOCAB, DRAFT_VOCAB = 7168, 18432, 8192, 163840, 32000

TENSORS: dict[str, tuple[str, tuple[int, ...]]] = {
    "d2t": ("I64", (DRAFT_VOCAB,)),
    "embed_tokens.weight": ("BF16", (VOCAB, HIDDEN)),
    "fc.weight": ("BF16", (HIDDEN, 3 * HIDDEN)),
    "lm_head.weight": ("BF16", (DRAFT_VOCAB, HIDDEN)),
    "midlayer.hidden_norm.weight": ("BF16", (HIDDEN,)),
    "midlayer.input_layernorm.weight": ("BF16", (HIDDEN,)),
    "midlayer.mlp.down_proj.weight": ("BF16", (HIDDEN, INNER)),
    "midlayer.mlp.gate_proj.weight": ("BF16", (INNER, HIDDEN)),
    "midlayer.mlp.up_proj.weight": ("BF16", (INNER, HIDDEN)),
    "midlayer.post_attention_layernorm.weight": ("BF16", (HIDDEN,)),
    "midlayer.self_attn.k_proj.weight": ("BF16", (HEADS_TIMES_DIM, 2 * HIDDEN)),
    "midlayer.self_attn.o_proj.weight": ("BF16", (HIDDEN, HEADS_TIMES_DIM)),
    "midlayer.self_attn.q_proj.weight": ("BF16", (HEADS_TIMES_DIM, 2 * HIDDEN)),
    "midlayer.self_attn.v_proj.weight": ("BF16", (HEADS_TIMES_DIM, 2 * HIDDEN)),
    "norm.weight": ("BF16", (HIDDEN,)),
    "t2d": ("BOOL", (VOCAB,)),
    "verifier_lm_head.weight": ("BF16", (DRAFT_VOCAB, HIDDEN)),
}

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": DRAFT_VOCAB,
    "dtype": "bfloat16",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
    "head_dim": 128,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 131072,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 1,
    "num_key_value_heads": 64,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "vocab_size": VOCAB,
}

FACTS = """\
[[drafter]]
target = "moonshotai/Kimi-K2.5"
  [drafter.training]
  dataset = "synthetic, 9 categories"
  samples = 37000
  [[drafter.accept_len]]
  value = 2.1
  steps = 2
  topk = 1
  num_draft_tokens = 3
  engine = "sglang"
  [drafter.throughput]
  tokens_per_s = 94.0
  plain_tokens_per_s = 88.8
"""

BYTES = {"BF16": 2, "I64": 8, "BOOL": 1}


def write_checkpoint(folder: Path) -> None:
    """A checkpoint folder: config.json, drafter-audit.toml and a sparse model.safetensors of 5.2 GB."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    (folder / "drafter-audit.toml").write_text(FACTS)
    header, end = {}, 0
    for name, (dtype, shape) in TENSORS.items():
        start, end = end, end + math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def compare() -> int:
    """Compare the bundled facts with the checkpoint, as a user would from the folder above it."""
    write_checkpoint(Path("ours"))
    return shown("compare", "aq-medai-kimi-k2-instruct-eagle3", "./ours")


PROMPTS, ANSWER_TOKENS = 24, 48
"""Answers are cut off: each of their positions is judged by itself, so that costs nothing here."""

SLIPPED = [1, 4, 7]
"""Where training had the outputs of layers 1, 5 and 8."""


def check() -> int:
    """Check the bundled drafter, whole and with a slip in its config. 0 where both are told apart."""
    lines = Path(drafter_audit.__file__).with_name("prompts").joinpath("pack.jsonl").read_text().splitlines()
    Path("prompts.jsonl").write_text("".join(f"{line}\n" for line in lines[:: len(lines) // PROMPTS]))
    write_slipped(Path("slipped"))
    record = ("--target", "tiny-target", "--prompts", "prompts.jsonl", "--max-new-tokens", str(ANSWER_TOKENS))
    if code := shown("record", *record, "--boundaries", "all", "-o", "rec"):
        return code
    whole = shown("wiring", "tiny", "--recording", "rec", blocks=2)
    slipped = shown("wiring", "./slipped", "--recording", "rec", blocks=4)
    return 0 if (whole, slipped) == (0, 1) else 1


def write_slipped(folder: Path) -> None:
    """The bundled drafter with other layer ids."""
    shutil.copytree(pair.folder_of("tiny") or "", folder)
    config = json.loads((folder / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = SLIPPED
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def shown(*command: str, blocks: int | None = None) -> int:
    """One command as a user would give it; of a long answer the first blocks."""
    print("$ drafter-audit", *command, end="\n\n", flush=True)
    if blocks is None:
        code = main(command)
    else:
        code = main((*command, "-o", "answer.txt"))
        print("\n\n".join(Path("answer.txt").read_text(encoding="utf-8").split("\n\n")[:blocks]))
    print(flush=True)
    return code


if __name__ == "__main__":
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        code = compare() or check()
        os.chdir(start)
    sys.exit(code)
