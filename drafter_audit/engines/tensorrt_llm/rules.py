"""The rules of TensorRT-LLM, as data: `tensorrt_llm.py` applies them.

Read in single files of the main branch, none tied to a release: modeling_speculative.py at 00679c66 and at three
earlier states, speculative/eagle3.py at f933a60 and later, llm_args.py, the reference pages of 1.3.0rc27 and 1.4.0rc1.
Where a rule begins is deduced from the dates of pull requests.
"""

from __future__ import annotations

from drafter_audit.engines.base import Rule

_MODEL = "TensorRT-LLM main@00679c66 _torch/models/modeling_speculative.py"
_CAPTURE = "TensorRT-LLM main@f933a60 _torch/speculative/eagle3.py"

DEFAULT_IDS = Rule(
    "TRT-IDS",
    "layer ids of the drafter's config are never read: without eagle3_layers_to_capture in the speculative_config the "
    "outputs of layers 1, L//2-1 and L-4 are captured, boundaries 2, L//2 and L-3",
    f"{_CAPTURE} Eagle3OneModelSpecMetadata.__post_init__; llmapi/llm_args.py EagleDecodingConfig",
)
ASCENDING = Rule("TRT-ORDER", "captured layers are a set, and are sorted", f"{_CAPTURE} __post_init__")
SHALLOW = Rule("TRT-SHALLOW", "the default needs a target of at least 6 layers", f"{_CAPTURE} __post_init__")
SLOTS = Rule(
    "TRT-SLOTS",
    "fc takes as many states as are captured, 3 unless eagle3_layers_to_capture lists others; with one there is no fc",
    f"{_MODEL} Eagle3DraftModel.__init__; llm_args.py num_capture_layers",
)
EMBEDDING_STATE = Rule(
    "TRT-MINUS-ONE",
    "a captured layer of -1 is the last state after the target's final norm, first in one-model mode, last in "
    "two-model mode; the embedding output, boundary 0, cannot be captured",
    f"{_MODEL} SpecDecOneEngineForCausalLM.forward (layer_idx = -1); {_CAPTURE} __post_init__",
)
PRE_FC_OLD = Rule(
    "TRT-PRE-FC-OLD",
    "no norm before fc",
    "TensorRT-LLM modeling_speculative.py before PR #12570",
    "deduced",
    until="1.3.0rc10",
)
PRE_FC = Rule(
    "TRT-PRE-FC",
    "a norm over all states where eagle_config.norm_before_fc says so; the same key at the top level is not read",
    f"TensorRT-LLM PR #12570, merged between 1.3.0rc7 and 1.3.0rc11; {_MODEL} Eagle3DraftModel.__init__",
    "deduced",
    since="1.3.0rc10",
)
FC_NORM = Rule(
    "TRT-FC-NORM",
    "fc_norm puts a norm over each state, and instead of the one of norm_before_fc where both are set",
    f"TensorRT-LLM PR #14988, opened when 1.3.0rc18 was out; {_MODEL} apply_eagle3_fc",
    "deduced",
    since="1.3.0rc19",
)
RESIDUAL = Rule(
    "TRT-RESIDUAL",
    "the residual is the fused state before hidden_norm: norm_before_residual is not read",
    f"{_MODEL} Eagle3DecoderLayer.forward",
)
LAYER = Rule(
    "TRT-LAYER",
    "the layer reads input_layernorm of the embedding, then hidden_norm of the state",
    f"{_MODEL} Eagle3DecoderLayer.forward",
)
FEEDBACK_OLD = Rule(
    "TRT-FEEDBACK-OLD",
    "the next step reads the output before the final norm unless eagle_config.return_hidden_post_norm is true; "
    "norm_output is not read",
    "TensorRT-LLM modeling_speculative.py before PR #14988",
    "deduced",
    until="1.3.0rc19",
)
FEEDBACK = Rule(
    "TRT-FEEDBACK",
    "the next step reads the output before the final norm unless norm_output or eagle_config.return_hidden_post_norm "
    "is true",
    f"TensorRT-LLM PR #14988; {_MODEL} Eagle3DraftModel.__init__",
    "deduced",
    since="1.3.0rc19",
)
FINAL_NORM = Rule("TRT-NORM", "a final norm always stands before the head", f"{_MODEL} Eagle3DraftModel.__init__")
STEP = Rule(
    "TRT-STEP",
    "a state is paired with the token after it, at the state's position",
    "TensorRT-LLM _torch/speculative/eagle3.py Eagle3OneModelWorker.prepare_drafter_inputs",
)
ROPE_OLD = Rule(
    "TRT-ROPE-OLD",
    "transformers 4.57 reads rope_theta and rope_scaling; rope_parameters of transformers 5 is not read",
    "the pin transformers==4.57.1 of 1.3.0rc3, ai-dynamo/dynamo#6402; transformers 4.57 LlamaConfig",
    "deduced",
    until="1.3.0rc4",
)
ROPE = Rule(
    "TRT-ROPE", "rope comes from the drafter's own config", f"{_MODEL} Eagle3Attention (RopeParams.from_config)"
)
VOCAB = Rule(
    "TRT-D2T",
    "d2t holds offsets; without it, or where draft_vocab_size equals vocab_size, ids are the target's own",
    f"{_MODEL} Eagle3DraftModel.__init__, _torch/speculative/eagle3.py draft_decoder",
)
EMBEDDING = Rule(
    "TRT-EMBED",
    "the embedding is the target's, whatever the file stores; its own only where target_hidden_size differs from "
    "hidden_size",
    f"{_MODEL} Eagle3DraftModel.__init__, load_weights_from_target_model",
)
HEAD = Rule(
    "TRT-HEAD",
    "the head is the file's own where any tensor is named lm_head, else the target's",
    f"{_MODEL} Eagle3ForCausalLM.load_weights",
)
TIED = Rule(
    "TRT-TIED",
    "tie_word_embeddings ties the head as the class is built, when the embedding that comes from the target is not "
    "there: it stops",
    "TensorRT-LLM _torch/models/modeling_utils.py DecoderModelForCausalLM.__init__; " + _MODEL,
    "deduced",
)
KIND = Rule("TRT-KIND", "the PyTorch backend has one EAGLE class, for EAGLE-3 layers", f"{_MODEL} Eagle3ForCausalLM")
FORMAT = Rule(
    "TRT-FORMAT",
    "the config is read flat, by AutoConfig, beside safetensors: neither speculators' nested layer nor GGUF is read",
    "TensorRT-LLM _torch/model_config.py ModelConfig.from_pretrained",
    "deduced",
)
NULLS = Rule(
    "TRT-NULL",
    "eagle_config and target_hidden_size are used as soon as the key is there: null stops it",
    f"{_MODEL} Eagle3DraftModel.__init__",
    "deduced",
)
WIDTH = Rule(
    "TRT-WIDTH",
    "a state is as wide as target_hidden_size says, else as hidden_size, whatever the target's width is",
    f"{_MODEL} Eagle3DraftModel.__init__ (hidden_size_in)",
)
MISSING = Rule(
    "TRT-MISSING",
    "every parameter of the class is looked up in the file by name; deeper layers under hidden_norm",
    "TensorRT-LLM _torch/models/modeling_utils.py _load_weights_impl; " + _MODEL,
    "deduced",
)
MLA_OLD = Rule(
    "TRT-MLA-OLD",
    "latent attention in a drafter is not known",
    "TensorRT-LLM 1.1 modeling_speculative.py had Llama attention alone",
    "deduced",
    until="1.2.0",
)
PARALLEL = Rule(
    "TRT-PEAGLE",
    "mask_hidden and parallel drafting are not read: the drafter runs step by step",
    f"{_MODEL} Eagle3ForCausalLM",
)
BIAS = Rule(
    "TRT-BIAS",
    "a stored bias is used only where config.json announces it: bias for fc, attention_bias for q, k and v",
    f"{_MODEL} Eagle3DraftModel.__init__, Eagle3Attention",
)
CLASS = Rule(
    "TRT-CLASS",
    "one-model mode builds its EAGLE-3 class whatever architectures says; two-model mode (until 1.4) knows "
    "LlamaForCausalLM with or without Eagle3 in its name, where draft_vocab_size is set",
    "TensorRT-LLM _torch/models/modeling_auto.py AutoModelForCausalLM._resolve_class; " + _MODEL,
)
DRAFT_VOCAB = Rule(
    "TRT-DRAFT-VOCAB",
    "without draft_vocab_size it takes vocab_size, with a warning; older releases stop",
    f"{_MODEL} _ensure_draft_vocab_size",
)
FC_SKIP = Rule(
    "TRT-FC-SKIP",
    "fc is skipped where the states together are as wide as the drafter",
    f"{_MODEL} Eagle3ForCausalLM.apply_eagle3_fc",
)

RULES = (DEFAULT_IDS, ASCENDING, SHALLOW, SLOTS, EMBEDDING_STATE, PRE_FC_OLD, PRE_FC, FC_NORM, RESIDUAL, LAYER,
         FEEDBACK_OLD, FEEDBACK, FINAL_NORM, STEP, ROPE_OLD, ROPE, VOCAB, EMBEDDING, HEAD, TIED, KIND, FORMAT, NULLS,
         WIDTH, MISSING, MLA_OLD, PARALLEL, BIAS, CLASS, DRAFT_VOCAB, FC_SKIP)  # fmt: skip
