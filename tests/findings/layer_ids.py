"""Cases of audit/rules/layer_ids.py. The target has 61 layers."""

from __future__ import annotations

from tests.findings.case import Case
from tests.findings.drafters import ids, kimi

_TWO_STATES = {"fc.weight": ("BF16", (7168, 2 * 7168))}

CASES = (
    Case("IDS-MISSING", fires=kimi(eagle_config={}), silent=kimi(eagle_config=ids(1, 29, 57))),
    # Two states, for which no engine has a default; and a drafter that reads no such states at all.
    Case(
        "IDS-MISSING",
        fires=kimi(eagle_config={}, added=_TWO_STATES),
        silent=kimi(eagle_config={"use_aux_hidden_state": False}, left_out=["fc.weight"]),
    ),
    # Boundary 61, the last layer's output, is a state of the target; so is the embedding output, -1 as an output.
    Case("IDS-RANGE", fires=kimi(eagle_config=ids(1, 29, 62)), silent=kimi(eagle_config=ids(1, 29, 61))),
    Case("IDS-RANGE", fires=kimi(eagle_config=ids(-1, 29, 61)), silent=kimi(eagle_config=ids(-1, 29, 57))),
    Case("IDS-DUP", fires=kimi(eagle_config=ids(2, 2, 58)), silent=kimi(eagle_config=ids(2, 3, 58))),
    Case("IDS-ORDER", fires=kimi(eagle_config=ids(58, 2, 30)), silent=kimi(eagle_config=ids(2, 30, 58))),
    Case("IDS-AMBIG", fires=kimi(eagle_config=ids(2, 30, 58)), silent=kimi(eagle_config=ids(1, 29, 57))),
    # Another order is not another reading: IDS-ORDER speaks of it.
    Case(
        "IDS-AMBIG",
        fires=kimi(eagle_config=ids(58, 2, 30), architectures=["Eagle3LlamaForCausalLM"]),
        silent=kimi(eagle_config=ids(57, 1, 29), architectures=["Eagle3LlamaForCausalLM"]),
    ),
    # Once the user has said which, nothing is ambiguous; an edit notes it in the config.
    Case(
        "IDS-AMBIG",
        fires=kimi(eagle_config=ids(2, 30, 58)),
        silent=kimi(eagle_config=ids(2, 30, 58), drafter_audit={"boundaries": [3, 31, 59]}),
    ),
    # Outputs of layers for SGLang, the boundaries that they are for vLLM: one meaning under two keys.
    Case(
        "IDS-CONFLICT",
        fires=kimi(eagle_config=ids(1, 29, 57), eagle_aux_hidden_state_layer_ids=[2, 31, 58]),
        silent=kimi(eagle_config=ids(1, 29, 57), eagle_aux_hidden_state_layer_ids=[2, 30, 58]),
    ),
    Case("AUX-COUNT", fires=kimi(num_aux_hidden_states=4), silent=kimi(num_aux_hidden_states=3)),
)
