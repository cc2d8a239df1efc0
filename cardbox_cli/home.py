"""The folder where cbx keeps what is its own: the embedded server, the shell's history, what `@last` is."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from cardbox_cli.settings import DATA_HOME, HOME


def default_home(environ: Mapping[str, str]) -> Path:
    """CBX_HOME, else XDG_DATA_HOME/cbx, else ~/.local/share/cbx. An empty variable counts as unset."""
    if home := HOME.text(environ):
        return Path(os.path.abspath(home))
    shared = DATA_HOME.text(environ)
    if not os.path.isabs(shared):  # XDG: a relative path is invalid, to be ignored
        shared = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "share")
    return Path(shared, "cbx")


def make_home(home: Path) -> None:
    """Make CBX_HOME unless it is there: private, save that root lets the server's account pass through."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(mode)
    except FileExistsError:
        if not home.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder") from None
        return
    home.chmod(mode)  # whatever the umask
