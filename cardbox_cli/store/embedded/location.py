"""Location of a home's server: its data, its socket and its account.

Owns the layout of folders, and the record `embedded.json`, which lets a command connect without a search.
Creates no folder. Runs no program, except that `plan_location` tests which folders the account may enter.
"""

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.faults import fault_point
from cardbox_cli.files import atomic_write, open_to_read, remove_leftover_files
from cardbox_cli.home import check_home
from cardbox_cli.settings import RUNTIME_DIR

if TYPE_CHECKING:
    from cardbox_cli.store.embedded.account import ServerAccount

# The folder for data of root's servers whose account cannot enter the home.
SYSTEM_FOLDER = Path("/var/lib/cbx")

PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
_MAX_SOCKET_PATH = 107 if sys.platform == "linux" else 103


@dataclass(frozen=True)
class Location:
    """Content of the record. `account` is the account that runs the server, or None if it has no name.

    `binaries` is the folder of the server's programs. `major` is the Postgres version that created the data.
    """

    data: Path
    socket: Path
    account: str | None
    binaries: Path
    major: int

    @property
    def log(self) -> Path:
        return self.data / "log"


def record_file(home: Path) -> Path:
    return home / "embedded.json"


def read_record(home: Path) -> Location | None:
    """Return the recorded location, or None if there is no record or if it is broken.

    Paths inside the home are relative, so that a home can be moved. Paths outside are only valid at its
    original path. Raises DatabaseUnavailable for a moved home with data outside, and for a failed read.
    """
    place = home
    try:
        check_home(home)
        place = record_file(home)
        with open_to_read(place) as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        hint = "set CBX_HOME to your own folder, or CBX_DATABASE_URL to a connection string"
        raise DatabaseUnavailable(f"cannot read {str(place)!r}: {exc.strerror}", hint=hint) from exc
    try:
        record = json.loads(text)
        folders = home / record["data"], home / record["socket"]
        location = Location(*folders, record["account"], Path(record["binaries"]), record["major"])
        made_for = record["home"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if made_for == str(home):
        return location
    if not location.data.is_relative_to(home):
        raise DatabaseUnavailable(
            f"{str(home)!r} was moved or copied from {made_for!r}, but its data is in {str(location.data)!r}",
            hint=f"move it back, or remove {str(record_file(home))!r} to start with an empty database",
        )
    return replace(location, socket=location.data.parent / "socket")


def write_record(home: Path, location: Location) -> None:
    """Record `location` atomically, so that a reader sees the complete old or new record."""
    record = {
        "home": str(home),
        "data": _relative_to_home(home, location.data),
        "socket": _relative_to_home(home, location.socket),
        "account": location.account,
        "binaries": str(location.binaries),
        "major": location.major,
    }
    remove_leftover_files(record_file(home))
    with atomic_write(record_file(home)) as file:
        if os.geteuid() == 0:  # root may serve the home of an ordinary user, who also reads the record
            owner = home.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(json.dumps(record, indent=2) + "\n")
        fault_point("record written")


def _relative_to_home(home: Path, path: Path) -> str:
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


def plan_location(home: Path, account: "ServerAccount", binaries: Path, major: int) -> Location:
    """Return the location for a new server of `home`."""
    place = home if not account.lent or account.can_enter(home) else system_folder(home)
    data = place / f"postgres-{major}"
    return Location(data, choose_socket(home, data, account), account.name, binaries, major)


def choose_socket(home: Path, data: Path, account: "ServerAccount") -> Path:
    """Return the folder of the socket: next to the data, or elsewhere if that path cannot hold a socket."""
    *candidates, short = [data.parent / "socket", *_short_folders(home, account)]
    return next(filter(_can_hold_socket, candidates), short)


def _can_hold_socket(folder: Path) -> bool:
    # libpq reads a comma as the end of one host and the start of the next.
    return len(os.fsencode(folder / SOCKET_NAME)) <= _MAX_SOCKET_PATH and "," not in str(folder)


def _short_folders(home: Path, account: "ServerAccount") -> list[Path]:
    """Return folders for a socket outside of the home. The last one always has a short path."""
    if account.lent:
        return [system_folder(home) / "socket"]
    import tempfile

    name = f"cbx-{account.uid}-{_digest(home)}"
    runtime = Path(RUNTIME_DIR.text() or "/nonexistent")
    usable = runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == account.uid
    return [*([runtime / name] if usable else []), Path(tempfile.gettempdir(), name), Path("/tmp", name)]


def system_folder(home: Path) -> Path:
    """Return the folder outside of `home` for root's server."""
    import re

    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", home.name).strip("-.")[:40]
    return SYSTEM_FOLDER / f"{slug or 'home'}-{_digest(home)}"


def _digest(home: Path) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
