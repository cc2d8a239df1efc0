"""The delegation policy: null allows all, a list those, nothing nobody; and tags on top."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cardbox_cli.orchestration.policy import refusal_of
from cardbox_cli.store.profiles import ProfileEntry

CASES = [
    (None, "has no delegation_policy: it may ask nobody"),
    ("all", "has no delegation_policy: it may ask nobody"),
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
def test_a_policy(policy: Any, refused: str | None) -> None:
    target = ProfileEntry(
        name="Analyst", profile_box_id="b", worker_target="w", tags=["numbers"], updated_at=datetime.now(UTC)
    )
    found = refusal_of({} if policy is None else {"delegation_policy": policy}, target)
    assert found is None if refused is None else refused in (found or "")
    assert refusal_of(None, target) is not None
