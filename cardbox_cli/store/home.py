"""The folder where cbx keeps what is its own: the embedded server, the shell's history, what `@last` is."""

import os
from collections.abc import Mapping
from pathlib import Path


def default_home(environ: Mapping[str, str]) -> Path:
    """CBX_HOME, else XDG_DATA_HOME/cbx, else ~/.local/share/cbx. An empty variable counts as unset."""
    if home := environ.get("CBX_HOME"):
        return Path(os.path.abspath(home))
    shared = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(shared):  # XDG: a relative path is invalid, to be ignored
        shared = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "share")
    return Path(shared, "cbx")
