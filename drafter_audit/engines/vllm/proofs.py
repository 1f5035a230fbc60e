"""Rules by how they are proved, and the files of vLLM that most of them were read in."""

from __future__ import annotations

from drafter_audit.engines.base import Proof, Rule

DRAFT = "model_executor/models/llama_eagle3.py"
LATENT = "model_executor/models/deepseek_eagle3.py"
V1 = "v1/worker/gpu_model_runner.py"
V2 = "v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
ALGOS = "transformers_utils/configs/speculators/algos.py"
PROPOSER = "v1/spec_decode/llm_base_proposer.py"
_RAN = "run on 0.32.0 with runner V1 and a Llama target"
V2_RAN = "the function was called in 0.32.0, the runner was not run"


def read(name: str, text: str, source: str, since: str | None = None, until: str | None = None) -> Rule:
    return Rule(name, text, source, "read", since, until)


def run(name: str, text: str, source: str, since: str | None = None, until: str | None = None) -> Rule:
    """Read as well, in the release that `source` names; `until` and what older releases do is read, not run."""
    proof: Proof = "run"
    return Rule(name, text, f"{_RAN}; {source}", proof, since, until)


def deduced(name: str, text: str, source: str, since: str | None = None, until: str | None = None) -> Rule:
    proof: Proof = "deduced"
    return Rule(name, text, source, proof, since, until)
