"""What vLLM does with the tensors of an EAGLE-3 drafter, stored or not, and with the widths that its config gives."""

from __future__ import annotations

from drafter_audit.engines.vllm.proofs import DRAFT, LATENT, PROPOSER, V2, deduced, read, run

FUSION = (
    read("slots_three", "fc takes three states", f"0.21.0 {DRAFT}:176", None, "0.22.0"),
    run(
        "slots_counted",
        "fc takes num_aux_hidden_states states, else as many as eagle_config lists ids, else three; the Qwen3 class "
        "counts the ids of the top level too",
        f"0.33.0 {DRAFT}:210-216, {LATENT}:189, qwen3_eagle3.py:202-209",
        "0.22.0",
    ),
    run(
        "states_misfit",
        "fc must be as wide as the captured states together",
        f"0.33.0 {PROPOSER}:552",
    ),
    run(
        "target_hidden_size_null",
        "target_hidden_size must be absent or a number: null is multiplied",
        f"0.33.0 {DRAFT}:218-221",
    ),
    run(
        "noaux_last_state",
        "with eagle_config.use_aux_hidden_state false the last state alone is read, after the final norm",
        f"0.33.0 {PROPOSER}:1674-1687, {V2}:15-22",
        "0.12.0",
    ),
    run(
        "noaux_needs_switch",
        "only eagle_config.use_aux_hidden_state false makes it read the last state; else it reads several through fc",
        f"0.12.0 {DRAFT}:146",
    ),
    deduced(
        "noaux_fails_v2",
        "runner V2 hands over three states although eagle_config.use_aux_hidden_state is false",
        "0.32.0 v1/worker/gpu/model_runner.py:307",
        "0.17.0",
        "0.33.0",
    ),
)

WEIGHTS = (
    run(
        "tensor_unknown",
        "a stored tensor that its model does not have stops the loading",
        "0.33.0 model_executor/models/utils.py:443; 0.24.0 model_executor/models/llama_eagle3.py:284",
    ),
    run(
        "prefix_doubled",
        "model. is put before every stored name but the head's and the map's: model.fc becomes model.model.fc",
        f"0.33.0 {DRAFT}:444",
    ),
    run("map_offset", "d2t holds offsets: target id = draft id + d2t", f"0.33.0 {DRAFT}:385"),
    run(
        "map_missing",
        "without d2t a draft id is taken for the target's id",
        f"0.33.0 {DRAFT}:341, 459",
    ),
    run(
        "map_unneeded",
        "d2t of a drafter with the target's whole vocabulary has no parameter to load into",
        f"0.30.0 {DRAFT}:345",
        "0.30.0",
    ),
    run(
        "bias_skipped",
        "a stored bias that its model does not have is passed over, and drafts are computed without it",
        "0.33.0 model_executor/models/utils.py:458, 0.25.0:402; 0.24.0 stops at it",
        "0.25.0",
    ),
    run(
        "missing_weight",
        "a weight or bias that no tensor fills keeps what its memory held before, and the loading does not complain: "
        "drafts are chance, and differ from start to start",
        f"0.33.0 {DRAFT}:467 (nothing is returned, so nothing is checked), model_executor/layers/linear.py:194; "
        "before 0.11.1 also a head, 0.10.2 v1/spec_decode/eagle.py:653",
    ),
    run(
        "missing_norm",
        "a norm that no tensor fills is one of ones, and the loading does not complain",
        f"0.33.0 {DRAFT}:467, model_executor/layers/layernorm.py:247",
    ),
    run(
        "embedding_rows",
        "the embedding has vocab_size rows",
        "0.33.0 model_executor/layers/vocab_parallel_embedding.py:515, 0.10.2:395",
    ),
    deduced(
        "head_rows",
        "the head has draft_vocab_size rows, vocab_size where the config names none",
        f"0.33.0 {DRAFT}:314-316",
    ),
    run("head_from_file", "a stored head is the drafter's own", f"0.33.0 {PROPOSER}:1516"),
    run(
        "head_from_target",
        "a missing head is the target's",
        f"0.33.0 {PROPOSER}:1518; v1/worker/gpu/spec_decode/eagle/utils.py:107; 0.11.2 v1/spec_decode/eagle.py:1059",
        "0.11.1",
    ),
    run(
        "head_cut",
        "a missing head over a reduced vocabulary is the target's, cut to its first draft_vocab_size rows; d2t maps "
        "these to other tokens than they score: in the run no draft was accepted",
        f"0.33.0 model_executor/layers/logits_processor.py:198, {DRAFT}:385-396; 0.11.2 v1/spec_decode/eagle.py:1059",
        "0.11.1",
    ),
    run("tie_unread", "tie_word_embeddings is not read, the head is the file's or the target's", f"0.33.0 {DRAFT}"),
    run(
        "embedding_kept",
        "a stored embedding that differs from the target's is kept",
        f"0.33.0 {PROPOSER}:1437-1470; v1/worker/gpu/spec_decode/eagle/utils.py:18",
        "0.11.1",
    ),
    read(
        "embedding_replaced",
        "a stored embedding of the target's shape is replaced by the target's",
        "0.11.0 v1/spec_decode/eagle.py:866",
        None,
        "0.11.1",
    ),
    run("embedding_from_target", "a missing embedding is the target's", f"0.33.0 {PROPOSER}:1440"),
    deduced(
        "embedding_width",
        "the target's embedding is of another width and cannot stand in for the missing one",
        f"0.33.0 {PROPOSER}:1476-1499",
    ),
    read("one_layer", "the drafter has one layer", "0.11.0 model_executor/models/llama_eagle3.py", None, "0.11.1"),
    run(
        "deeper_width",
        "layers after the first read the hidden state alone, as wide as it is",
        f"0.33.0 {DRAFT}:82, {LATENT}:82, qwen3_eagle3.py:66; 0.12.0 {DRAFT}:53",
        "0.11.1",
    ),
    run(
        "deeper_norm",
        "layers after the first use input_layernorm; where only hidden_norm is stored it stays at ones",
        f"0.33.0 {DRAFT}:138",
        "0.11.1",
    ),
)
