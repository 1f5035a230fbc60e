"""What a checkpoint's config and tensors show of its kind: one predicate for each signature of kinds.py's table."""

from __future__ import annotations

import re
from collections.abc import Callable

from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.names import layer_index


def _speculators(*algorithms: str) -> Callable[[Clues], bool]:
    return lambda clues: clues.config.raw.get("speculators_model_type") in algorithms


# Prediction layers beside or without a target's own: Qwen3-Next's and DeepSeek-V4's mtp.*, MiMo's and speculators'
# mtp_layers.*, LongCat's mtp.layers.*; in DeepSeek-V3 and GLM the layer that holds eh_proj.
_HEAD_LAYER = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:_\w+)?\.")
_DRAFT_CLASSES = ("Eagle", "DFlash", "DSpark", "MTP", "NextN", "Medusa", "Domino", "LiLiCorr", "XPress")


def _has_plain_layers(clues: Clues) -> bool:
    """Whether a decoder layer is stored that belongs to no prediction head."""
    heads = {layer_index(name) for name in clues.tensors if name.endswith((".eh_proj.weight", ".enorm.weight"))}
    return any(
        (index := layer_index(name)) is not None and index not in heads and not _HEAD_LAYER.search(name)
        for name in clues.tensors
    )


def is_target_with_head(clues: Clues) -> bool:
    """A target whose files carry MTP, DSpark or Medusa layers beside its own."""
    config = clues.config
    if clues.has_weights:
        head = clues.stored("eh_proj.", "medusa_heads.", "hydra_head.") or any(map(_HEAD_LAYER.search, clues.tensors))
        return head and is_lm(clues) and _has_plain_layers(clues) and not is_any_eagle3(clues)
    keys = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "dspark_block_size", "dspark_target_layer_ids")
    return config.has(*keys) and is_lm(clues) and not config.architecture_contains(*_DRAFT_CLASSES)


def is_dspark(clues: Clues) -> bool:
    keys = ("dspark_target_layer_ids", "dspark_block_size", "markov_rank", "markov_head_type")
    dflash = clues.config.section("dflash_config")
    return (
        _speculators("dspark")(clues)
        or clues.config.has(*keys)
        or any(key in dflash for key in keys)
        or clues.config.architecture_contains("DSpark")
        or clues.stored("markov_w1", "markov_w2")
    )


def is_dflash(clues: Clues) -> bool:
    config = clues.config
    blocks = config.has("block_size") and config.has("num_target_layers", "target_layer_ids")
    named = config.architecture_contains("DFlash", "DFlare", "JetSpec", "Domino", "LiLiCorr", "XPress")
    muse = config.text("model_type") == "muse_glimmer_assistant"
    # fc over target states and a norm behind it, both outside the layers: no EAGLE drafter has hidden_norm there
    fused = {"fc.weight", "hidden_norm.weight"} <= clues.tensors.keys() and not _reads_two_inputs(clues)
    keys = bool(config.section("dflash_config")) or blocks or muse
    return _speculators("dflash", "dflash2")(clues) or keys or named or fused


# As FasterDecoding saves its heads alone (0.0.linear.weight, 0.1.weight), and as vLLM's converted ones are named.
_MEDUSA = re.compile(r"^(?:\d+\.\d+\.(?:linear\.)?|blocks\.\d+\.layers\.\d+\.|lm_heads\.\d+\.|medusa_heads?\.)")


def is_medusa(clues: Clues) -> bool:
    """Medusa heads on their own. An EAGLE-3 layer with such heads beside it (ModelOpt's EagleMedusa) stays EAGLE-3."""
    config = clues.config
    named = config.has("medusa_num_heads", "medusa_num_layers") or config.text("model_type") == "medusa"
    declared = named or config.architecture_contains("Medusa")
    if clues.has_weights:
        stored = any(map(_MEDUSA.search, clues.tensors)) or clues.stored("medusa_layers.")
        return (declared or stored) and not is_any_eagle3(clues) and not is_whole_model(clues)
    return declared and not declares_eagle3(clues)


def is_whole_model(clues: Clues) -> bool:
    return "embed_tokens.weight" in clues.tensors and len(clues.layers) > 1


def is_hydra(clues: Clues) -> bool:
    declared = clues.config.has("hydra_num_heads", "hydra_num_layers", "hydra_head_arch")
    return (declared or clues.stored("hydra_mlp.", "hydra_lm_head")) and not is_whole_model(clues)


def is_mlp_speculator(clues: Clues) -> bool:
    return clues.config.text("model_type") == "mlp_speculator" or clues.config.architecture_contains("MLPSpeculator")


def is_mtp(clues: Clues) -> bool:
    """A multi-token-prediction head on its own, with the one layer or the few that it predicts by."""
    config = clues.config
    assistant = config.text("model_type") in ("gemma4_assistant", "gemma4_unified_assistant")
    declared = _speculators("mtp")(clues) or assistant or config.architecture_contains("MTP", "NextN")
    if not clues.has_weights:
        return declared
    head = clues.stored("eh_proj.", "pre_fc_norm") or any(map(_HEAD_LAYER.search, clues.tensors))
    alone = head and not _has_plain_layers(clues)
    return (declared or alone) and not is_any_eagle3(clues)


def is_pard(clues: Clues) -> bool:
    return clues.config.has("pard_token") and is_lm(clues)


def is_peagle(clues: Clues) -> bool:
    config = clues.config
    return (
        _speculators("peagle")(clues)
        or "mask_hidden" in clues.tensors
        or config.boolean("parallel_drafting") is True
        or config.architecture_contains("PEagle")
    )


def _reads_two_inputs(clues: Clues) -> bool:
    """Layer 0's attention reads [embedding ; fused state]: the mark of every EAGLE-3 layer."""
    if "layers.0.hidden_norm.weight" in clues.tensors:
        return True
    hidden = clues.dim("layers.0.self_attn.o_proj.weight", 0)
    return hidden is not None and clues.first_layer_input == 2 * hidden


def declares_eagle3(clues: Clues) -> bool:
    """Whether config.json alone speaks of an EAGLE-3 drafter."""
    config = clues.config
    return (
        _speculators("eagle3")(clues)
        or config.architecture_contains("Eagle3")
        or bool(config.eagle.raw)
        or config.has("draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "eagle_layer_ids")
    )


def is_any_eagle3(clues: Clues) -> bool:
    if not clues.has_weights:
        return declares_eagle3(clues)
    without_aux = clues.config.eagle.boolean("use_aux_hidden_state") is False
    unfused = without_aux and "fc.weight" not in clues.tensors and len(clues.layers) == 1
    # TensorRT-LLM's eh_proj_before_attn: eh_proj joins embedding and fused state before a layer of usual width
    joined = {"fc.weight", "eh_proj.weight"} <= clues.tensors.keys()
    return _reads_two_inputs(clues) or unfused or joined


def is_mla(clues: Clues) -> bool:
    if clues.has_weights:
        return clues.stored("self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj")
    return clues.config.has("kv_lora_rank")


def is_eagle3_noaux(clues: Clues) -> bool:
    if not is_any_eagle3(clues):
        return False
    declared = clues.config.eagle.boolean("use_aux_hidden_state")
    unfused = clues.has_weights and "fc.weight" not in clues.tensors
    return declared is False or (declared is None and unfused and not _names_layers(clues))


def _names_layers(clues: Clues) -> bool:
    """Whether config.json lists the layers to read: fc is then lost, not left out."""
    keys = ("eagle_aux_hidden_state_layer_ids", "eagle_layer_ids")
    return clues.config.has(*keys) or clues.config.eagle.has(*keys)


def is_eagle1(clues: Clues) -> bool:
    config = clues.config
    if clues.has_weights:
        rows, columns = clues.dim("fc.weight", 0), clues.dim("fc.weight", 1)
        return rows is not None and columns == 2 * rows and len(clues.layers) >= 1
    named = config.architecture_contains("EagleLlama", "LlamaForCausalLMEagle", "EagleMistral", "MistralLarge3Eagle")
    one_layer = config.integer("num_hidden_layers", minimum=0) == 1 and config.architecture_contains("ForCausalLM")
    return _speculators("eagle")(clues) or config.text("model_type") == "eagle" or named or one_layer


def is_lm(clues: Clues) -> bool:
    if clues.has_weights:
        return clues.stored("embed_tokens", "tok_embeddings", "wte") and any(
            "layers." in name or ".h." in name for name in clues.tensors
        )
    return clues.config.architecture_contains("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
