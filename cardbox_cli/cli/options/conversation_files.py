"""Conversation files, packed or in folders, and too large to be read whole: each is open at any place."""

import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import UnsupportedOperation
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, cast

from cardbox_cli.cli.options.input_files import opened, path_text, source_name
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import CbxError, Conflict, InvalidInput, NotFound
from cardbox_cli.limits import FOLDER_FILES, PIPE_SIZE
from cardbox_cli.text import format_count

if TYPE_CHECKING:
    from cardbox_cli.conversations.drafting import LeftOut


_BLOCK = 1 << 16
_GZIP = b"\x1f\x8b"


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """A file whose bytes can be read at any place; a pipe, or standard input for `-`, is copied to one.

    What gzip or Zstandard packed is unpacked, and a folder of events is the list of them. Raises NotFound and
    InvalidInput naming it.
    """
    from tempfile import TemporaryFile

    from cardbox_cli.conversations.containers import packed_files

    if path != "-" and packed_files.is_of_events(path):
        with TemporaryFile() as copy:
            _write(packed_files.folder_chunks(path), copy, source_name(path))
            yield cast(BinaryIO, copy)
        return
    with opened(path) as file:
        if _is_regular(file):
            with _unpacked(file, source_name(path)) as plain:
                yield plain
            return
        with TemporaryFile() as copy:
            _write(_pieces(file), copy, source_name(path))
            with _unpacked(copy, source_name(path)) as plain:
                yield plain


def is_packed(file: BinaryIO | IO[bytes]) -> bool:
    """Whether gzip or Zstandard packed a file."""
    from cardbox_cli.conversations.containers import packed_files

    return os.pread(file.fileno(), len(packed_files.MAGIC), 0).startswith((_GZIP, packed_files.MAGIC))


@contextmanager
def _unpacked(file: BinaryIO | IO[bytes], name: str) -> Iterator[BinaryIO]:
    """The file, or a copy of what was packed into it."""
    import gzip
    from tempfile import TemporaryFile

    from cardbox_cli.conversations.containers import packed_files

    if not is_packed(file):
        yield cast(BinaryIO, file)
        return
    file.seek(0)
    is_gzip = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    with TemporaryFile() as copy:
        try:
            if is_gzip:
                with gzip.GzipFile(fileobj=file) as packed:
                    _write(_pieces(cast(BinaryIO, packed)), copy, name)
            else:
                _write(packed_files.unpacked_chunks(file.read, name), copy, name)
        except (EOFError, gzip.BadGzipFile, zlib.error, packed_files.DamagedZstandard) as exc:
            raise InvalidInput(f"{name} cannot be unpacked: {exc}", hint="it is cut or damaged") from exc
        yield cast(BinaryIO, copy)


def files_in(paths: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    """The files of these paths: those of a folder, and of the folders in it, that end so, by their names.

    A folder of events is one of them, and what stands beside it, which says how the program goes on, is none.

    Raises InvalidInput for a folder without any, and for one with more files than anybody looks through.
    """
    from cardbox_cli.conversations.containers import packed_files

    found: list[str] = []
    for path in paths:
        if path == "-" or not os.path.isdir(path) or packed_files.is_of_events(path):
            found.append(path)
            continue
        within = list(_within(path, suffixes))
        if not within:
            raise InvalidInput(
                f"the folder {path!r} has no file that ends in {', '.join(suffixes)}",
                hint="name the files themselves",
            )
        found += within
    return found


def _within(path: str, suffixes: Sequence[str]) -> Iterator[str]:
    # What may not be read, or is gone meanwhile, is left out.
    from cardbox_cli.conversations.containers import packed_files

    seen = 0
    for folder, below, names in os.walk(path):
        below.sort()
        events = Path(folder, packed_files.EVENTS)
        if packed_files.is_of_events(events) and not events.is_symlink():
            below.clear()
            yield str(events)
            continue
        seen += len(names)
        if seen > FOLDER_FILES.value:
            raise InvalidInput(
                f"the folder {path!r} holds more than {FOLDER_FILES}",
                hint="name the folder in it that has the conversations",
            )
        for each in (Path(folder, name) for name in sorted(names)):
            if not _is_wanted(each, suffixes):
                continue
            if _leads_out(each, path):
                announce(f"{source_name(str(each))} is a link that leads out of the folder, and is left out")
            else:
                yield str(each)


def _is_wanted(path: Path, suffixes: Sequence[str]) -> bool:
    plain = path.name.removesuffix(".gz").removesuffix(".zst")
    return plain.endswith(tuple(suffixes)) and os.path.isfile(path)


def _leads_out(path: Path, folder: str) -> bool:
    """Whether it is a link to what is not in the folder: whoever packed that decides what of ours is read."""
    return path.is_symlink() and not path.resolve().is_relative_to(Path(folder).resolve())


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_BLOCK), b"")


def _write(pieces: Iterable[bytes], copy: IO[bytes], name: str) -> None:
    """Copy what a pipe or a packed file brings. Raises InvalidInput where it brings too much."""
    left = PIPE_SIZE.value << 20
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            hint = "write it to a file, and name that"
            raise InvalidInput(f"{name} brings more than {PIPE_SIZE}", hint=hint)
        copy.write(piece)
    copy.flush()


def _is_regular(file: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except UnsupportedOperation:
        return False


def end_of_lines(file: BinaryIO) -> int:
    """The length in bytes of a file up to its last line break."""
    end = os.fstat(file.fileno()).st_size
    while end > 0:
        begin = max(0, end - _BLOCK)
        found = os.pread(file.fileno(), end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


# --- those that a command line names, each with its own outcome

# What the conversation files of a folder end in.
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".af", ".eval", ".har")
# What is wrong with one file, and says nothing of the others.
_OF_A_FILE = (InvalidInput, NotFound, Conflict)


class Refused(NamedTuple):
    """A file that is refused, and why."""

    file: str
    error: CbxError

    @property
    def shown(self) -> dict[str, str]:
        """What programs are told of it."""
        return {"file": path_text(self.file), "code": self.error.code, "message": self.error.message}


def conversation_files(paths: Sequence[str]) -> list[str]:
    """The files of these paths: a folder stands for those in it that end as conversation files do.

    Raises InvalidInput for a folder without any.
    """
    return files_in(paths, _SUFFIXES)


def found_and_refused(paths: Sequence[str]) -> tuple[list[str], list[Refused]]:
    """The files of these paths, and the folders that `conversation_files` refuses."""
    found: list[str] = []
    refused: list[Refused] = []
    for path in paths:
        try:
            found += conversation_files([path])
        except InvalidInput as exc:
            refused.append(Refused(path, exc))
    return found, refused


def one_by_one(
    files: Sequence[str],
    take: Callable[[str, str], None],
    *,
    refuse: Callable[[Refused], bool],
) -> list[Refused]:
    """Take each file, which is told as its number of how many; those that are refused. `refuse` hears of one
    at once, and says whether the others shall be taken, too."""
    refused: list[Refused] = []
    for number, file in enumerate(files, 1):
        try:
            take(file, f"{number}/{len(files)}")
        except _OF_A_FILE as exc:
            refused.append(Refused(file, exc))
            if not refuse(refused[-1]):
                break
    return refused


def tell_left_out(left_out: "LeftOut", lead: str) -> None:
    """Tell on stderr how many conversations of a file say nothing, and where the first of them stands."""
    if left_out.number:
        where = left_out.first if left_out.number == 1 else f"the first at {left_out.first}"
        joint = ": " if left_out.number == 1 else ", "
        announce(
            f"{lead}{format_count(left_out.number, 'conversation')} without a message left out{joint}{where}"
        )
