"""As whom the server's programs run. Postgres refuses root, so root lends it an account that exists.

Owns the choice of the account, running programs as it, and making folders for it. Never creates an account,
and never changes the mode or owner of a folder that cbx did not make.
"""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cardbox_cli.errors import DatabaseUnavailable, InvalidInput
from cardbox_cli.faults import passing
from cardbox_cli.files import building
from cardbox_cli.settings import SERVER_USER

# The server must not be bent by PG* variables, nor by what else a shell or a CI job exports.
_PASSED_VARIABLES = ("PATH", "LANG", "TZ")


@dataclass(frozen=True)
class Account:
    """An account of this machine. `lent` when we are root and have to switch to it."""

    name: str | None
    uid: int
    gid: int
    lent: bool

    def run(
        self, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` to its end as this account. Output is captured as text, unless `options` say else."""
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
        """Whether this account may execute `program` and load the libraries that it needs."""
        try:
            return self.run([program, "--version"]).returncode == 0
        except PermissionError:
            return False

    def can_enter(self, folder: Path) -> bool:
        """Whether this account may traverse `folder`; of a missing one, whether it may where it would be."""
        while not folder.exists():
            folder = folder.parent
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder]).returncode == 0

    def make_folder(self, path: Path, mode: int = 0o700) -> None:
        """Make `path` for this account: with its owner and mode from the moment that it bears its name."""
        with building(path) as made:
            made.chmod(mode)
            self.give(made)
            passing("folder begun")

    def give(self, path: Path) -> None:
        """Make this account the owner of `path`, which cbx made."""
        if self.lent:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


ROOT = Account("root", 0, 0, lent=False)


def account_for(environ: Mapping[str, str], owner: int | None = None) -> Account:
    """The account that the server runs as: our own, or as root an unprivileged one that exists.

    As root: `owner`, the uid that existing data belongs to, else CBX_SERVER_USER, else postgres, else nobody.
    """
    if os.geteuid() != 0:
        own = _entry(os.geteuid())
        return Account(own.pw_name if own else None, os.geteuid(), os.getegid(), lent=False)
    if owner:
        return _lent(_entry(owner), str(owner))
    if asked := SERVER_USER.text(environ):
        return _asked(asked)
    for name in ("postgres", "nobody"):
        if entry := _entry(name):
            return _lent(entry, name)
    raise DatabaseUnavailable(
        "running as root, and there is no account 'postgres' or 'nobody' for Postgres to run as",
        hint="name an unprivileged account in CBX_SERVER_USER, or run cbx as an ordinary user",
    )


def _asked(name: str) -> Account:
    entry = _entry(name)
    hint = "name an existing unprivileged account, such as 'nobody'"
    if entry is None:
        raise InvalidInput(f"CBX_SERVER_USER names {name!r}, and there is no such account", hint=hint)
    if entry.pw_uid == 0:
        raise InvalidInput(f"CBX_SERVER_USER names {name!r}, and Postgres refuses to run as root", hint=hint)
    return _lent(entry, name)


def _lent(entry: pwd.struct_passwd | None, wanted: str) -> Account:
    if entry is None:
        raise DatabaseUnavailable(
            f"the embedded server's data belongs to the uid {wanted}, which has no account here",
            hint="run cbx where that account exists, or set CBX_HOME to another folder",
        )
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, lent=True)


def _entry(who: str | int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
    except KeyError:
        return None
