"""Writes drafter.gguf and expected.json with llama.cpp's own package: pip install gguf, then run this file."""

import json
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter, quants

HERE = Path(__file__).parent
H, INNER, VOCAB, DRAFT, ROWS, KV = 32, 64, 96, 48, 64, 32
SHAPES = {
    "fc.weight": (H, 3 * H),
    "blk.0.attn_norm.weight": (H,),
    "blk.0.attn_norm_2.weight": (H,),
    "blk.0.attn_q.weight": (ROWS, 2 * H),
    "blk.0.attn_k.weight": (KV, 2 * H),
    "blk.0.attn_v.weight": (KV, 2 * H),
    "blk.0.attn_output.weight": (H, ROWS),
    "blk.0.ffn_norm.weight": (H,),
    "blk.0.ffn_gate.weight": (INNER, H),
    "blk.0.ffn_up.weight": (INNER, H),
    "blk.0.ffn_down.weight": (H, INNER),
    "output_norm.weight": (H,),
    "output.weight": (DRAFT, H),
}


def main() -> None:
    writer = GGUFWriter(HERE / "drafter.gguf", "eagle3")
    writer.add_embedding_length(H)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_context_length(2048)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_array("eagle3.target_layers", [2, 4, 5])
    writer.add_uint32("eagle3.target_hidden_size", H)
    writer.add_bool("eagle3.norm_before_residual", True)
    writer.add_token_list([f"token {i}" for i in range(VOCAB)])
    for name, shape in SHAPES.items():
        values = np.zeros(shape, np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("d2t", np.arange(DRAFT, dtype=np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = {
        tensor.name: {
            "dtype": tensor.tensor_type.name,
            "shape": [int(size) for size in reversed(tensor.shape)],
            "start": int(tensor.data_offset),
            "nbytes": int(tensor.n_bytes),
        }
        for tensor in GGUFReader(HERE / "drafter.gguf").tensors
    }
    types = {str(int(kind)): [kind.name, *sizes] for kind, sizes in GGML_QUANT_SIZES.items()}
    (HERE / "expected.json").write_text(json.dumps({"tensors": tensors, "types": types}, indent=1) + "\n")


main()
