"""The delegation policy: null allows all, a list those, nothing nobody; and tags on top."""

from typing import Any

import pytest

from cardbox_cli.orchestration.delegation import policy_refusal

CASES = [
    (None, "has no delegation_policy, so it may not delegate"),
    ("all", "has no delegation_policy, so it may not delegate"),
    ({}, None),
    ({"target_profiles": None}, None),
    ({"target_profiles": []}, "has no 'Analyst' among its target_profiles"),
    ({"target_profiles": ["Analyst"]}, None),
    ({"target_profiles": ["analyst"]}, "has no 'Analyst' among its target_profiles"),
    ({"target_profiles": "Analyst"}, "has no 'Analyst' among its target_profiles"),
    ({"target_tags": []}, None),
    ({"target_tags": None}, None),
    ({"target_tags": ["numbers", "law"]}, None),
    ({"target_tags": ["law"]}, "has none of the target_tags"),
    ({"target_tags": "numbers"}, "has none of the target_tags"),
    ({"target_profiles": ["Analyst"], "target_tags": ["law"]}, "has none of the target_tags"),
    ({"target_profiles": [], "target_tags": ["numbers"]}, "has no 'Analyst' among its target_profiles"),
]


@pytest.mark.parametrize(("policy", "refused"), CASES)
def test_a_policy_allows_or_refuses_a_target(policy: Any, refused: str | None) -> None:
    found = policy_refusal({} if policy is None else {"delegation_policy": policy}, "Analyst", ["numbers"])
    assert found is None if refused is None else refused in (found or "")
    assert policy_refusal(None, "Analyst", ["numbers"]) is not None
