"""vLLM answers prompts and hands over the states of its own forward: `PYTHON vllm_worker.py JOB`.

Run by the interpreter of an environment that has vLLM and nothing of this project. JOB is a JSON file (`job.py` says
what is in it); the answers go beside it, each whole or not at all:

    engine.json           once the target is loaded: versions, dtype, devices, ranks
    00000.safetensors     an answer: `tokens` [N + A], `top_ids` and `top_logprobs` [N + A, k], likeliest first
    00000.states.safetensors   its states as ExampleHiddenStatesConnector writes them, there before the answer is

Each prompt is asked twice, and no two at a time, so that no answer depends on its neighbours: once for the answer, with
the states of the very steps that decode it, and once more for the tokens beyond it. The second request also makes the
engine write the first one's states, which it does in its next step. The first's file is locked until it is whole.
"""

import ctypes
import fcntl
import importlib.metadata
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, TypeAlias

Untyped: TypeAlias = Any
"""vLLM's objects: this file is checked where there is no vLLM."""

CPU_SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the stand-ins below must be in the process that runs the target
}
CPU_ARGUMENTS = ("--enforce-eager", "--compilation-config", '{"custom_ops": ["all", "-rotary_embedding"]}')
"""vLLM's CPU kernel (0.32, csrc/cpu/pos_encoding.cpp) takes each head of a query [tokens, heads, width] for a token of
its own: latent attention is turned by the positions of other tokens, and memory behind the keys is written. torch
computes it instead."""
LIBRARIES = ("vllm", "vllm-cpu", "torch", "transformers", "safetensors")


def end_with_the_caller() -> None:
    """Ends this process and all that it started once standard input closes: the caller is gone, however it went.

    The caller has the kernel end its child on its death too. That is taken back: this process alone might be ended,
    before it ends the others.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 0)  # PR_SET_PDEATHSIG: no signal

    def wait() -> None:
        os.read(0, 1)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def arguments(job: dict[str, Any], on_cpu: bool, states: Path) -> list[str]:
    """As `vllm serve` takes them: the caller's, and behind them what extraction needs."""
    ids = {"hf_config": {"eagle_aux_hidden_state_layer_ids": job["boundaries"]}}
    method = {"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": ids}
    connector = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(states)},
    }
    return [
        *(CPU_ARGUMENTS if on_cpu else ()),
        *job["arguments"],
        *("--model", job["model"], "--dtype", job["cpu_dtype"] if on_cpu else job["dtype"]),
        *(("--revision", job["revision"], "--code-revision", job["revision"]) if job["revision"] else ()),
        *("--max-model-len", str(job["max_length"]), "--max-logprobs", str(job["top"])),
        *("--max-num-seqs", "1", "--logprobs-mode", "raw_logprobs"),
        *("--skip-tokenizer-init", "--no-enable-prefix-caching"),
        *("--speculative-config", json.dumps(method), "--kv-transfer-config", json.dumps(connector)),
    ]


def load(job: dict[str, Any], states: Path) -> Untyped:
    """The engine, with its target loaded."""
    from vllm.platforms import current_platform

    on_cpu = current_platform.is_cpu()
    if on_cpu:
        for name, value in CPU_SETTINGS.items():
            os.environ.setdefault(name, value)
    from vllm import LLM, EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    llm = LLM.from_engine_args(EngineArgs.from_cli_args(parser.parse_args(arguments(job, on_cpu, states))))
    if on_cpu:
        stand_in_for_cuda()
    return llm


def stand_in_for_cuda() -> None:
    """What the connector asks of CUDA and vLLM's CPU build (0.32) has no stand-in for: pinned memory, and whether an
    event has come."""
    import torch

    plain: Any = torch.empty_like
    torch.empty_like = lambda *given, pin_memory=False, **named: plain(*given, **named)
    events = [vars(module).get("_EventPlaceholder") for module in list(sys.modules.values())]
    for event in (*events, torch.cuda.Event):
        if isinstance(event, type) and not hasattr(event, "query"):
            event.query = lambda _: True  # type: ignore[attr-defined]


def described(llm: Untyped) -> dict[str, Any]:
    """What the engine is, and how it runs the target."""
    from vllm.platforms import current_platform

    config = llm.llm_engine.vllm_config
    return {
        "libraries": {name: version for name in LIBRARIES if (version := installed(name))},
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "devices": [current_platform.device_type],
        "ranks": config.parallel_config.world_size,
    }


def installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def answer(llm: Untyped, prompt: dict[str, Any], job: dict[str, Any], folder: Path) -> None:
    """The two files of one prompt."""
    from vllm import SamplingParams

    def asked(ids: list[int], limit: int, ends: list[int], **more: bool) -> Untyped:
        how = SamplingParams(
            temperature=0.0,
            max_tokens=limit,
            ignore_eos=True,
            stop_token_ids=ends,
            logprobs=job["top"],
            detokenize=False,
            extra_args={"kv_transfer_params": more},
        )
        return llm.generate([{"prompt_token_ids": ids}], how, use_tqdm=False)[0]

    first = asked(prompt["ids"], job["max_new_tokens"], job["end_ids"], include_output_tokens=True)
    said = first.outputs[0]
    beyond = asked([*prompt["ids"], *said.token_ids], max(1, job["lookahead"]), [])
    further = beyond.outputs[0]
    tokens = [*said.token_ids, *further.token_ids[: job["lookahead"]]]
    thoughts = [*said.logprobs, *further.logprobs[: job["lookahead"]]]
    name = f"{prompt['index']:05}"
    written(first).replace(folder / f"{name}.states.safetensors")
    keep(tokens, [likeliest(each, job["top"]) for each in thoughts], folder / f"{name}.safetensors")


def likeliest(thought: dict[int, Any], top: int) -> list[tuple[int, float]]:
    """Ids and log-probabilities, in falling order; the token that was said comes first among its equals."""
    return sorted(((token, each.logprob) for token, each in thought.items()), key=lambda pair: -pair[1])[:top]


def written(request: Untyped) -> Path:
    """The request's file of states, once the engine's writer has let go of the lock beside it."""
    path = Path(request.kv_transfer_params["hidden_states_path"])
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    lock.unlink()
    if not path.exists():
        raise OSError(f"vLLM wrote no states to {path}: the disk is full, or it is another node's")
    return path


def keep(tokens: list[int], thoughts: list[list[tuple[int, float]]], path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tensors = {
        "tokens": torch.tensor(tokens, dtype=torch.int64),
        "top_ids": torch.tensor([[token for token, _ in each] for each in thoughts], dtype=torch.int32),
        "top_logprobs": torch.tensor([[value for _, value in each] for each in thoughts], dtype=torch.float32),
    }
    part = path.with_suffix(".part")
    save_file(tensors, part)
    part.replace(path)


def clear(states: Path) -> None:
    """Takes away what requests for the tokens beyond an answer left: they are of no use, and as large as the others.
    One whose writer is not done is left to the next call."""
    for lock in states.glob("*.lock"):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
        lock.with_suffix("").unlink(missing_ok=True)
        lock.unlink()


def main(path: Path) -> None:
    del sys.path[0]  # this file's folder, whose other files are no modules of this environment
    end_with_the_caller()
    job, folder = json.loads(path.read_text(encoding="utf-8")), path.parent
    states = folder / "states"
    states.mkdir()
    llm = load(job, states)
    part = folder / "engine.part"
    part.write_text(json.dumps(described(llm)), encoding="utf-8")
    part.replace(folder / "engine.json")
    for prompt in job["prompts"]:
        answer(llm, prompt, job, folder)
        clear(states)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
