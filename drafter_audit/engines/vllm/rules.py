"""What vLLM does with an EAGLE-3 drafter, from 0.10.2 to 0.33.0. Sources name the release in which the line was read;
paths are inside `vllm/`."""

from __future__ import annotations

from drafter_audit.engines.base import Rule
from drafter_audit.engines.vllm.proofs import ALGOS, DRAFT, LATENT, PROPOSER, V1, V2, V2_RAN, deduced, read, run
from drafter_audit.engines.vllm.weight_rules import FUSION, WEIGHTS

_IDS = (
    read("ids_unread", "no layer ids are read, the target's default is taken", f"0.11.0 {V1}:2646", None, "0.11.1"),
    run(
        "ids_top_level",
        "eagle_aux_hidden_state_layer_ids at the top level is read as boundaries",
        f"0.33.0 {V1}:5206 and {V2}:119; PR 25961",
        "0.11.1",
    ),
    run(
        "ids_nested_v1",
        "runner V1 takes eagle_config.eagle_aux_hidden_state_layer_ids as boundaries where the top level has none",
        f"0.22.0 {V1}:5253",
        "0.22.0",
    ),
    read(
        "ids_nested_unread",
        "eagle_config.eagle_aux_hidden_state_layer_ids does not choose layers",
        f"0.21.0 {V1}: only the top level is read",
        "0.11.1",
        "0.22.0",
    ),
    read(
        "ids_nested_unread_v2",
        "runner V2 does not read eagle_config.eagle_aux_hidden_state_layer_ids",
        f"0.33.0 {V2}:112-150; {V2_RAN}",
        "0.17.0",
    ),
    read(
        "ids_short_key_v2",
        "runner V2 takes eagle_config.layer_ids as boundaries where the top level has none",
        f"0.27.0 {V2}:60; {V2_RAN}",
        "0.27.0",
    ),
    run(
        "ids_default",
        "without ids the target's class gives the boundaries 2, L//2 and L-3",
        "0.33.0 model_executor/models/interfaces.py:1772",
    ),
    run(
        "ids_sorted",
        "states are concatenated by layer, whatever the order of the list",
        "0.33.0 model_executor/models/interfaces.py:1617; before 0.30 the loop over the layers does it, llama.py",
    ),
    run(
        "ids_repeated",
        "an id that is listed twice is captured once, and fc gets a state too few",
        "0.33.0 model_executor/models/interfaces.py:1617",
    ),
    run(
        "ids_outside",
        "an id below 0 or above L matches no layer: nothing is captured for it, and fc gets a state too few",
        "0.33.0 model_executor/models/interfaces.py:1647",
    ),
    deduced(
        "last_unreached",
        "the target's class cannot hand out boundary L, and fc gets a state too few",
        "0.17.0 model_executor/models/llama.py:424; DeepSeek classes up to 0.24, PR 46973, issue in PR 46788; 0.33.0 "
        "models/deepseek_v32/nvidia/model.py:289",
    ),
    deduced(
        "embedding_fails",
        "the target's class adds a residual that does not exist yet before its first layer: boundary 0 raises",
        "0.33.0 model_executor/models/deepseek_v2.py:1562; all classes up to 0.17, 0.17.0 llama.py:425",
    ),
    read(
        "embedding_unreached",
        "the target's class hands out states after its layers only: nothing is captured for boundary 0",
        "0.33.0 models/deepseek_v4/nvidia/model.py:1006",
        "0.25.0",
    ),
    read(
        "other_kind_ids",
        "target_layer_ids of DFlash and DSpark name outputs of layers and are moved by one",
        f"0.33.0 {V1}:5211-5214 and {V2}:121-140; PR 40727",
        "0.22.0",
    ),
)

_TARGET = (
    read(
        "target_unsupported",
        "the target's class does not hand its hidden states to an EAGLE-3 drafter in this release",
        f"0.33.0 {V2}:29, {V1}:5175; classes: model_executor/models/registry.py",
    ),
    read(
        "target_gated",
        "EAGLE-3 is only allowed on targets whose model_type is on a list",
        "0.21.0 config/speculative.py:974",
        None,
        "0.22.0",
    ),
    read(
        "target_unlisted",
        "it is not known here whether the class that runs this target supports EAGLE-3; one that vLLM does not have "
        "runs on the Transformers backend, which cannot hand out boundary 0",
        "0.33.0 model_executor/models/transformers/base.py:858",
    ),
)

_CONFIG = (
    run(
        "architecture_unknown",
        "the class name, with Eagle3 put before it where it neither begins nor ends so, is not registered",
        "0.33.0 transformers_utils/configs/eagle.py:56-64, model_executor/models/registry.py:698-713",
    ),
    read(
        "speculators_type",
        "a speculators drafter must have layers of type llama or qwen3",
        f"0.24.0 {ALGOS}:45",
        "0.24.0",
    ),
    deduced(
        "speculators_unmarked",
        "a config without model_type is only known for speculators' by its speculators_config",
        "0.33.0 transformers_utils/config.py:361-367",
    ),
    run(
        "speculators_untranslated",
        "speculators' config is rebuilt from transformer_layer_config and a few keys of the top level; others are lost",
        f"0.33.0 {ALGOS}:14-52; PR 38111, PR 46488",
    ),
    run(
        "residual_default_true",
        "a speculators EAGLE-3 drafter without norm_before_residual is taken to have it",
        f"0.33.0 {ALGOS}:34",
    ),
    run(
        "method_by_name",
        "without a method the path decides: 'eagle-' in it means EAGLE-1, else 'eagle3' EAGLE-3; with neither it is a "
        "plain draft model, which stops at the first request",
        "0.33.0 config/speculative.py:1445-1448",
    ),
    run(
        "positions_raised",
        "a max_position_embeddings below the length served (max_model_len) is raised to it, one above it is kept; up "
        "to 0.32 under every rope type, since then where only the size of a table depends on it",
        "0.27.0 config/speculative.py:928, 0.32.0:1677, 0.33.0:103; issues 48894, 57941",
        "0.27.0",
    ),
    read(
        "positions_limit",
        "under a rope type that depends on it max_position_embeddings is kept: runner V2 serves no more than that",
        "0.33.0 config/speculative.py:1835-1838, config/vllm.py:3025",
        "0.33.0",
    ),
    deduced(
        "positions_short",
        "the drafter's rope table ends at its max_position_embeddings, positions beyond it read outside",
        "0.26.0 config/speculative.py: not raised there; issue 48894",
        None,
        "0.27.0",
    ),
)

_NORMS = (
    run(
        "residual_switch",
        "norm_before_residual decides which side of hidden_norm the residual takes, false where absent",
        f"0.33.0 {DRAFT}:101",
    ),
    read("norm_before_fc_unread", "there is no norm before fc", f"0.17.0 {DRAFT}", None, "0.18.0"),
    read(
        "norm_before_fc_top_level",
        "norm_before_fc is read at the top level only",
        f"0.18.0 {DRAFT}:153",
        "0.18.0",
        "0.22.0",
    ),
    run(
        "norm_before_fc_nested",
        "norm_before_fc is read in eagle_config, else at the top level",
        f"0.33.0 {DRAFT}:184-188; PR 42143",
        "0.22.0",
    ),
    read("latent_norm_before_fc", "the latent-attention drafter has no norm over all states", f"0.33.0 {LATENT}"),
    read("fc_norm_unread", "fc_norm is not read", f"0.21.0 {DRAFT}", None, "0.22.0"),
    run("fc_norm_read", "fc_norm is read at the top level, use_aux_norm is not", f"0.33.0 {DRAFT}:231", "0.22.0"),
    read(
        "latent_fc_norm_unapplied",
        "the latent-attention drafter loads fc_norm and does not apply it",
        f"0.22.0 {LATENT}:225; PR 43482",
        "0.22.0",
        "0.23.0",
    ),
    read("norm_output_unread", "norm_output is not read", f"0.21.0 {DRAFT}", None, "0.22.0"),
    run(
        "norm_output_read",
        "norm_output is read at the top level, eagle_config.return_hidden_post_norm is not",
        f"0.33.0 {DRAFT}:252; PR 42764",
        "0.22.0",
    ),
    run("hidden_norm_always", "hidden_norm is always there, of ones where it is not stored", f"0.33.0 {DRAFT}:98"),
    run("final_norm_always", "a norm always stands before the head, of ones if not stored", f"0.33.0 {DRAFT}:253"),
)

_RUNNERS = (
    read(
        "runner_v1_default",
        "runner V1 runs unless VLLM_USE_V2_MODEL_RUNNER=1",
        "0.17.0 envs.py:237",
        "0.17.0",
        "0.22.0",
    ),
    read(
        "runner_by_target",
        "the target decides on the runner: V2 for Qwen3 in 0.22, Llama and Mistral too in 0.23, some more in 0.24, "
        "every dense one from 0.25 on; VLLM_USE_V2_MODEL_RUNNER=0 or 1 forces it",
        "0.28.0 config/vllm.py:648, 691",
        "0.22.0",
        "0.29.0",
    ),
    read(
        "runner_v2_default",
        "runner V2 runs wherever Triton is there; VLLM_USE_V2_MODEL_RUNNER=0 forces V1",
        "0.29.0 config/vllm.py:645, 0.33.0 config/vllm.py:731",
        "0.29.0",
    ),
    read(
        "parallel_since",
        "P-EAGLE needs parallel drafting, which this release does not have",
        "0.15.0 config/speculative.py",
        None,
        "0.16.0",
    ),
    read(
        "parallel_not_v2",
        "runner V2 does not draft in parallel: vLLM takes V1, unless V2 is forced",
        "0.33.0 config/vllm.py:3070",
        "0.17.0",
    ),
    read(
        "parallel_token",
        "a P-EAGLE drafter needs pard_token or ptd_token_id; speculators' mask_token_id will do, since 0.28 anybody's",
        f"0.33.0 {PROPOSER}:367-379",
        "0.16.0",
    ),
    read(
        "eagle1_last_state",
        "an EAGLE-1 drafter reads the last state after the final norm, and has no norm before the target's head",
        "0.33.0 model_executor/models/llama_eagle.py:130-139",
    ),
)

RULES: tuple[Rule, ...] = (*_IDS, *_TARGET, *_CONFIG, *_NORMS, *FUSION, *WEIGHTS, *_RUNNERS)
BY_NAME = {rule.name: rule for rule in RULES}
