"""The layout on disk: which chats a folder has, reading their files, and writing them.

Nothing below the folder that a person named is reached through a link. A file is replaced whole or not at
all, and only where nothing in it is lost, unless that is asked for.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cardbox_cli.chat.files import reading_and_writing, records
from cardbox_cli.errors import Conflict, InvalidInput, NotFound
from cardbox_cli.files import open_within, replacing, sweep_files
from cardbox_cli.limits import INPUT_SIZE
from cardbox_cli.model import exact_json

_FOLDERS = ("conversations", "contexts", "contexts/archive", "memory")
_PRIVATE = 0o700


def root_of(folder: Path) -> Path:
    """The folder that holds `.ship`: the one that is named, or that above where `.ship` itself is."""
    if folder.name == records.SHIP:
        return folder.parent
    return folder.absolute().parent if folder.absolute().name == records.SHIP else folder


def chat_folders(root: Path) -> tuple[dict[str, Path], list[str]]:
    """The folders of the chats below a project's folder, by chat key; and what else there is beside them.

    Both in the order of their names. Raises NotFound where there is no layout.
    """
    ship = root / records.SHIP
    if not _is_folder(ship, root):
        raise NotFound(f"no folder {str(ship)!r}", hint="name the folder of a project that holds one")
    chats = root / records.CHATS
    if not _is_folder(chats, root):
        return {}, []
    found: dict[str, Path] = {}
    others: list[str] = []
    for name in _names(chats):
        chat_key = records.key_of(name)
        if chat_key is not None and _is_folder(chats / name, root):
            found[chat_key] = chats / name
        elif not name.startswith("."):
            others.append(f"{records.CHATS}/{exact_json.storable_text(name)}")
    return found, others


def read_files(folder: Path, root: Path) -> dict[str, bytes]:
    """The files of a chat, by their names below its folder. Raises InvalidInput naming one."""
    return {
        f"{below}/{name}": data
        for below in _FOLDERS
        if _is_folder(folder / below, root)
        for name, data in _files(folder / below)
    }


def read_profiles(root: Path) -> dict[str, bytes]:
    """The files of the personas, by name. Raises InvalidInput naming one."""
    folder = root / records.PROFILES
    if not _is_folder(folder, root):
        return {}
    return {name: data for name, data in _files(folder) if records.persona_of(name) is not None}


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a folder by name, as it can be shown; those that begin with a dot are nobody's."""
    for name in _names(folder):
        if not name.startswith(".") and not os.path.isdir(folder / name):
            yield exact_json.storable_text(name), _read(folder / name)


def _names(folder: Path) -> list[str]:
    with _reading(folder):
        return sorted(os.listdir(folder))


def _read(path: Path) -> bytes:
    most = INPUT_SIZE.value << 20
    with _reading(path), open_within(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InvalidInput(f"{path} is larger than {INPUT_SIZE}", hint="split it")
    return data


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What the system does not let us read is an error that names it."""
    try:
        yield
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            hint = "put the file itself into the folder, or name the folder that it leads to"
            raise InvalidInput(f"{str(path)!r} is a link, which is not followed", hint=hint) from exc
        raise InvalidInput(f"cannot read {str(path)!r}: {exc.strerror}") from exc


def _is_folder(path: Path, root: Path) -> bool:
    """Whether there is such a folder below `root`. Raises InvalidInput where a link leads to it, and where
    nobody can be told.
    """
    with _reading(path):
        for each in [path, *path.parents]:
            if each == root:
                break
            if each.is_symlink():
                hint = "put the folder itself there, or name the one that it leads to"
                raise InvalidInput(f"{str(each)!r} is a link, which is not followed", hint=hint)
        return path.is_dir()


def changes_of(folder: Path, root: Path, files: Mapping[str, str], *, replace: bool) -> dict[str, str]:
    """Those of the files that are not so below a folder of `root`. Writes nothing.

    Raises Conflict where something would be lost, unless told to `replace`; InvalidInput for a link.
    """
    _check_within(files)
    changed = {}
    for name, text in files.items():
        there = _there(folder / name, root)
        if there is not None and reading_and_writing.is_same(name, there, text):
            continue
        if there is not None and not replace:
            _check_loss(folder / name, name, there, files)
        changed[name] = text
    return changed


def _check_within(files: Iterable[str]) -> None:
    """Raise InvalidInput for a name that leads out of the folder that it is a name in."""
    for name in files:
        if name.startswith("/") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise InvalidInput(f"no file of a folder can be called {name!r}", hint="nothing was written")


def write_files(folder: Path, root: Path, files: Mapping[str, str]) -> None:
    """Write files below a folder of `root`, each whole or not at all. Raises InvalidInput where it cannot."""
    _check_within(files)
    for name, text in files.items():
        _write(folder / name, root, text)


def _there(path: Path, root: Path) -> bytes | None:
    """What is in a file; None where there is none."""
    if not _is_folder(path.parent, root) or not os.path.lexists(path):
        return None
    return _read(path)


def _check_loss(path: Path, name: str, there: bytes, files: Mapping[str, str]) -> None:
    what = reading_and_writing.lost(name, there, files[name], all_files=files)
    if what is not None:
        raise Conflict(
            f"{str(path)!r} {what}; nothing was written",
            hint="import it first, choose another folder, or replace such files with --replace",
        )


def _write(path: Path, root: Path, text: str) -> None:
    try:
        _make_folders(path.parent)
        _is_folder(path.parent, root)
        sweep_files(path)
        with replacing(path) as file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(text)
    except OSError as exc:
        hint = "choose a place that you may write to and that has room"
        raise InvalidInput(f"cannot write {str(path)!r}: {exc.strerror}", hint=hint) from exc


def _make_folders(path: Path) -> None:
    """Make a folder and those above it, as private ones where they are new."""
    if not path.is_dir():
        _make_folders(path.parent)
        path.mkdir(_PRIVATE, exist_ok=True)
