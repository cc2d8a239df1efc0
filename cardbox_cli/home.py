"""The folder where cbx keeps what is its own: the embedded server, the shell's history, what `@last` is."""

import errno
import os
import stat
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
    """Make CBX_HOME unless it is there: private, save that root lets the server's account pass through.

    Raises OSError, as `check_home` does.
    """
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        _make_parents(home.parent, mode)
        home.mkdir(mode)
    except FileExistsError:
        check_home(home)
        return
    home.chmod(mode)  # whatever the umask


def check_home(home: Path) -> None:
    """Raise OSError unless CBX_HOME is missing, or a folder of the caller, whom root may stand in for, that
    nobody else can look into: what lies in it says which programs run, and what commands are about.
    """
    try:
        found = home.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    fault = _fault(found)
    if fault is not None:
        raise fault


def _fault(found: os.stat_result) -> OSError | None:
    if stat.S_ISLNK(found.st_mode):
        return OSError(errno.ELOOP, "it is a symbolic link: name the folder that it leads to")
    if not stat.S_ISDIR(found.st_mode):
        return NotADirectoryError(errno.ENOTDIR, "it is not a folder")
    if os.geteuid() not in (0, found.st_uid):
        return PermissionError(errno.EPERM, f"it belongs to the uid {found.st_uid}, not to you")
    if found.st_mode & 0o066:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        return PermissionError(errno.EPERM, f"it is open to others (mode {mode}); `chmod 700` closes it")
    return None


def _make_parents(folder: Path, mode: int) -> None:
    """Make the folder, and those above it, that are missing: none of them is as open as the umask lets."""
    if not folder.exists():
        _make_parents(folder.parent, mode)
        folder.mkdir(mode, exist_ok=True)
