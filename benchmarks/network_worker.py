"""One network, kept warm in a process of its own: ours, or a peer's module in the peer's environment.

`python network_worker.py NAME BACKEND FOLDER` loads the checkpoint in FOLDER and says so by a line "ready", with the
release that was loaded. Then it answers each line of its input, a case {"tokens", "steps", "save"}, by a line {"cpu",
"wall"}: the seconds, of all threads and by the clock, of the forward that gives the logits of so many unrolled steps.
Loading is no part of it, nor is a loss, a metric or an argmax that a peer's training computes beyond logits. With
"save" the logits are written there.

It needs torch and safetensors, and of this project nothing unless NAME is `ours`.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Forward = Callable[[torch.Tensor, torch.Tensor, int], Any]
"""ids [T], states [3, T, hidden], steps -> logits, one [T, draft_vocab] for each step."""

THREADS = 2
INPUTS = "inputs.safetensors"


def main(name: str, backend: str, folder: str) -> None:
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    forward, inputs = WORKERS[name](Path(folder), backend), load_file(Path(folder) / INPUTS)
    release = "" if name == "ours" else importlib.metadata.version(name)
    answer({"ready": release, "torch": torch.__version__})
    for line in sys.stdin:
        case = json.loads(line)
        ids, states = inputs["ids"][: case["tokens"]], inputs["states"][:, : case["tokens"]].contiguous()
        cpu, wall = time.process_time(), time.perf_counter()
        logits = forward(ids, states, case["steps"])
        took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        if case["save"]:
            save_file({"logits": torch.stack(list(logits))}, case["save"])
        del logits
        answer(took)


def answer(said: Mapping[str, object]) -> None:
    OUT.write(json.dumps(said) + "\n")
    OUT.flush()


def ours(folder: Path, backend: str) -> Forward:
    from drafter_audit import load_drafter

    return load_drafter(str(folder)).unroll


def specforge(folder: Path, backend: str) -> Forward:
    """LlamaForCausalLMEagle3, as specforge.algorithms.eagle3.model.OnlineEagle3Model.forward calls it."""
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3
    from transformers import DynamicCache, LlamaConfig

    told = json.loads((folder / "config.json").read_text())
    # Built from its config: `from_pretrained` leaves the tables of rope uninitialised.
    model = LlamaForCausalLMEagle3(LlamaConfig(**told, pad_token_id=0), attention_backend=backend).float().eval()
    model.load_state_dict(load_file(folder / "model.safetensors"))

    def forward(ids: torch.Tensor, states: torch.Tensor, steps: int) -> list[torch.Tensor]:
        hidden = model.project_hidden_states(torch.cat(list(states), dim=-1)[None])
        tokens, places = ids[None], torch.arange(len(ids))[None]
        seen = torch.ones(1, len(ids), dtype=torch.long)
        flex = backend == "flex_attention"
        if not flex:
            seen = model.prepare_decoder_attention_mask(seen, hidden, 1, len(ids), 0)
        cache = DynamicCache() if flex else None
        kept: list[list[torch.Tensor]] | None = None if flex else [[], []]
        logits = []
        for step in range(steps):
            embeds = model.embed_input_ids(shifted(tokens, step))
            hidden = model.backbone(embeds, hidden, kept, seen, places, cache)
            logits.append(model.compute_logits(hidden)[0])
        return logits

    return forward


def speculators(folder: Path, backend: str) -> Forward:
    """Eagle3DraftModel's parts, as its forward calls them, without its argmax."""
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig, core
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import DynamicCache, LlamaConfig

    told = json.loads((folder / "config.json").read_text())
    layer = LlamaConfig(**{key: value for key, value in told.items() if key not in ("architectures",)})
    layer._attn_implementation = backend
    verifier = VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"])
    proposal = GreedyTokenProposalConfig(speculative_tokens=1)
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=told["draft_vocab_size"],
        norm_before_residual=False,
        eagle_aux_hidden_state_layer_ids=[2, 4, 5],
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3", proposal_methods=[proposal], default_proposal_method="greedy", verifier=verifier
        ),
    )
    model = Eagle3DraftModel(config).float().eval()
    stored = load_file(folder / "model.safetensors")
    weights = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in stored.items()}
    missing = model.load_state_dict(weights, strict=False)
    if missing.unexpected_keys or not all(name.startswith("verifier") for name in missing.missing_keys):
        raise SystemExit(f"not loaded: {missing}")
    flex = backend == "simple_flex_attention"

    def forward(ids: torch.Tensor, states: torch.Tensor, steps: int) -> list[torch.Tensor]:
        seen = model._build_attn_mask(torch.zeros_like(ids), len(ids), ids.device)
        hidden = model.fc(torch.cat(list(states), dim=-1)[None])
        tokens, places, cache, logits = ids[None], 1 + torch.arange(len(ids))[None], DynamicCache(), []
        for step in range(steps):
            pair = torch.cat((model.embed_tokens(shifted(tokens, step)), hidden), dim=-1)
            turn = model.rotary_emb(pair, places + step)
            hidden = pair
            for each in model.layers:
                hidden = each(hidden, seen, places + step, cache, position_embeddings=turn)
            logits.append(model.lm_head(model.norm(hidden))[0])
            if step + 1 < steps:
                seen = (
                    core.extend_mask_for_draft_tokens(seen)
                    if flex
                    else core.extend_dense_mask_for_draft_tokens(seen, len(ids))
                )
        return logits

    return forward


def shifted(tokens: torch.Tensor, by: int) -> torch.Tensor:
    """[1, T], `by` to the left, zero past the end."""
    return torch.cat((tokens[:, by:], tokens.new_zeros(1, by)), dim=-1)


WORKERS = {"ours": ours, "specforge": specforge, "speculators": speculators}
"""How a forward is made; a peer's name is that of its distribution."""

if __name__ == "__main__":
    # Libraries print as they load; what is answered goes past them.
    OUT, sys.stdout = sys.stdout, sys.stderr
    main(*sys.argv[1:])
