"""The folder for what belongs to cbx: the embedded server, the shell's history, the meaning of `@last`."""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cardbox_cli.settings import DATA_HOME, HOME


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    if home := HOME.text(environ):
        return Path(os.path.abspath(home))
    shared = DATA_HOME.text(environ)
    if not os.path.isabs(shared):  # XDG: a relative path is invalid and ignored
        shared = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "share")
    return Path(shared, "cbx")


def make_home(home: Path) -> None:
    """Create CBX_HOME if it is missing: private, except that root lets the server's account pass through.

    Raises OSError, as `check_home` does.
    """
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        _make_parents(home.parent, mode)
        home.mkdir(mode)
    except FileExistsError:
        check_home(home)
        return
    home.chmod(mode)  # independent of the umask


def check_home(home: Path) -> None:
    """Raise OSError unless CBX_HOME is missing, or a folder of the caller that no other account can access.

    Its files decide which programs run and what ids mean. Root may use the folder of another account.
    """
    try:
        status = home.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    fault = _fault(status)
    if fault is not None:
        raise fault


def _fault(status: os.stat_result) -> OSError | None:
    if stat.S_ISLNK(status.st_mode):
        return OSError(errno.ELOOP, "it is a symbolic link; set CBX_HOME to the folder it points to")
    if not stat.S_ISDIR(status.st_mode):
        return NotADirectoryError(errno.ENOTDIR, "it is not a folder")
    if os.geteuid() not in (0, status.st_uid):
        return PermissionError(errno.EPERM, f"it belongs to uid {status.st_uid}, not to you")
    if status.st_mode & 0o066:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        return PermissionError(errno.EPERM, f"other users can access it (mode {mode}); run `chmod 700` on it")
    return None


def _make_parents(folder: Path, mode: int) -> None:
    """Create the missing parents of a folder, none of them more accessible than the mode."""
    if not folder.exists():
        _make_parents(folder.parent, mode)
        folder.mkdir(mode, exist_ok=True)
