"""The delegation policy of a caller's profile: which profiles its agent may ask. Pure.

Nothing that is not said is allowed: a profile without a policy asks nobody.
"""

from collections.abc import Mapping
from typing import Any

from cardbox_cli.store.profiles import ProfileEntry


def refusal_of(profile: Mapping[str, Any] | None, target: ProfileEntry) -> str | None:
    """Why an agent of `profile` may not ask one of `target`, as a sentence; None where it may.

    Other programs store what they like: a policy that cannot be read allows nothing.
    """
    policy = (profile or {}).get("delegation_policy")
    if not isinstance(policy, dict):
        return "the caller's profile has no delegation_policy: it may ask nobody"
    names, tags = policy.get("target_profiles"), policy.get("target_tags") or []
    if names is not None and (not isinstance(names, list) or target.name not in names):
        return f"the caller's delegation_policy has no {target.name!r} among its target_profiles"
    if tags and not (isinstance(tags, list) and any(tag in target.tags for tag in tags)):
        return f"the profile {target.name!r} has none of the target_tags of the caller's delegation_policy"
    return None
