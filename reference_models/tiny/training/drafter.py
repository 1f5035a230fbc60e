"""The drafter: distilled on the target's own answers, several steps unrolled, written as SpecForge does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from reference_models.tiny.training import network
from reference_models.tiny.training.batches import Row, batches
from reference_models.tiny.training.network import DraftNetwork
from reference_models.tiny.training.optimiser import Optimiser
from reference_models.tiny.training.target import HIDDEN, LAYERS, Log

LAYER_IDS = (1, LAYERS // 2 - 1, LAYERS - 4)
"""SpecForge's default: the outputs of these layers."""

BOUNDARIES = tuple(layer + 1 for layer in LAYER_IDS)
DRAFT_VOCAB, INNER = 400, 320
STEPS, BATCH, UNROLLED, DECAY = 400, 16, 5, 0.8


def train(target: LlamaForCausalLM, rows: list[Row], kept: Tensor, log: Log, steps: int = STEPS) -> DraftNetwork:
    """A drafter of `steps` steps over the target's answers, its weights as bfloat16 holds them."""
    torch.manual_seed(13)
    drafter = DraftNetwork(target.model.embed_tokens.weight.detach().clone(), len(BOUNDARIES), INNER, len(kept))
    drafter.lm_head.weight.data.copy_(target.lm_head.weight.data[kept])
    optimiser = Optimiser(drafter.named_parameters(), rate=0.02, table_rate=0.003, steps=steps)
    done = 0
    while done < steps:
        for ids, mask in batches(rows, BATCH, 17 + done):
            if done == steps:
                break
            losses = step_losses(drafter, target, ids, mask, kept)
            optimiser.step(sum((DECAY**step * loss for step, loss in enumerate(losses)), torch.zeros(())))
            done += 1
            if done % 20 == 0:
                log({"step": done, **{f"kl_{step}": loss.item() for step, loss in enumerate(losses)}})
    return rounded(drafter)


def step_losses(
    drafter: DraftNetwork, target: LlamaForCausalLM, ids: Tensor, mask: Tensor, kept: Tensor
) -> list[Tensor]:
    """KL(target ‖ drafter) on the draft vocabulary, the mean over the answers' tokens, of each unrolled step."""
    with torch.no_grad():
        output = target(input_ids=ids, use_cache=False, output_hidden_states=True)
        states = torch.cat([output.hidden_states[boundary] for boundary in BOUNDARIES], dim=-1)
        wanted = output.logits[:, :, kept].log_softmax(-1)
    logits = drafter(ids[:, 1:], states[:, :-1], UNROLLED)
    losses = []
    for step in range(UNROLLED):
        # At position t step k guesses token t + 2 + k, of which the target says at t + 1 + k.
        count = ids.shape[1] - 2 - step
        guessed = logits[step, :, :count].log_softmax(-1)
        each = functional.kl_div(guessed, wanted[:, 1 + step : -1], log_target=True, reduction="none").sum(-1)
        within = mask[:, 2 + step :].float()
        losses.append((each * within).sum() / within.sum())
    return losses


def draft_ids(rows: list[Row]) -> Tensor:
    """The target's ids that its answers use most, ascending [DRAFT_VOCAB]."""
    counts = Counter(token for _, answer in rows for token in answer)
    return torch.tensor(sorted(token for token, _ in counts.most_common(DRAFT_VOCAB)))


@torch.no_grad()
def rounded(drafter: DraftNetwork) -> DraftNetwork:
    """The same drafter with each weight at the nearest number that bfloat16 has."""
    for parameter in drafter.parameters():
        parameter.copy_(parameter.bfloat16().float())
    return drafter.eval()


def save(drafter: DraftNetwork, kept: Tensor, folder: Path, vocab: int) -> None:
    """config.json and model.safetensors in SpecForge's dialect, weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[kept] = True
    weights = {name: each.detach().bfloat16().contiguous() for name, each in drafter.state_dict().items()}
    weights |= {"d2t": kept - torch.arange(len(kept)), "t2d": t2d}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors leaves it to the owner alone, a package is for all
    (folder / "config.json").write_text(json.dumps(_config(vocab, len(kept)), indent=2) + "\n", encoding="utf-8")


def _config(vocab: int, draft_vocab: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "attention_bias": False,
        "bos_token_id": None,
        "draft_vocab_size": draft_vocab,
        "dtype": "bfloat16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(LAYER_IDS), "use_aux_hidden_state": True},
        "eos_token_id": 2,
        "head_dim": network.SIZE,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INNER,
        "max_position_embeddings": 1024,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": network.HEADS,
        "num_hidden_layers": 1,
        "num_key_value_heads": network.KV_HEADS,
        "pad_token_id": 0,
        "rms_norm_eps": network.EPS,
        "rope_parameters": {"rope_theta": network.THETA, "rope_type": "default"},
        "target_hidden_size": HIDDEN,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": vocab,
    }
