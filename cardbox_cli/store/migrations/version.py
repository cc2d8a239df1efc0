"""The schema version of this cbx: the highest number of a file here. There is no other constant for it.

Every command asks for it, so that this lists a folder, reads no file and loads nothing.
"""

import os
from functools import cache

FOLDER = os.path.dirname(__file__)


@cache
def numbered() -> dict[int, str]:
    """The names of the files by their numbers, in order."""
    names = sorted(name for name in os.listdir(FOLDER) if name.endswith(".sql"))
    return {int(name.partition("_")[0]): name for name in names}


def newest() -> int:
    """The version that an upgrade leads to."""
    return max(numbered())
