"""The delegation policy of a caller's profile: which profiles its agent may ask. Pure.

Nothing that is not said is allowed: a profile without a policy asks nobody.
"""

from collections.abc import Collection, Mapping
from typing import Any


def refusal_of(profile: Mapping[str, Any] | None, name: str, tags: Collection[str]) -> str | None:
    """Say in a sentence why an agent of `profile` may not ask one of the profile `name`; None if it may.

    Other programs store what they like: a policy that cannot be read allows nothing.
    """
    policy = (profile or {}).get("delegation_policy")
    if not isinstance(policy, dict):
        return "the caller's profile has no delegation_policy: it may ask nobody"
    names, wanted = policy.get("target_profiles"), policy.get("target_tags") or []
    if names is not None and (not isinstance(names, list) or name not in names):
        return f"the caller's delegation_policy has no {name!r} among its target_profiles"
    if wanted and not (isinstance(wanted, list) and any(tag in tags for tag in wanted)):
        return f"the profile {name!r} has none of the target_tags of the caller's delegation_policy"
    return None
