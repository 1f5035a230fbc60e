"""What vLLM does with an EAGLE-3 drafter, from 0.10.2 to 0.33.0. Sources name the release in which the line was read;
paths are inside `vllm/`."""

from __future__ import annotations

from drafter_audit.engines.base import Proof, Rule

_DRAFT = "model_executor/models/llama_eagle3.py"
_LATENT = "model_executor/models/deepseek_eagle3.py"
_V1 = "v1/worker/gpu_model_runner.py"
_V2 = "v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
_ALGOS = "transformers_utils/configs/speculators/algos.py"
_PROPOSER = "v1/spec_decode/llm_base_proposer.py"
_RAN = "run on 0.32.0 with runner V1 and a Llama target"
_V2_RAN = "the function was called in 0.32.0, the runner was not run"


def _read(name: str, text: str, source: str, since: str | None = None, until: str | None = None) -> Rule:
    return Rule(name, text, source, "read", since, until)


def _run(name: str, text: str, source: str, since: str | None = None, until: str | None = None) -> Rule:
    """Read as well, in the release that `source` names; `until` and what older releases do is read, not run."""
    proof: Proof = "run"
    return Rule(name, text, f"{_RAN}; {source}", proof, since, until)


def _deduced(name: str, text: str, source: str, since: str | None = None, until: str | None = None) -> Rule:
    proof: Proof = "deduced"
    return Rule(name, text, source, proof, since, until)


_IDS = (
    _read("ids_unread", "no layer ids are read, the target's default is taken", f"0.11.0 {_V1}:2646", None, "0.11.1"),
    _run(
        "ids_top_level",
        "eagle_aux_hidden_state_layer_ids at the top level is read as boundaries",
        f"0.33.0 {_V1}:5206 and {_V2}:119; PR 25961",
        "0.11.1",
    ),
    _run(
        "ids_nested_v1",
        "runner V1 takes eagle_config.eagle_aux_hidden_state_layer_ids as boundaries where the top level has none",
        f"0.22.0 {_V1}:5253",
        "0.22.0",
    ),
    _read(
        "ids_nested_unread",
        "eagle_config.eagle_aux_hidden_state_layer_ids does not choose layers",
        f"0.21.0 {_V1}: only the top level is read",
        "0.11.1",
        "0.22.0",
    ),
    _read(
        "ids_nested_unread_v2",
        "runner V2 does not read eagle_config.eagle_aux_hidden_state_layer_ids",
        f"0.33.0 {_V2}:112-150; {_V2_RAN}",
        "0.17.0",
    ),
    _read(
        "ids_short_key_v2",
        "runner V2 takes eagle_config.layer_ids as boundaries where the top level has none",
        f"0.27.0 {_V2}:60; {_V2_RAN}",
        "0.27.0",
    ),
    _run(
        "ids_default",
        "without ids the target's class gives the boundaries 2, L//2 and L-3",
        "0.33.0 model_executor/models/interfaces.py:1772",
    ),
    _run(
        "ids_sorted",
        "states are concatenated by layer, whatever the order of the list",
        "0.33.0 model_executor/models/interfaces.py:1617; before 0.30 the loop over the layers does it, llama.py",
    ),
    _run(
        "ids_repeated",
        "an id that is listed twice is captured once, and fc gets a state too few",
        "0.33.0 model_executor/models/interfaces.py:1617",
    ),
    _run(
        "ids_outside",
        "an id below 0 or above L matches no layer: nothing is captured for it, and fc gets a state too few",
        "0.33.0 model_executor/models/interfaces.py:1647",
    ),
    _deduced(
        "last_unreached",
        "the target's class cannot hand out boundary L, and fc gets a state too few",
        "0.17.0 model_executor/models/llama.py:424; DeepSeek classes up to 0.24, PR 46973, issue in PR 46788; 0.33.0 "
        "models/deepseek_v32/nvidia/model.py:289",
    ),
    _deduced(
        "embedding_fails",
        "the target's class adds a residual that does not exist yet before its first layer: boundary 0 raises",
        "0.33.0 model_executor/models/deepseek_v2.py:1562; all classes up to 0.17, 0.17.0 llama.py:425",
    ),
    _read(
        "embedding_unreached",
        "the target's class hands out states after its layers only: nothing is captured for boundary 0",
        "0.33.0 models/deepseek_v4/nvidia/model.py:1006",
        "0.25.0",
    ),
    _read(
        "other_kind_ids",
        "target_layer_ids of DFlash and DSpark name outputs of layers and are moved by one",
        f"0.33.0 {_V1}:5211-5214 and {_V2}:121-140; PR 40727",
        "0.22.0",
    ),
)

_TARGET = (
    _read(
        "target_unsupported",
        "the target's class does not hand its hidden states to an EAGLE-3 drafter in this release",
        f"0.33.0 {_V2}:29, {_V1}:5175; classes: model_executor/models/registry.py",
    ),
    _read(
        "target_gated",
        "EAGLE-3 is only allowed on targets whose model_type is on a list",
        "0.21.0 config/speculative.py:974",
        None,
        "0.22.0",
    ),
    _read(
        "target_unlisted",
        "it is not known here whether the class that runs this target supports EAGLE-3; one that vLLM does not have "
        "runs on the Transformers backend, which cannot hand out boundary 0",
        "0.33.0 model_executor/models/transformers/base.py:858",
    ),
)

_CONFIG = (
    _run(
        "architecture_unknown",
        "the class name, with Eagle3 put before it where it neither begins nor ends so, is not registered",
        "0.33.0 transformers_utils/configs/eagle.py:56-64, model_executor/models/registry.py:698-713",
    ),
    _read(
        "speculators_type",
        "a speculators drafter must have layers of type llama or qwen3",
        f"0.24.0 {_ALGOS}:45",
        "0.24.0",
    ),
    _deduced(
        "speculators_unmarked",
        "a config without model_type is only known for speculators' by its speculators_config",
        "0.33.0 transformers_utils/config.py:361-367",
    ),
    _run(
        "speculators_untranslated",
        "speculators' config is rebuilt from transformer_layer_config and a few keys of the top level; others are lost",
        f"0.33.0 {_ALGOS}:14-52; PR 38111, PR 46488",
    ),
    _run(
        "residual_default_true",
        "a speculators EAGLE-3 drafter without norm_before_residual is taken to have it",
        f"0.33.0 {_ALGOS}:34",
    ),
    _run(
        "method_by_name",
        "without a method the path decides: 'eagle-' in it means EAGLE-1, else 'eagle3' EAGLE-3; with neither it is a "
        "plain draft model, which stops at the first request",
        "0.33.0 config/speculative.py:1445-1448",
    ),
    _run(
        "positions_raised",
        "a max_position_embeddings below the length served (max_model_len) is raised to it, one above it is kept; up "
        "to 0.32 under every rope type, since then where only the size of a table depends on it",
        "0.27.0 config/speculative.py:928, 0.32.0:1677, 0.33.0:103; issues 48894, 57941",
        "0.27.0",
    ),
    _read(
        "positions_limit",
        "under a rope type that depends on it max_position_embeddings is kept: runner V2 serves no more than that",
        "0.33.0 config/speculative.py:1835-1838, config/vllm.py:3025",
        "0.33.0",
    ),
    _deduced(
        "positions_short",
        "the drafter's rope table ends at its max_position_embeddings, positions beyond it read outside",
        "0.26.0 config/speculative.py: not raised there; issue 48894",
        None,
        "0.27.0",
    ),
)

_NORMS = (
    _run(
        "residual_switch",
        "norm_before_residual decides which side of hidden_norm the residual takes, false where absent",
        f"0.33.0 {_DRAFT}:101",
    ),
    _read("norm_before_fc_unread", "there is no norm before fc", f"0.17.0 {_DRAFT}", None, "0.18.0"),
    _read(
        "norm_before_fc_top_level",
        "norm_before_fc is read at the top level only",
        f"0.18.0 {_DRAFT}:153",
        "0.18.0",
        "0.22.0",
    ),
    _run(
        "norm_before_fc_nested",
        "norm_before_fc is read in eagle_config, else at the top level",
        f"0.33.0 {_DRAFT}:184-188; PR 42143",
        "0.22.0",
    ),
    _read("latent_norm_before_fc", "the latent-attention drafter has no norm over all states", f"0.33.0 {_LATENT}"),
    _read("fc_norm_unread", "fc_norm is not read", f"0.21.0 {_DRAFT}", None, "0.22.0"),
    _run("fc_norm_read", "fc_norm is read at the top level, use_aux_norm is not", f"0.33.0 {_DRAFT}:231", "0.22.0"),
    _read(
        "latent_fc_norm_unapplied",
        "the latent-attention drafter loads fc_norm and does not apply it",
        f"0.22.0 {_LATENT}:225; PR 43482",
        "0.22.0",
        "0.23.0",
    ),
    _read("norm_output_unread", "norm_output is not read", f"0.21.0 {_DRAFT}", None, "0.22.0"),
    _run(
        "norm_output_read",
        "norm_output is read at the top level, eagle_config.return_hidden_post_norm is not",
        f"0.33.0 {_DRAFT}:252; PR 42764",
        "0.22.0",
    ),
    _run("hidden_norm_always", "hidden_norm is always there, of ones where it is not stored", f"0.33.0 {_DRAFT}:98"),
    _run("final_norm_always", "a norm always stands before the head, of ones if not stored", f"0.33.0 {_DRAFT}:253"),
)

_FUSION = (
    _read("slots_three", "fc takes three states", f"0.21.0 {_DRAFT}:176", None, "0.22.0"),
    _run(
        "slots_counted",
        "fc takes num_aux_hidden_states states, else as many as eagle_config lists ids, else three; the Qwen3 class "
        "counts the ids of the top level too",
        f"0.33.0 {_DRAFT}:210-216, {_LATENT}:189, qwen3_eagle3.py:202-209",
        "0.22.0",
    ),
    _run(
        "states_misfit",
        "fc must be as wide as the captured states together",
        f"0.33.0 {_PROPOSER}:552",
    ),
    _run(
        "target_hidden_size_null",
        "target_hidden_size must be absent or a number: null is multiplied",
        f"0.33.0 {_DRAFT}:218-221",
    ),
    _run(
        "noaux_last_state",
        "with eagle_config.use_aux_hidden_state false the last state alone is read, after the final norm",
        f"0.33.0 {_PROPOSER}:1674-1687, {_V2}:15-22",
        "0.12.0",
    ),
    _run(
        "noaux_needs_switch",
        "only eagle_config.use_aux_hidden_state false makes it read the last state; else it reads several through fc",
        f"0.12.0 {_DRAFT}:146",
    ),
    _deduced(
        "noaux_fails_v2",
        "runner V2 hands over three states although eagle_config.use_aux_hidden_state is false",
        "0.32.0 v1/worker/gpu/model_runner.py:307",
        "0.17.0",
        "0.33.0",
    ),
)

_WEIGHTS = (
    _run(
        "tensor_unknown",
        "a stored tensor that its model does not have stops the loading",
        "0.33.0 model_executor/models/utils.py:443; 0.24.0 model_executor/models/llama_eagle3.py:284",
    ),
    _run(
        "prefix_doubled",
        "model. is put before every stored name but the head's and the map's: model.fc becomes model.model.fc",
        f"0.33.0 {_DRAFT}:444",
    ),
    _run("map_offset", "d2t holds offsets: target id = draft id + d2t", f"0.33.0 {_DRAFT}:385"),
    _run(
        "map_missing",
        "without d2t a draft id is taken for the target's id",
        f"0.33.0 {_DRAFT}:341, 459",
    ),
    _run(
        "map_unneeded",
        "d2t of a drafter with the target's whole vocabulary has no parameter to load into",
        f"0.30.0 {_DRAFT}:345",
        "0.30.0",
    ),
    _run(
        "bias_skipped",
        "a stored bias that its model does not have is passed over, and drafts are computed without it",
        "0.33.0 model_executor/models/utils.py:458, 0.25.0:402; 0.24.0 stops at it",
        "0.25.0",
    ),
    _run(
        "missing_weight",
        "a weight or bias that no tensor fills keeps what its memory held before, and the loading does not complain: "
        "drafts are chance, and differ from start to start",
        f"0.33.0 {_DRAFT}:467 (nothing is returned, so nothing is checked), model_executor/layers/linear.py:194; "
        "before 0.11.1 also a head, 0.10.2 v1/spec_decode/eagle.py:653",
    ),
    _run(
        "missing_norm",
        "a norm that no tensor fills is one of ones, and the loading does not complain",
        f"0.33.0 {_DRAFT}:467, model_executor/layers/layernorm.py:247",
    ),
    _run(
        "embedding_rows",
        "the embedding has vocab_size rows",
        "0.33.0 model_executor/layers/vocab_parallel_embedding.py:515, 0.10.2:395",
    ),
    _deduced(
        "head_rows",
        "the head has draft_vocab_size rows, vocab_size where the config names none",
        f"0.33.0 {_DRAFT}:314-316",
    ),
    _run("head_from_file", "a stored head is the drafter's own", f"0.33.0 {_PROPOSER}:1516"),
    _run(
        "head_from_target",
        "a missing head is the target's",
        f"0.33.0 {_PROPOSER}:1518; v1/worker/gpu/spec_decode/eagle/utils.py:107; 0.11.2 v1/spec_decode/eagle.py:1059",
        "0.11.1",
    ),
    _run(
        "head_cut",
        "a missing head over a reduced vocabulary is the target's, cut to its first draft_vocab_size rows; d2t maps "
        "these to other tokens than they score: in the run no draft was accepted",
        f"0.33.0 model_executor/layers/logits_processor.py:198, {_DRAFT}:385-396; 0.11.2 v1/spec_decode/eagle.py:1059",
        "0.11.1",
    ),
    _run("tie_unread", "tie_word_embeddings is not read, the head is the file's or the target's", f"0.33.0 {_DRAFT}"),
    _run(
        "embedding_kept",
        "a stored embedding that differs from the target's is kept",
        f"0.33.0 {_PROPOSER}:1437-1470; v1/worker/gpu/spec_decode/eagle/utils.py:18",
        "0.11.1",
    ),
    _read(
        "embedding_replaced",
        "a stored embedding of the target's shape is replaced by the target's",
        "0.11.0 v1/spec_decode/eagle.py:866",
        None,
        "0.11.1",
    ),
    _run("embedding_from_target", "a missing embedding is the target's", f"0.33.0 {_PROPOSER}:1440"),
    _deduced(
        "embedding_width",
        "the target's embedding is of another width and cannot stand in for the missing one",
        f"0.33.0 {_PROPOSER}:1476-1499",
    ),
    _read("one_layer", "the drafter has one layer", "0.11.0 model_executor/models/llama_eagle3.py", None, "0.11.1"),
    _run(
        "deeper_width",
        "layers after the first read the hidden state alone, as wide as it is",
        f"0.33.0 {_DRAFT}:82, {_LATENT}:82, qwen3_eagle3.py:66; 0.12.0 {_DRAFT}:53",
        "0.11.1",
    ),
    _run(
        "deeper_norm",
        "layers after the first use input_layernorm; where only hidden_norm is stored it stays at ones",
        f"0.33.0 {_DRAFT}:138",
        "0.11.1",
    ),
)

_RUNNERS = (
    _read(
        "runner_v1_default",
        "runner V1 runs unless VLLM_USE_V2_MODEL_RUNNER=1",
        "0.17.0 envs.py:237",
        "0.17.0",
        "0.22.0",
    ),
    _read(
        "runner_by_target",
        "the target decides on the runner: V2 for Qwen3 in 0.22, Llama and Mistral too in 0.23, some more in 0.24, "
        "every dense one from 0.25 on; VLLM_USE_V2_MODEL_RUNNER=0 or 1 forces it",
        "0.28.0 config/vllm.py:648, 691",
        "0.22.0",
        "0.29.0",
    ),
    _read(
        "runner_v2_default",
        "runner V2 runs wherever Triton is there; VLLM_USE_V2_MODEL_RUNNER=0 forces V1",
        "0.29.0 config/vllm.py:645, 0.33.0 config/vllm.py:731",
        "0.29.0",
    ),
    _read(
        "parallel_since",
        "P-EAGLE needs parallel drafting, which this release does not have",
        "0.15.0 config/speculative.py",
        None,
        "0.16.0",
    ),
    _read(
        "parallel_not_v2",
        "runner V2 does not draft in parallel: vLLM takes V1, unless V2 is forced",
        "0.33.0 config/vllm.py:3070",
        "0.17.0",
    ),
    _read(
        "parallel_token",
        "a P-EAGLE drafter needs pard_token or ptd_token_id; speculators' mask_token_id will do, since 0.28 anybody's",
        f"0.33.0 {_PROPOSER}:367-379",
        "0.16.0",
    ),
    _read(
        "eagle1_last_state",
        "an EAGLE-1 drafter reads the last state after the final norm, and has no norm before the target's head",
        "0.33.0 model_executor/models/llama_eagle.py:130-139",
    ),
)

RULES: tuple[Rule, ...] = (*_IDS, *_TARGET, *_CONFIG, *_NORMS, *_FUSION, *_WEIGHTS, *_RUNNERS)
BY_NAME = {rule.name: rule for rule in RULES}
