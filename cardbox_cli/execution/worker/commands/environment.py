"""What the commands of a worker get of its own environment: a short list, and what the operator names.

Never the address of the database or of NATS, or a provider's key, unless somebody names its variable.
"""

import os
from collections.abc import Collection, Mapping

PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")


def passed_on(names: Collection[str] = (), environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that are passed on, as far as they are set: those of the list, and those of `names`."""
    return {name: environ[name] for name in (*PASSED_ON, *names) if name in environ}
