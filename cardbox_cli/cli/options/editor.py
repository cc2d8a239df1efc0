"""Lets a person change a text in their editor, and never loses their changes.

This module chooses the editor, its terminal and its file. The command interprets the text.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cardbox_cli.cli.options.input_files import read_text
from cardbox_cli.cli.session import Session, session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.model.ids import hash_ids
from cardbox_cli.settings import EDITOR, TERM
from cardbox_cli.text.command_lines import command_line, quote_word

if TYPE_CHECKING:
    from cardbox_cli.model.boxes import Box
    from cardbox_cli.store.boxes import BoxStore


class EditedText(NamedTuple):
    """An edited text, and the name of its source in messages."""

    text: str
    source: str


@contextmanager
def edit_text(text: str, *, name: str, suffix: str, remedy: Sequence[str]) -> Iterator[EditedText]:
    """Yield `text` as a person edits it, in a file with this name and suffix.

    If the block or the editor fails, a changed file is not deleted, and its path is printed. `remedy` is the
    command that continues with that path, as words. Raises UsageError without a terminal, and InvalidInput if
    the editor fails.
    """
    import tempfile

    command = _editor()
    handle, path = tempfile.mkstemp(prefix=f"cbx-{_ODD.sub('_', name)}-", suffix=suffix)
    written = text + "\n" if text and not text.endswith("\n") else text
    with os.fdopen(handle, "wb") as file:
        file.write(written.encode())
    try:
        _run(command, path)
        yield EditedText(read_edited(path, text) if _differs(path, written) else text, path)
    except BaseException:
        if _differs(path, written):
            announce(f"your text is saved in {path}; {_continuation([*remedy, path])}")
        else:
            Path(path).unlink(missing_ok=True)
        raise
    Path(path).unlink(missing_ok=True)


def read_edited(path: str, text: str) -> str:
    """Return the edited `text` from the file at `path`, or from standard input for `-`.

    Editors end every file with a line break. It is removed unless the original `text` ends with one.
    """
    new = read_text(path)
    return new if text.endswith("\n") else new.removesuffix("\n")


def _continuation(words: Sequence[str]) -> str:
    from cardbox_cli.store.connection.target import has_password, hide_password

    project, url = session().project_id, session().database_url
    common = [] if project == Session().project_id else ["-p", project]
    note = ""
    if url is not None:
        common += ["--database-url", hide_password(url)]
        note = ", with the password in --database-url" if has_password(url) else ""
    line = " ".join(["cbx", *map(quote_word, common), command_line(words).removeprefix("cbx ")])
    return f"continue with `{line}`{note}"


# Characters that are replaced in the name of a file.
_ODD = re.compile(r"[^\w.-]")


def _editor() -> str:
    if command := EDITOR.text():
        return command
    if TERM.text() in ("", "dumb") or not (sys.stdin.isatty() or sys.stderr.isatty()):
        raise UsageError(
            "cannot start an editor without a terminal, and neither VISUAL nor EDITOR is set",
            hint="pass the text with --file, or set EDITOR",
        )
    return str(EDITOR.default)


def _run(command: str, path: str) -> None:
    import subprocess

    sys.stdout.flush()
    # Ctrl-C and Ctrl-\ are for the editor. The handler is not SIG_IGN, which the editor would inherit.
    handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        with _terminal() as streams:
            # Use a shell, because people write options, quotes and variables into EDITOR.
            code = subprocess.call(["sh", "-c", f'{command} "$@"', command, path], **streams)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if code:
        raise InvalidInput(
            f"the editor {command!r} {_outcome(code)}; nothing was written",
            hint="set VISUAL or EDITOR to another editor" if code in (126, 127) else None,
        )
    if not os.path.exists(path):
        raise InvalidInput(f"the editor {command!r} deleted the file; nothing was written")


def _outcome(code: int) -> str:
    if code == 127:
        return "was not found"
    if code < 0 or code > 128:
        return f"was killed by signal {-code if code < 0 else code - 128}"
    return f"failed with exit code {code}"


@contextmanager
def _terminal() -> Iterator[dict[str, Any]]:
    """Yield the streams for an editor. They are the terminal, even within `$(…)` or with a pipe.

    Without a terminal, the editor reads nothing and its output goes to stderr, because stdout is for data.
    """
    import subprocess

    if sys.stdin.isatty() and sys.stdout.isatty():
        yield {"stdin": sys.stdin}
        return
    with ExitStack() as opened:
        try:
            terminal = opened.enter_context(open("/dev/tty", "r+b", buffering=0))
        except OSError:
            yield {"stdin": subprocess.DEVNULL, "stdout": _STDERR}
        else:
            yield {"stdin": terminal, "stdout": terminal}


_STDERR = 2


def _differs(path: str, written: str) -> bool:
    with suppress(OSError):  # a file that is missing or unreadable has no text to save
        return Path(path).read_bytes() != written.encode()
    return False


def box_change_notes(boxes: "BoxStore", box_id: str, read: str, made: "Box") -> list[str]:
    """Return a warning if the ids in a box, whose hash was `read`, have changed since `made` was made."""
    now = boxes.get_many([box_id]).boxes
    if not now:
        return [f"warning: box {box_id} has been deleted since it was read"]
    if hash_ids(now[0].card_ids) == read:
        return []
    return [
        f"warning: box {box_id} has changed since it was read, so the new box may lack cards: "
        f"`cbx box diff {made.box_id} {box_id}`"
    ]
