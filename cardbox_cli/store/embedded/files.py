"""The folders of a server. A kill during their creation leaves nothing that makes a later start fail.
A data folder of cbx has a marker file. cbx neither uses nor deletes a data folder without it.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cardbox_cli.errors import Conflict, DatabaseUnavailable
from cardbox_cli.faults import fault_point
from cardbox_cli.files import atomic_directory, atomic_write, remove_leftover_folders
from cardbox_cli.store.embedded.account import ROOT, ServerAccount
from cardbox_cli.store.embedded.dialing import SUPERUSER
from cardbox_cli.store.embedded.location import SOCKET_NAME, SYSTEM_FOLDER, Location

MARKER = "made-by-cbx"


def make_folders(
    home: Path, location: Location, account: ServerAccount, lock: int, announce: Callable[[str], None]
) -> None:
    """Create the data and socket folders if missing. `lock` is the descriptor of the home's held lock."""
    for folder in (location.data, location.socket):
        remove_leftover_folders(folder)
        if folder.is_relative_to(SYSTEM_FOLDER):
            _make_system_folder(SYSTEM_FOLDER, 0o755)
            remove_leftover_folders(folder.parent)
            _make_system_folder(folder.parent, 0o711)
    _check_or_make_socket_folder(location.socket, account)
    if not location.data.exists():
        lent = (
            f"running as root: Postgres runs as the account {account.name!r}; its data is in {location.data}"
        )
        own = f"first use: creating a Postgres {location.major} database in {location.data}"
        announce(lent if account.lent else own)
        _make_data(home, location, account, lock)
    elif not _has_marker(location.data):
        hint = "set CBX_HOME to another folder, or move it away"
        raise DatabaseUnavailable(f"{str(location.data)!r} was not created by cbx", hint=hint)


def reject_hosts(data: Path, account: ServerAccount) -> None:
    """Make a stopped server reject TCP connections, which the rules of an older cbx would trust."""
    rules = data / "pg_hba.conf"
    text = rules.read_text(encoding="utf-8", errors="surrogateescape")
    closed = _TRUSTED_HOST.sub(r"\1reject", text)
    if closed != text:
        with atomic_write(rules) as file:
            os.fchown(file.fileno(), account.uid, account.gid)
            file.write(closed)


_TRUSTED_HOST = re.compile(r"(?m)^(host\S*(?:[ \t]+\S+){3}[ \t]+)trust[ \t]*$")


def check_removable(location: Location) -> None:
    """Raise Conflict unless cbx created the recorded data folder."""
    if os.path.lexists(location.data) and not _has_marker(location.data):
        what = f"{str(location.data)!r} does not look like data of cbx; nothing was removed"
        raise Conflict(what, hint="check the folder, and delete it yourself if you do not need it")


def remove_folders(location: Location) -> list[Path]:
    """Delete the data and socket folders of a stopped server. Returns the deleted folders."""
    check_removable(location)
    for folder in (location.data, location.socket):
        remove_leftover_folders(folder)
    removed = [location.data] if location.data.exists() else []
    for folder in removed:
        shutil.rmtree(folder)
    if _remove_socket_folder(location.socket):
        removed.append(location.socket)
    for place in {location.data.parent, location.socket.parent}:
        if place.parent == SYSTEM_FOLDER:
            with suppress(OSError):
                place.rmdir()
    return removed


def _make_system_folder(folder: Path, mode: int) -> None:
    try:
        if not folder.is_dir():
            ROOT.make_folder(folder, mode)
    except OSError:
        if not folder.is_dir():  # otherwise another root command created it at the same time
            raise


def _make_data(home: Path, location: Location, account: ServerAccount, lock: int) -> None:
    with atomic_directory(location.data) as unfinished:
        account.give(unfinished)
        fault_point("data begun")
        _initdb(unfinished, location, account, lock)
        fault_point("data initialised")
        marker, text = unfinished / MARKER, f"The data of the embedded Postgres of {home}\n"
        with atomic_write(marker) as file:
            file.write(text.encode(errors="replace").decode())
        account.give(marker)
        fault_point("data marked")
    fault_point("data in place")
    _sync(location.data.parent)


def _initdb(folder: Path, location: Location, account: ServerAccount, lock: int) -> None:
    provider = ["--locale-provider=builtin"] if location.major >= 17 else []
    done = account.run(
        [
            location.binaries / "initdb",
            f"--pgdata={folder}",
            f"--username={SUPERUSER}",
            *("--encoding=UTF8", "--locale=C.UTF-8", *provider),
            # Only this account can enter the socket's folder: its mode is 0700.
            "--auth-local=trust",
            "--auth-host=reject",
            "--no-instructions",
        ],
        # If we are killed, an initdb that still runs holds the lock, so that no command deletes its folder.
        pass_fds=(lock,),
    )
    if done.returncode != 0:
        problems = [line for line in done.stdout.splitlines() if "error:" in line or "FATAL:" in line]
        raise DatabaseUnavailable(
            f"the embedded Postgres cannot create its data in {str(location.data.parent)!r}: "
            + ("; ".join(problems) or done.stdout.strip()),
            hint="check the folder and its disk, or set CBX_HOME to another folder",
        )


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_or_make_socket_folder(folder: Path, account: ServerAccount) -> None:
    try:
        status = folder.lstat()
    except FileNotFoundError:
        account.make_folder(folder)
        return
    if stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISDIR(status.st_mode):
        problem = "is not a folder"
    elif status.st_uid != account.uid:
        problem = f"belongs to uid {status.st_uid}, not to {account.name or account.uid}"
    elif status.st_mode & 0o077:
        problem = f"is accessible to other users (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    hint = "remove it if it is yours, or set CBX_HOME to another folder"
    raise DatabaseUnavailable(f"the folder for the server's socket, {str(folder)!r}, {problem}", hint=hint)


def _remove_socket_folder(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
        (folder / name).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:  # it contains a file that is not the server's
        return False
    return True


def _has_marker(data: Path) -> bool:
    return not data.is_symlink() and (data / MARKER).is_file() and (data / "PG_VERSION").is_file()
