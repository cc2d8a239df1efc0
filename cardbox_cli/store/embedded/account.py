"""The operating-system account of the server. Postgres refuses root, so root runs it as another account.

Owns the choice of the account, running programs as it, and creating folders for it. Never creates an account,
and never changes the mode or owner of a folder that cbx did not create.
"""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cardbox_cli.errors import DatabaseUnavailable, InvalidInput
from cardbox_cli.faults import fault_point
from cardbox_cli.files import atomic_directory
from cardbox_cli.settings import SERVER_USER

# Variables for the server. PG* variables and other exports of a shell or a CI job must not affect it.
_PASSED_VARIABLES = ("PATH", "LANG", "TZ")


@dataclass(frozen=True)
class ServerAccount:
    """An account of this machine. `lent` is True if we are root and switch to it."""

    name: str | None
    uid: int
    gid: int
    lent: bool

    def run(
        self, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` to its end as this account. By default, captures its output as text."""
        identity = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.lent else {}
        passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
        captured = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        return subprocess.run(
            [str(word) for word in command],
            env={**passed, **(environment or {})},
            cwd="/",
            text=True,
            errors="replace",
            check=False,
            **{**captured, **identity, **options},
        )

    def can_run(self, program: Path) -> bool:
        """Return whether this account may execute `program` and load its libraries."""
        try:
            return self.run([program, "--version"]).returncode == 0
        except PermissionError:
            return False

    def can_enter(self, folder: Path) -> bool:
        """Return whether this account may traverse `folder`, or the nearest parent that exists."""
        while not folder.exists():
            folder = folder.parent
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder]).returncode == 0

    def make_folder(self, path: Path, mode: int = 0o700) -> None:
        """Create `path` for this account. Owner and mode are set before the folder gets its final name."""
        with atomic_directory(path) as folder:
            folder.chmod(mode)
            self.give(folder)
            fault_point("folder begun")

    def give(self, path: Path) -> None:
        """Make this account the owner of `path`, which cbx created."""
        if self.lent:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


ROOT = ServerAccount("root", 0, 0, lent=False)


def account_for(environ: Mapping[str, str], owner: int | None = None) -> ServerAccount:
    """Return the account of the server: our own, or an existing unprivileged one if we are root.

    Root uses the account `owner` (the uid of existing data), or else CBX_SERVER_USER, postgres or nobody.
    """
    if os.geteuid() != 0:
        own = _entry(os.geteuid())
        return ServerAccount(own.pw_name if own else None, os.geteuid(), os.getegid(), lent=False)
    if owner:
        return _lend(_entry(owner), str(owner))
    if configured := SERVER_USER.text(environ):
        return _configured_account(configured)
    for name in ("postgres", "nobody"):
        if entry := _entry(name):
            return _lend(entry, name)
    raise DatabaseUnavailable(
        "Postgres does not run as root, and there is no account 'postgres' or 'nobody'",
        hint="set CBX_SERVER_USER to an unprivileged account, or run cbx as an ordinary user",
    )


def _configured_account(name: str) -> ServerAccount:
    entry = _entry(name)
    hint = "set it to an existing unprivileged account, such as 'nobody'"
    if entry is None:
        raise InvalidInput(f"CBX_SERVER_USER names an unknown account {name!r}", hint=hint)
    if entry.pw_uid == 0:
        raise InvalidInput(f"CBX_SERVER_USER is {name!r}, but Postgres refuses to run as root", hint=hint)
    return _lend(entry, name)


def _lend(entry: pwd.struct_passwd | None, owner: str) -> ServerAccount:
    if entry is None:
        raise DatabaseUnavailable(
            f"the embedded server's data belongs to uid {owner}, which has no account on this machine",
            hint="set CBX_HOME to another folder, or run cbx where that account exists",
        )
    return ServerAccount(entry.pw_name, entry.pw_uid, entry.pw_gid, lent=True)


def _entry(who: str | int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
    except KeyError:
        return None
