"""Where the server of a home lies: its data, its socket, the account that it runs as; and the record of it.

Owns the layout and `embedded.json`, the record that a command reads to connect without a search. Makes no
folder and runs no program, save that `plan` asks which folders the account may enter.
"""

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.faults import passing
from cardbox_cli.files import open_to_read, replacing, sweep_files
from cardbox_cli.home import check_home
from cardbox_cli.settings import RUNTIME_DIR

if TYPE_CHECKING:
    from cardbox_cli.store.embedded.account import Account

# Where root keeps what the account cannot reach inside the home.
SYSTEM_FOLDER = Path("/var/lib/cbx")

PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
_LONGEST_SOCKET = 107 if sys.platform == "linux" else 103


@dataclass(frozen=True)
class Location:
    """What the record says. `account` is the name of the account whose process the server is, if it has one.

    `binaries` is the folder whose `postgres` serves the data, `major` the version that made them.
    """

    data: Path
    socket: Path
    account: str | None
    binaries: Path
    major: int

    @property
    def log(self) -> Path:
        """The folder of the server's log files."""
        return self.data / "log"


def record_file(home: Path) -> Path:
    """The file that holds the record of `home`."""
    return home / "embedded.json"


def read_record(home: Path) -> Location | None:
    """The recorded location; None when there is no record, or a broken one.

    What lies inside the home is recorded relative to it, so that a home may be moved. What lies outside
    belongs to the home at the path that it was made for. Raises DatabaseUnavailable when data lie there,
    and when the record may not be read.
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
        raise DatabaseUnavailable(
            f"cannot read {str(place)!r}: {exc.strerror}",
            hint="set CBX_HOME to a folder of your own, or name a database in CBX_DATABASE_URL",
        ) from exc
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
            f"{str(home)!r} was moved or copied from {made_for!r}; its data stayed in {str(location.data)!r}",
            hint=f"move it back, or remove {str(record_file(home))!r} to begin afresh here",
        )
    return replace(location, socket=location.data.parent / "socket")


def write_record(home: Path, location: Location) -> None:
    """Record `location`; a reader sees the old record or the new one, whole."""
    record = {
        "home": str(home),
        "data": _seen_from(home, location.data),
        "socket": _seen_from(home, location.socket),
        "account": location.account,
        "binaries": str(location.binaries),
        "major": location.major,
    }
    sweep_files(record_file(home))
    with replacing(record_file(home)) as file:
        if os.geteuid() == 0:  # root may serve the home of an ordinary user, who reads it, too
            owner = home.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(json.dumps(record, indent=2) + "\n")
        passing("record written")


def _seen_from(home: Path, path: Path) -> str:
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


def plan(home: Path, account: "Account", binaries: Path, major: int) -> Location:
    """The location that a server of `home` gets when it is made now."""
    place = home if not account.lent or account.can_enter(home) else system_place(home)
    data = place / f"postgres-{major}"
    return Location(data, choose_socket(home, data, account), account.name, binaries, major)


def choose_socket(home: Path, data: Path, account: "Account") -> Path:
    """The folder of the socket: beside the data where its path is short enough, else a short one."""
    *candidates, short = [data.parent / "socket", *_short_folders(home, account)]
    return next(filter(_can_hold_socket, candidates), short)


def _can_hold_socket(folder: Path) -> bool:
    # libpq reads a comma as the end of one host and the start of the next.
    return len(os.fsencode(folder / SOCKET_NAME)) <= _LONGEST_SOCKET and "," not in str(folder)


def _short_folders(home: Path, account: "Account") -> list[Path]:
    """Where a socket may lie outside of the home. The last has room for one, whatever the others are."""
    if account.lent:
        return [system_place(home) / "socket"]
    import tempfile

    name = f"cbx-{account.uid}-{_digest(home)}"
    runtime = Path(RUNTIME_DIR.text() or "/nonexistent")
    usable = runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == account.uid
    return [*([runtime / name] if usable else []), Path(tempfile.gettempdir(), name), Path("/tmp", name)]


def system_place(home: Path) -> Path:
    """The folder outside of `home` that belongs to it, for root."""
    import re

    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", home.name).strip("-.")[:40]
    return SYSTEM_FOLDER / f"{slug or 'home'}-{_digest(home)}"


def _digest(home: Path) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
