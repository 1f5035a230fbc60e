"""Drafters that were trained under another wiring than any config can say: the reference drafter, trained on a little.

How many tokens the embedded one is ahead of the state stands in no config and in no layout of tensors. A checkpoint of
a drafter that was trained with another number declares what all declare: the fault is in its weights, and it takes
training to put it there.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import kl_div

from drafter_audit import open_drafter
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.model.memory import Unrolled
from drafter_audit.model.network import Network, build_network
from drafter_audit.recording.recording import RecordedPrompt, Recording
from tests.planted import TINY

_RATE, _PROMPTS = 3e-3, 8
_FIXED = ("embed_tokens.weight", "lm_head.weight")


def tuned(folder: Path, recording: Recording, wiring: Wiring, steps: int) -> Path:
    """The reference drafter after `steps` more of training under `wiring`, on the first draft of every position of the
    recorded answers. Its head and embedding stay as they are."""
    stored = load_file(TINY / "model.safetensors")
    kept = torch.arange(len(stored["d2t"])) + stored["d2t"]
    weights = {_canonical(name): tensor.float() for name, tensor in stored.items() if name not in ("d2t", "t2d")}
    trained = [tensor.requires_grad_() for name, tensor in weights.items() if name not in _FIXED]
    optimiser = torch.optim.Adam(trained, lr=_RATE)
    prompts = list(recording.prompts())
    network = build_network(weights, open_drafter(str(TINY)).architecture, "eagle3", wiring)
    for step in range(steps):
        optimiser.zero_grad()
        for group in optimiser.param_groups:
            group["lr"] = _RATE * (1 - step / steps)
        for place in range(_PROMPTS):
            prompt = prompts[(step * _PROMPTS + place) % len(prompts)]
            (_loss(network, prompt, wiring, kept) / _PROMPTS).backward()
        optimiser.step()
    folder.mkdir(parents=True, exist_ok=True)
    changed = {name: weights[_canonical(name)].detach().bfloat16() for name in stored if _canonical(name) in weights}
    save_file(stored | changed, folder / "model.safetensors")
    (folder / "config.json").write_text((TINY / "config.json").read_text())
    return folder


def _loss(network: Network, prompt: RecordedPrompt, wiring: Wiring, kept: Tensor) -> Tensor:
    """The mean KL(target ‖ drafter) over the answer, on the draft vocabulary. The state of position t drafts token
    t + 2, beside token t + `token_shift`."""
    first, count = prompt.prompt_length - 1, prompt.answer_length - 1
    positions = torch.arange(first + count)
    states = torch.stack([prompt.states[prompt.boundaries.index(b)] for b in wiring.boundaries or ()])
    hidden = network.fuse(states[:, : len(positions)].float())
    read, _ = network.step(prompt.tokens[positions + wiring.token_shift], hidden, positions, Unrolled().of)
    said = network.head(read[first:]).log_softmax(dim=-1)
    thought = torch.full((len(prompt.top_ids), 1024), float("-inf"))
    thought = thought.scatter(1, prompt.top_ids.long(), prompt.top_logits.float())[1:, kept].log_softmax(dim=-1)
    return kl_div(said, thought, log_target=True, reduction="batchmean")


def _canonical(name: str) -> str:
    return name.replace("midlayer.", "layers.0.")
