"""What SGLang does with an EAGLE drafter, one rule each, as read in 28 releases from 0.5.3 to 0.5.23.

Paths are those below `sglang/srt` in the release named. A rule that was introduced between two releases holds from the
first wheel that has it.
"""

from __future__ import annotations

from drafter_audit.engines.base import Rule

OLDEST, NEWEST = "0.5.3", "0.5.23"
_PULL = "https://github.com/sgl-project/sglang/pull/"

# What was executed of SGLang, cut out of every release's wheel: how ids are read, and turned into layers.
_ALONE = "; the function run on its own, stubbed"

# Which states of the target are captured.
IDS_KEY = Rule(
    "ids-nested-only",
    "the ids are read in eagle_config.eagle_aux_hidden_state_layer_ids alone; without that key they are the default",
    "sglang 0.5.23 model_executor/model_runner_components/spec_aux_hidden_state.py:187; "
    f"0.5.4 model_executor/model_runner.py:491{_ALONE}",
    proof="run",
)
DEFAULT_IDS = Rule(
    "ids-default",
    "without ids boundaries 2, L//2 and L-3 are captured",
    f"sglang 0.5.23 models/llama.py:935{_ALONE}",
    proof="run",
)
M3_DEFAULT = Rule(
    "ids-default-minimax-m3-vl",
    "without ids a MiniMax-M3-VL target captures boundaries 3, L//2+1 and L-2",
    f"sglang 0.5.23 models/minimax_m3_vl.py:260{_ALONE}",
    since="0.5.18",
    proof="run",
)
PLUS_ONE = Rule(
    "ids-plus-one",
    "id i is the output of layer i: boundary i + 1",
    f"sglang 0.5.23 models/llama.py:941{_ALONE}",
    proof="run",
)
DEEPSEEK_PLUS_ONE = Rule(
    "ids-plus-one-deepseek",
    "on a DeepSeek-type target id i is the output of layer i: boundary i + 1",
    f"sglang 0.5.12.post1 models/deepseek_v2.py:2541, {_PULL}12319{_ALONE}",
    until="0.5.13",
    proof="run",
)
FIRST_IS_ONE = Rule(
    "ids-first-is-one",
    "on a DeepSeek-type target id i is boundary i + 1 if the list begins with 1, else boundary i",
    f"sglang 0.5.23 models/deepseek_v2.py:3470, models/glm4_moe_lite.py:817, {_PULL}25454{_ALONE}",
    since="0.5.13",
    proof="run",
)
LAST_IS_LAYERS = Rule(
    "ids-last-is-layers",
    "on gpt-oss id i is boundary i if the largest is the target's layer count, else boundary i + 1",
    f"sglang 0.5.23 models/gpt_oss.py:1349, {_PULL}32334{_ALONE}",
    since="0.5.17",
    proof="run",
)
GRAPH_DEFAULT = Rule(
    "ids-lost-in-cuda-graphs",
    "CUDA graphs are captured with the default ids, before the declared ones are set; these hold for prefill alone",
    f"sglang 0.5.10 model_executor/cuda_graph_runner.py:648 and model_executor/model_runner.py:668, {_PULL}22836",
    until="0.5.11",
)
EMBEDDING_OVERWRITTEN = Rule(
    "embedding-state-overwritten",
    "the embedding's output is captured without a copy, and on CUDA the norms add later layers to it in place",
    "sglang 0.5.16 models/qwen2.py:374, 254, 265, layers/layernorm.py (fused_add_rmsnorm); qwen3_vl.py, bailing_moe.py "
    "alike, 0.5.17 models/gpt_oss.py:727; 0.5.21 models/qwen2.py:421 copies",
    proof="deduced",
    until="0.5.21",
)
EMBEDDING_OVERWRITTEN_MOE = Rule(
    "embedding-state-overwritten-qwen-moe",
    f"on a Qwen MoE target too: {EMBEDDING_OVERWRITTEN.text}",
    "sglang 0.5.4 models/qwen2_moe.py; 0.5.4.post3 layers/communicator.py:240 copies",
    proof="deduced",
    until="0.5.4.post3",
)
GEMMA3_STATE = Rule(
    "gemma3-state-lost",
    "a Gemma 3 layer returns its MLP's output and the residual apart: the first alone is captured, without a copy, and "
    "on CUDA the next norm overwrites it in place",
    "sglang 0.5.23 models/gemma3_causal.py:410, 657, layers/layernorm.py:1347; 0.5.16 gemma3_causal.py:396 adds them",
    proof="deduced",
    since="0.5.17",
)
GEMMA4_STATE = Rule(
    "gemma4-state-overwritten",
    "a state of a Gemma 4 target is captured without a copy, and the next layer adds its attention to it in place",
    "sglang 0.5.16 models/gemma4_causal.py:979, 658, 716; 0.5.22 copies (capture_output)",
    proof="deduced",
    until="0.5.22",
)
ASCENDING = Rule(
    "slots-ascend",
    "states are captured as the layers run, so slots ascend whatever the list's order",
    "sglang 0.5.23 models/llama.py:491",
)
NO_CAPTURE = Rule(
    "target-without-capture",
    "a target whose class has no set_eagle3_layers_to_capture cannot be drafted for by EAGLE-3",
    "sglang 0.5.23 model_executor/model_runner_components/attention_backend_setup.py:55",
)
NOT_CAPTURED = Rule(
    "state-not-captured",
    "an id that no layer answers to, or that repeats, leaves one state out, and fc no longer fits",
    "sglang 0.5.23 layers/aux_hidden_states.py:86, models/llama.py:491, models/qwen2_moe.py:1156",
    proof="deduced",
)
EMBEDDING_STATE = Rule(
    "embedding-state-crashes",
    "at the first layer hidden_states + residual is taken although residual is None: boundary 0 cannot be captured",
    "sglang 0.5.16 models/llama.py:405, 0.5.13 models/deepseek_v2.py:2453",
    proof="deduced",
    until="0.5.22",
)
UNKNOWN_TARGET = Rule(
    "target-unknown",
    "which states an id names depends on the target's class",
    "sglang 0.5.23 models/llama.py:941, models/deepseek_v2.py:3470, models/gpt_oss.py:1349",
)
LAST_STATE_ONLY = Rule(
    "aux-off",
    "eagle_config.use_aux_hidden_state false leaves the drafter the last state alone, after the target's final norm",
    "sglang 0.5.23 model_executor/model_runner_components/spec_aux_hidden_state.py:189",
    since="0.5.8",
)
AUX_ALWAYS = Rule(
    "aux-always",
    "three states are captured whatever eagle_config.use_aux_hidden_state says",
    f"sglang 0.5.4 model_executor/model_runner.py:481{_ALONE}",
    proof="run",
    until="0.5.8",
)

# Whether the drafter loads.
CLASS = Rule(
    "draft-class",
    "drafters load under LlamaForCausalLMEagle3, from 0.5.12 on Eagle3DeepseekV2ForCausalLM, EAGLE-1 under *Eagle",
    "sglang 0.5.23 models/registry.py, models/llama_eagle3.py:387, models/kimi_k25_eagle3.py",
)
MODEL_TYPE = Rule(
    "model-type",
    "config.json is read by transformers' AutoConfig, which needs model_type",
    "sglang 0.5.23 utils/hf_transformers/config.py",
    proof="deduced",
)
ONE_LAYER = Rule(
    "one-layer",
    "the drafter may have one layer: always under Eagle3DeepseekV2ForCausalLM, under the other class before 0.5.12",
    "sglang 0.5.23 models/kimi_k25_eagle3.py:243, 0.5.10 models/llama_eagle3.py:212",
)
Q_LORA = Rule(
    "q-lora",
    "the latent-attention class needs q_lora_rank",
    "sglang 0.5.23 models/kimi_k25_eagle3.py:114",
    since="0.5.12",
)
DRAFT_VOCAB_KEY = Rule(
    "draft-vocab-key",
    "the Llama class reads draft_vocab_size without a default: the key must exist",
    "sglang 0.5.23 models/llama_eagle3.py:306",
    proof="deduced",
)
TARGET_WIDTH_NULL = Rule(
    "target-width-null",
    "the Llama class multiplies target_hidden_size if the key exists, null too",
    "sglang 0.5.23 models/llama_eagle3.py:151",
    proof="deduced",
)
FC_WIDTH = Rule(
    "fc-width",
    "fc reads target_hidden_size (else hidden_size) x num_aux_hidden_states, else the number of ids, else 3",
    f"sglang 0.5.23 models/llama_eagle3.py:157, kimi_k25_eagle3.py:48, {_PULL}24663",
)
HEAD_ROWS = Rule(
    "head-rows", "lm_head has draft_vocab_size rows", "sglang 0.5.23 models/llama_eagle3.py:309", proof="deduced"
)
UNFILLED = Rule(
    "weights-left-unset",
    "no check is made that every weight was found: one that is missing stays as it was allocated",
    "sglang 0.5.23 models/llama_eagle3.py:373, 0.5.10 models/llama_eagle3.py (midlayer only)",
    proof="deduced",
)
CONTEXT = Rule(
    "context-length",
    "the drafter's context must reach the target's, unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 is set or "
    "--context-length is lower",
    "sglang 0.5.23 configs/model_config.py:1295, speculative/eagle_worker_v2.py:229",
)

# What the drafter's class computes.
RESIDUAL = Rule(
    "residual-pre-norm",
    "the first layer's residual is the fused state before hidden_norm; norm_before_residual is not read",
    "sglang 0.5.23 models/llama_eagle3.py:99",
)
HIDDEN_NORM = Rule(
    "hidden-norm-always",
    "the first layer applies hidden_norm, with ones where none is stored, and nothing before it",
    "sglang 0.5.23 models/llama_eagle3.py:100",
)
NO_PRE_NORMS = Rule(
    "no-fc-norm", "no norm stands before fc", "sglang 0.5.10 models/llama_eagle3.py:176", until="0.5.12"
)
FC_NORM = Rule(
    "fc-norm",
    "fc_norm or use_aux_norm puts a norm on each state",
    f"sglang 0.5.23 models/llama_eagle3.py:185, kimi_k25_eagle3.py:230, {_PULL}24663",
    since="0.5.12",
)
NORM_BEFORE_FC = Rule(
    "norm-before-fc",
    "norm_before_fc puts one norm on all states, in eagle_config before the top level; the Llama class alone knows it",
    "sglang 0.5.23 models/llama_eagle3.py:173",
    since="0.5.17",
)
NO_NORM_BEFORE_FC = Rule(
    "no-norm-before-fc",
    "norm_before_fc is not read: before 0.5.17, and by the latent-attention class at all",
    "sglang 0.5.16 models/llama_eagle3.py, 0.5.23 models/kimi_k25_eagle3.py:285",
)
FC_SKIPPED = Rule(
    "fc-skipped",
    "states as wide as the embedding go past fc and its norms",
    "sglang 0.5.23 models/llama_eagle3.py:238",
    proof="deduced",
)
NORM_OUTPUT = Rule(
    "norm-output",
    "norm_output feeds the next step the state after the final norm",
    f"sglang 0.5.23 models/llama_eagle3.py:268, {_PULL}24663",
    since="0.5.12",
)
FEEDBACK = Rule(
    "feedback-pre-norm",
    "the next step reads the state before the final norm, whatever is declared",
    "sglang 0.5.10 models/llama_eagle3.py:184",
    until="0.5.12",
)
FINAL_NORM = Rule(
    "final-norm-always",
    "a final norm is applied, with ones where none is stored",
    "sglang 0.5.23 models/llama_eagle3.py:263",
)
EMBEDDING = Rule(
    "embedding-of-target",
    "the drafter's embedding is replaced by the target's, unless target_hidden_size differs from hidden_size",
    "sglang 0.5.23 speculative/eagle_worker_v2.py:363, models/llama.py:910",
)
EMBEDDING_SCALE = Rule(
    "embedding-unscaled",
    "the drafter looks rows up without the factor by which a Gemma target scales its embedding",
    "sglang 0.5.23 models/llama_eagle3.py:145, models/gemma3_causal.py:570",
)
HEAD_OF_TARGET = Rule(
    "head-of-target",
    "draft_vocab_size null takes the target's head",
    "sglang 0.5.23 models/llama_eagle3.py:306, eagle_worker_v2.py:353",
)
HEAD_TIED = Rule(
    "head-tied",
    "tie_word_embeddings true makes the embedding the head, and a stored lm_head is dropped",
    "sglang 0.5.23 models/llama_eagle3.py:303",
)
VOCAB_MAP = Rule(
    "d2t-offset",
    "target id = draft id + d2t; without d2t a draft id is a target id",
    "sglang 0.5.23 models/llama_eagle3.py:350",
)
ROPE_OLD = Rule(
    "rope-four",
    "rope_theta and rope_scaling are read, rope_parameters is not (transformers 4.57)",
    "sglang 0.5.9 models/llama.py:255",
    until="0.5.10",
)
ROPE_NEW = Rule(
    "rope-five",
    "rope_scaling replaces rope_parameters where both are set; the base in it comes before rope_theta (transformers 5)",
    "sglang 0.5.10 models/llama.py:255, transformers 5.19.0 modeling_rope_utils.py:752",
    since="0.5.10",
)

# What it passes over.
ATTENTION_BIAS = Rule(
    "attention-bias", "q, k and v have no bias: stored ones are dropped", "sglang 0.5.23 models/llama_eagle3.py:72"
)
QK_NORM = Rule(
    "qk-norm",
    "queries and keys are not normed: stored norms are dropped",
    "sglang 0.5.23 models/llama.py:206",
    proof="deduced",
)
FC_BIAS = Rule("fc-bias", "fc has a bias only where the key bias is true", "sglang 0.5.23 models/llama_eagle3.py:166")
DEEP_NORM = Rule(
    "deeper-layers-norm",
    "layers above the first norm their input by hidden_norm; a stored input_layernorm is loaded and not applied",
    "sglang 0.5.23 models/llama_eagle3.py:105",
    since="0.5.12",
)
DROPPED = Rule(
    "tensors-dropped",
    "a tensor with no parameter of its name is dropped, without a word but by the latent-attention class",
    "sglang 0.5.23 models/llama_eagle3.py:373, kimi_k25_eagle3.py",
)
WINDOW = Rule(
    "no-sliding-window",
    "sliding_window is not read; --speculative-draft-window-size sets one",
    "sglang 0.5.23 models/llama_eagle3.py:288",
)
PARALLEL = Rule(
    "no-parallel-drafting",
    "a P-EAGLE drafter is run one token at a time, and mask_hidden is not read",
    "https://github.com/sgl-project/sglang/issues/23171; no mention in the sources of sglang 0.5.23",
)
EAGLE1 = Rule(
    "eagle-1",
    "an EAGLE-1 drafter reads [embedding ; last state after the final norm], with the target's embedding and head",
    "sglang 0.5.23 models/llama_eagle.py, speculative/eagle_worker_v2.py:371",
)
OTHER_KIND = Rule(
    "other-kind",
    "drafters of other kinds have algorithms of their own (DFLASH, DSPARK, NEXTN); DFlash ids are outputs of layers",
    "sglang 0.5.23 model_executor/model_runner_components/spec_aux_hidden_state.py:199, models/llama.py:953",
)
