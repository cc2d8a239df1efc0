"""How many tokens a model holds, from a provider's table of those that it says it of.

By the whole name but for the mark of a snapshot: what goes on in another way is another model.
"""

import re
from collections.abc import Mapping

# `-2024-08-06`, `@20250514`, `-0613`, `-latest`; behind it a gateway's own version, as in `-v1:0`.
_SNAPSHOT = re.compile(r"(?:[-@](?:\d{4}-\d\d-\d\d|\d{8}|\d{4}|latest))?(?:-v\d+(?::\d+)?)?$")


def window_in(holding: Mapping[int, tuple[str, ...]], name: str) -> int | None:
    """The tokens among whose models there is one of this name, or of it without a snapshot's mark."""
    without_mark = _SNAPSHOT.sub("", name, count=1)
    for wanted in (name, without_mark):
        for tokens, names in holding.items():
            if wanted in names:
                return tokens
    return None
