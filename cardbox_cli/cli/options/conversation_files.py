"""Opens conversation files, compressed or in folders, for random access without holding them in memory."""

import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import UnsupportedOperation
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, cast

from cardbox_cli.cli.options.input_files import open_input, path_text, source_name
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import CbxError, Conflict, InvalidInput, NotFound
from cardbox_cli.limits import FOLDER_FILES, PIPE_SIZE
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.conversations.conversation_cards import SkippedConversations


_BLOCK = 1 << 16
_GZIP = b"\x1f\x8b"


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """Open a file for random access. A pipe, or standard input for `-`, is copied to a temporary file.

    gzip and Zstandard are decompressed, and a folder of events becomes a list of events. Raises NotFound and
    InvalidInput, which name the file.
    """
    from tempfile import TemporaryFile

    from cardbox_cli.conversations.containers import packed_files

    if path != "-" and packed_files.is_event_folder(path):
        with TemporaryFile() as copy:
            _write(packed_files.read_event_folder(path), copy, source_name(path))
            yield cast(BinaryIO, copy)
        return
    with open_input(path) as file:
        if _is_regular(file):
            with _unpack(file, source_name(path)) as plain:
                yield plain
            return
        with TemporaryFile() as copy:
            _write(_pieces(file), copy, source_name(path))
            with _unpack(copy, source_name(path)) as plain:
                yield plain


def is_packed(file: BinaryIO | IO[bytes]) -> bool:
    from cardbox_cli.conversations.containers import packed_files

    return os.pread(file.fileno(), len(packed_files.ZSTD_MAGIC), 0).startswith(
        (_GZIP, packed_files.ZSTD_MAGIC)
    )


@contextmanager
def _unpack(file: BinaryIO | IO[bytes], name: str) -> Iterator[BinaryIO]:
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
                _write(packed_files.unpack_chunks(file.read, name), copy, name)
        except (EOFError, gzip.BadGzipFile, zlib.error, packed_files.DamagedZstandard) as exc:
            raise InvalidInput(
                f"cannot decompress {name}: {exc}",
                hint="the file may be truncated: copy or download it again",
            ) from exc
        yield cast(BinaryIO, copy)


# The suffixes of conversation files in a folder.
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".af", ".eval", ".har")


def conversation_files(paths: Sequence[str]) -> list[str]:
    """Return the files of these paths, and the conversation files in folders, sorted by name.

    A folder of events counts as one file. Other files next to it are ignored. Raises InvalidInput for a
    folder without conversation files, and for a folder with too many files.
    """
    from cardbox_cli.conversations.containers import packed_files

    files: list[str] = []
    for path in paths:
        if path == "-" or not os.path.isdir(path) or packed_files.is_event_folder(path):
            files.append(path)
            continue
        inside = list(_files_in_folder(path))
        if not inside:
            raise InvalidInput(
                f"the folder {path!r} has no file that ends in {', '.join(_SUFFIXES)}",
                hint="pass the files themselves",
            )
        files += inside
    return files


def _files_in_folder(path: str) -> Iterator[str]:
    # Unreadable and deleted files are skipped.
    from cardbox_cli.conversations.containers import packed_files

    count = 0
    for folder, subfolders, names in os.walk(path):
        subfolders.sort()
        events = Path(folder, packed_files.EVENTS)
        if packed_files.is_event_folder(events) and not events.is_symlink():
            subfolders.clear()
            yield str(events)
            continue
        count += len(names)
        if count > FOLDER_FILES.value:
            raise InvalidInput(
                f"the folder {path!r} contains more than {FOLDER_FILES}",
                hint="pass the subfolder with the conversations",
            )
        for each in (Path(folder, name) for name in sorted(names)):
            plain = each.name.removesuffix(".gz").removesuffix(".zst")
            if not plain.endswith(_SUFFIXES) or not os.path.isfile(each):
                continue
            if _leads_out(each, path):
                announce(f"{source_name(str(each))} is skipped: it is a link to a file outside the folder")
            else:
                yield str(each)


def _leads_out(path: Path, folder: str) -> bool:
    """Return whether a path is a link out of the folder, whose author must not choose the files cbx reads."""
    return path.is_symlink() and not path.resolve().is_relative_to(Path(folder).resolve())


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_BLOCK), b"")


def _write(pieces: Iterable[bytes], copy: IO[bytes], name: str) -> None:
    """Copy a pipe or a compressed file. Raises InvalidInput if it is too large."""
    remaining = PIPE_SIZE.value << 20
    for piece in pieces:
        remaining -= len(piece)
        if remaining < 0:
            hint = "write it to a file, and pass the path"
            raise InvalidInput(f"{name} is larger than {PIPE_SIZE}", hint=hint)
        copy.write(piece)
    copy.flush()


def _is_regular(file: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except UnsupportedOperation:
        return False


def end_of_lines(file: BinaryIO) -> int:
    """Return the length in bytes of a file up to its last line break."""
    end = os.fstat(file.fileno()).st_size
    while end > 0:
        begin = max(0, end - _BLOCK)
        place = os.pread(file.fileno(), end - begin, begin).rfind(b"\n")
        if place >= 0:
            return begin + place + 1
        end = begin
    return 0


# --- the files of a command line, each with its own outcome

# Errors of one file. After such an error, cbx can still read the other files.
_FILE_ERRORS = (InvalidInput, NotFound, Conflict)


class RefusedFile(NamedTuple):
    file: str
    error: CbxError

    @property
    def error_fields(self) -> dict[str, str]:
        return {"file": path_text(self.file), "code": self.error.code, "message": self.error.message}


def split_files(paths: Sequence[str]) -> tuple[list[str], list[RefusedFile]]:
    """Return the files of these paths, and the folders that `conversation_files` refuses."""
    files: list[str] = []
    refused: list[RefusedFile] = []
    for path in paths:
        try:
            files += conversation_files([path])
        except InvalidInput as exc:
            refused.append(RefusedFile(path, exc))
    return files, refused


def take_each(
    files: Sequence[str], take: Callable[[str, str], None], *, refuse: Callable[[RefusedFile], bool]
) -> list[RefusedFile]:
    """Call `take` with each file and its place, for example "2/7", and return the refused files.

    Calls `refuse` with each refused file. Its result is whether to continue.
    """
    refused: list[RefusedFile] = []
    for number, file in enumerate(files, 1):
        try:
            take(file, f"{number}/{len(files)}")
        except _FILE_ERRORS as exc:
            refused.append(RefusedFile(file, exc))
            if not refuse(refused[-1]):
                break
    return refused


def announce_left_out(left_out: "SkippedConversations", lead: str) -> None:
    """Announce how many conversations of a file have no messages, and the place of the first one."""
    if left_out.number:
        where = left_out.first if left_out.number == 1 else f"the first at {left_out.first}"
        joint = ": " if left_out.number == 1 else ", "
        announce(
            f"{lead}skipped {format_count(left_out.number, 'conversation')} without messages{joint}{where}"
        )
