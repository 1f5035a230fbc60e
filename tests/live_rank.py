"""One rank that decodes live, as `torch.distributed.run` starts it: `python -m tests.live_rank FOLDER...`.

In each FOLDER lie `target` and `drafter`. Rank 0 alone writes: tokens and rounds, greedy, drawn and in trees.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from drafter_audit.decode.live import decode_live
from drafter_audit.decode.settings import Settings
from drafter_audit.errors import EXIT_OK
from drafter_audit.model.target.cache import keeps_each_token
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.ranks import run_ranks
from tests.live_pairs import NARROW, narrow_prompts, random_drafter

BOUNDARIES = (3, 1, 4)
RESULT = "from-ranks.json"


def decoded(folder: Path, target: TargetModel) -> list[list[list[int]]]:
    """Tokens and rounds of each prompt, at temperature 0 and 2, and in trees where the target reads them."""
    drafter, found = random_drafter(folder / "drafter", BOUNDARIES, NARROW), []
    asked = [Settings(3, max_new_tokens=10, temperature=temperature, plain=False) for temperature in (0.0, 2.0)]
    if keeps_each_token(target.new_cache()):
        asked.append(Settings(3, max_new_tokens=10, plain=False, topk=3, num_draft_tokens=9))
    for each in asked:
        run = decode_live(drafter, target, narrow_prompts(), each)
        found += [list(map(list, run.tokens)), list(map(list, run.rounds))]
    return found


def main() -> int:
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        target = load_target(str(Path(name, "target")), ranks_timeout_s=60.0)
        place = Path(name) if target.ranks.first else Path(name, "other")  # each its own drafter's files
        found = decoded(place, target)
        if target.ranks.first:
            Path(name, RESULT).write_text(json.dumps(found))
    return EXIT_OK


if __name__ == "__main__":
    run_ranks(main)
