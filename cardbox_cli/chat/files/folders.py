"""The `.ship` layout on disk: finding the chats of a folder, reading their files, and writing them.

Below the folder that the user names, symbolic links are not followed. A file is replaced atomically, and only
if no content is lost, unless the user passes `--replace`.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cardbox_cli.chat.files import layout_files, records
from cardbox_cli.errors import Conflict, InvalidInput, NotFound
from cardbox_cli.files import atomic_write, open_regular_file, remove_leftover_files
from cardbox_cli.limits import INPUT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.text.error_messages import short_repr

_FOLDERS = ("conversations", "contexts", "contexts/archive", "memory")
_PRIVATE_MODE = 0o700


def project_root(folder: Path) -> Path:
    """Return the folder that contains `.ship`: the given one, or its parent if it is `.ship` itself."""
    if folder.name == records.SHIP:
        return folder.parent
    return folder.absolute().parent if folder.absolute().name == records.SHIP else folder


def find_chat_folders(root: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the folders of the chats by chat key, and the other entries next to them, both sorted by name.

    Raises NotFound if the project's folder has no `.ship`.
    """
    ship = root / records.SHIP
    if not _is_folder(ship, root):
        raise NotFound(f"no folder {str(ship)!r}", hint="pass the folder that contains .ship")
    chats = root / records.CHATS
    if not _is_folder(chats, root):
        return {}, []
    folders: dict[str, Path] = {}
    others: list[str] = []
    for name in _names(chats):
        chat_key = records.folder_chat_key(name)
        if chat_key is not None and _is_folder(chats / name, root):
            folders[chat_key] = chats / name
        elif not name.startswith("."):
            others.append(f"{records.CHATS}/{exact_json.replace_unstorable(name)}")
    return folders, others


def read_files(folder: Path, root: Path) -> dict[str, bytes]:
    """Return the contents of a chat's files by name below its folder. Raises InvalidInput naming a file."""
    return {
        f"{below}/{name}": data
        for below in _FOLDERS
        if _is_folder(folder / below, root)
        for name, data in _files(folder / below)
    }


def read_profiles(root: Path) -> dict[str, bytes]:
    """Return the contents of the personas' files by name. Raises InvalidInput naming a file."""
    folder = root / records.PROFILES
    if not _is_folder(folder, root):
        return {}
    return {name: data for name, data in _files(folder) if records.persona_name(name) is not None}


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the printable names and contents of a folder's files. Hidden files are skipped."""
    for name in _names(folder):
        if not name.startswith(".") and not os.path.isdir(folder / name):
            yield exact_json.replace_unstorable(name), _read(folder / name)


def _names(folder: Path) -> list[str]:
    with _input_errors(folder):
        return sorted(os.listdir(folder))


def _read(path: Path) -> bytes:
    most = INPUT_SIZE.value << 20
    with _input_errors(path), open_regular_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InvalidInput(f"{path} is larger than {INPUT_SIZE}", hint="split the file")
    return data


@contextmanager
def _input_errors(path: Path) -> Iterator[None]:
    """Raise an OSError as InvalidInput that names the path."""
    try:
        yield
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            hint = "replace the link with the file itself, or pass the folder that it points to"
            raise InvalidInput(f"cbx does not follow the symbolic link {str(path)!r}", hint=hint) from exc
        raise InvalidInput(f"cannot read {str(path)!r}: {exc.strerror}") from exc


def _is_folder(path: Path, root: Path) -> bool:
    """Return whether this folder exists below `root`.

    Raises InvalidInput if a symbolic link leads to it, and if the system denies access.
    """
    with _input_errors(path):
        for each in [path, *path.parents]:
            if each == root:
                break
            if each.is_symlink():
                hint = "replace the link with the folder itself, or pass the folder that it points to"
                raise InvalidInput(f"cbx does not follow the symbolic link {str(each)!r}", hint=hint)
        return path.is_dir()


def find_changes(folder: Path, root: Path, files: Mapping[str, str], *, replace: bool) -> dict[str, str]:
    """Return those of `files` that differ from the ones in a folder below `root`. Writes nothing.

    Raises Conflict if content would be lost, unless `replace` is set; InvalidInput for a symbolic link.
    """
    _check_within(files)
    changed = {}
    for name, text in files.items():
        path = folder / name
        if _is_folder(path.parent, root) and os.path.lexists(path):
            current = _read(path)
            if layout_files.is_same_content(name, current, text):
                continue
            loss = None if replace else layout_files.describe_loss(name, current, text, all_files=files)
            if loss is not None:
                raise Conflict(
                    f"{str(path)!r} {loss}; nothing was written",
                    hint="import the file first, choose another folder, or replace the file with --replace",
                )
        changed[name] = text
    return changed


def _check_within(files: Iterable[str]) -> None:
    """Raise InvalidInput for a name that leads out of its folder."""
    for name in files:
        if name.startswith("/") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise InvalidInput(
                f"invalid file name {short_repr(name)}: it points outside its folder",
                hint="nothing was written",
            )


def write_files(folder: Path, root: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder below `root`, each atomically. Raises InvalidInput on failure."""
    _check_within(files)
    for name, text in files.items():
        path = folder / name
        try:
            _make_folders(path.parent)
            _is_folder(path.parent, root)
            remove_leftover_files(path)
            with atomic_write(path) as file:
                if path.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                file.write(text)
        except OSError as exc:
            hint = "choose a folder that you may write to and that has free space"
            raise InvalidInput(f"cannot write {str(path)!r}: {exc.strerror}", hint=hint) from exc


def _make_folders(path: Path) -> None:
    """Make a folder and its parents. New ones are private (mode 0700)."""
    if not path.is_dir():
        _make_folders(path.parent)
        path.mkdir(_PRIVATE_MODE, exist_ok=True)
