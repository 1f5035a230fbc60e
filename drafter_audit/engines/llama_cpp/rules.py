"""The rules of llama.cpp, as data: `llama_cpp.py` applies them.

A release is a build number. Read whole at b11312 (0c1e57098, 2026-10-01, as llama-cpp-python 0.3.36 ships it) and in
single files at 0274f0f, soon after EAGLE-3 was merged (PR #18039, June 2026). A checkpoint of safetensors is judged as
that release converts it, a GGUF file as it loads it.
"""

from __future__ import annotations

from drafter_audit.engines.base import Rule

_IDS_READ = "10230"  # PR #25794 was opened on 2026-07-16 and merged that month: b9986 is of 07-14, b10472 of 08-17
_DATES = "PR #25794, merged in July 2026: between b9987 and b10472 it is a guess, see LCPP-UNDATED"
_OLD = "llama.cpp 0274f0f"
_NEW = "llama.cpp b11312"

IDS_OLD = Rule(
    "LCPP-IDS-OLD",
    "the converter writes boundaries 2, L//2 and L-3 whatever ids the config has",
    f"{_OLD} conversion/llama.py LlamaModel.__init__; {_DATES}",
    until=_IDS_READ,
)
IDS = Rule(
    "LCPP-IDS",
    "the converter takes the top-level eagle_aux_hidden_state_layer_ids as boundaries, else 2, L//2 and L-3; ids in "
    "eagle_config are not read (PR #27040 was closed unmerged)",
    f"{_NEW} conversion/llama.py:74-83; {_DATES}",
    since=_IDS_READ,
)
UNDATED = Rule(
    "LCPP-UNDATED",
    "which build began to read ids and norm_before_fc is estimated",
    _DATES,
    "deduced",
    since="9987",
    until="10472",
)
STORED = Rule(
    "LCPP-GGUF-IDS",
    "a GGUF file's ids are boundaries, in the order in which fc reads them",
    f"{_NEW} common/speculative.cpp:541-549, 624-640; {_OLD} src/models/eagle3.cpp",
)
GGUF_KEY_OLD = Rule(
    "LCPP-GGUF-KEY-OLD",
    "the loader wants eagle3.extract_layers",
    f"{_OLD} src/models/eagle3.cpp load_arch_hparams; the renaming is not dated",
    "deduced",
    until=_IDS_READ,
)
GGUF_KEY = Rule(
    "LCPP-GGUF-KEY",
    "the loader wants eagle3.target_layers; files that hold extract_layers are to be converted anew",
    f"{_NEW} src/models/eagle3.cpp:6, src/llama-arch.cpp; the renaming is not dated",
    "deduced",
    since=_IDS_READ,
)
LISTED = Rule("LCPP-ORDER", "states are concatenated in the list's order", f"{_NEW} common/speculative.cpp:628-640")
THREE = Rule("LCPP-THREE", "exactly three states", f"{_NEW} src/models/eagle3.cpp:9-11, common/speculative.cpp:502")
RANGE = Rule("LCPP-RANGE", "a boundary lies between 0 and L", f"{_NEW} common/speculative.cpp:541-549")
LAST = Rule(
    "LCPP-LAST",
    "boundary L is the last layer's output before the final norm, and only targets that keep it (t_h_nextn) have it",
    f"{_NEW} common/speculative.cpp:544, src/models/openai-moe.cpp:155",
)
HOOKS = Rule(
    "LCPP-HOOKS",
    "only targets whose graph keeps the input of each layer (t_layer_inp) can be drafted for",
    f"{_NEW} src/models/*.cpp; ggml-org/llama.cpp#24541",
)
HOOKS_LATE = Rule(
    "LCPP-HOOKS-LATE",
    "MiniMax-M2 targets keep no layer inputs yet",
    "PR #25604, opened on 2026-07-13: b9888 is of 07-06",
    "deduced",
    until="9889",
)
PRE_FC_OLD = Rule("LCPP-PRE-FC-OLD", "no norm before fc", f"{_OLD} src/models/eagle3.cpp; {_DATES}", until=_IDS_READ)
PRE_FC = Rule(
    "LCPP-PRE-FC",
    "a norm over all states where norm_before_fc is true at the top level; eagle_config.norm_before_fc and fc_norm are "
    "not read",
    f"{_NEW} conversion/llama.py:100-104, src/models/eagle3.cpp; {_DATES}",
    since=_IDS_READ,
)
RESIDUAL = Rule(
    "LCPP-RESIDUAL",
    "norm_before_residual is read at the top level, false where it is absent",
    f"{_NEW} conversion/llama.py:95-98, src/models/eagle3.cpp",
)
LAYER = Rule("LCPP-LAYER", "the layer reads attn_norm of the embedding, then attn_norm_2 of the state",
             f"{_NEW} src/models/eagle3.cpp graph<false>")  # fmt: skip
FEEDBACK = Rule(
    "LCPP-FEEDBACK",
    "the next step reads the output before the final norm: norm_output is not read",
    f"{_NEW} src/models/eagle3.cpp graph<false> (t_h_nextn)",
)
STEP = Rule("LCPP-STEP", "a state is paired with the token after it", f"{_NEW} common/speculative.cpp:677")
ROPE = Rule(
    "LCPP-ROPE",
    "rope_parameters hides rope_scaling; linear, yarn, longrope and llama3 scaling are kept, other kinds dropped; "
    "llama3 counts from 8192 positions unless original_max_position_embeddings lies outside its section",
    f"{_NEW} conversion/base.py:1359-1377, 1462-1510, conversion/llama.py generate_extra_tensors",
)
VOCAB = Rule(
    "LCPP-D2T",
    "the converter adds each row's number to d2t, so that the file holds target ids; other files' d2t is taken as such",
    f"{_NEW} conversion/llama.py:338-350, src/models/eagle3.cpp",
)
EMBEDDING = Rule("LCPP-EMBED", "its own embedding where one is stored, else the target's; unscaled",
                 f"{_NEW} src/models/eagle3.cpp graph<false>")  # fmt: skip
HEAD = Rule("LCPP-HEAD", "its own head where one is stored, else the target's; tie_word_embeddings is not read",
            f"{_NEW} src/models/eagle3.cpp graph<false>")  # fmt: skip
FINAL_NORM = Rule("LCPP-NORM", "a final norm always stands before the head", f"{_NEW} src/models/eagle3.cpp")
KIND = Rule("LCPP-KIND", "one kind of drafter: EAGLE-3 with a Llama layer", f"{_NEW} src/models/eagle3.cpp")
CLASS = Rule("LCPP-CLASS", "the converter chooses by the class name", f"{_NEW} conversion/__init__.py, llama.py:17-30")
DETECT = Rule(
    "LCPP-DETECT",
    "a Llama checkpoint is EAGLE-3 where draft_vocab_size is there and num_hidden_layers is 1",
    f"{_NEW} conversion/llama.py:50, 216",
)
TENSORS = Rule(
    "LCPP-TENSORS",
    "the converter stops at a tensor that it does not know, the loader at one that it has no use for",
    f"{_NEW} conversion/base.py:630, src/llama-model-loader.cpp:1398",
)

RULES = (IDS_OLD, IDS, UNDATED, STORED, GGUF_KEY_OLD, GGUF_KEY, LISTED, THREE, RANGE, LAST, HOOKS, HOOKS_LATE,
         PRE_FC_OLD, PRE_FC, RESIDUAL, LAYER, FEEDBACK, STEP, ROPE, VOCAB, EMBEDDING, HEAD, FINAL_NORM, KIND, CLASS,
         DETECT, TENSORS)  # fmt: skip
