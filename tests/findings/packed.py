"""Cases of audit/rules/packed.py."""

from __future__ import annotations

from tests.checkpoints import Tensors
from tests.findings.case import Case
from tests.findings.drafters import kimi

_UP = "midlayer.mlp.up_proj"
_GROUPS = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32}}}
_INT4 = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": _GROUPS}

# [18432, 7168] in 4 bits: 8 to an I32, a scale for each 32.
_PACKED: Tensors = {f"{_UP}.weight_packed": ("I32", (18432, 896)), f"{_UP}.weight_scale": ("BF16", (18432, 224))}
_EIGHT: Tensors = {f"{_UP}.weight": ("F8_E4M3", (18432, 7168)), f"{_UP}.weight_scale": ("F32", (18432, 1))}
_NAKED: Tensors = {f"{_UP}.weight_packed": ("I32", (18432, 896))}

CASES = (
    # Eight-bit floats with scales are one to an element.
    Case(
        "PACKED-WEIGHTS",
        fires=kimi(left_out=[f"{_UP}.weight"], added=_PACKED, quantization_config=_INT4),
        silent=kimi(added=_EIGHT),
    ),
    # bitsandbytes quantises plain weights while they are loaded.
    Case(
        "QUANT-FLAG",
        fires=kimi(quantization_config={"quant_method": "fp8"}),
        silent=kimi(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
    ),
    Case(
        "QUANT-FLAG",
        fires=kimi(quantization_config={"quant_method": "fp8"}),
        silent=kimi(left_out=[f"{_UP}.weight"], added=_EIGHT, quantization_config={"quant_method": "fp8"}),
    ),
    Case(
        "PACKED-UNKNOWN",
        fires=kimi(left_out=[f"{_UP}.weight"], added=_NAKED),
        silent=kimi(left_out=[f"{_UP}.weight"], added=_PACKED, quantization_config=_INT4),
    ),
)
