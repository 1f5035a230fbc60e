"""What marks a test that runs a real engine: `make test-engines` runs them all."""

from __future__ import annotations

import os

import pytest

REAL_VLLM = [
    pytest.mark.slow,
    pytest.mark.engine,
    pytest.mark.skipif("VLLM_PYTHON" not in os.environ, reason="VLLM_PYTHON names no Python that has vLLM's CPU build"),
]
