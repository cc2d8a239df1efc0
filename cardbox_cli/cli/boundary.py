"""Where every failure ends: the one place that prints errors and chooses the exit code."""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from cardbox_cli.cli.session import Session
from cardbox_cli.errors import CbxError, InvalidInput, UsageError
from cardbox_cli.text import one_entry, printable, without_credentials

INTERRUPTED = 130
PIPE_CLOSED = 141

_COMMITTED = "what was done until then is committed"


def run(command: Callable[[], Any], argv: Sequence[str], session: Session) -> int:
    """Call `command`; its exit code, after its failure if any was printed on stderr."""
    try:
        code = command()
        if code == PIPE_CLOSED:
            raise BrokenPipeError
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CbxError as exc:
        return _report(exc, argv, session)
    except click.exceptions.NoArgsIsHelpError as exc:
        _tell(exc.format_message())
        return UsageError.exit_code
    except click.ClickException as exc:
        return _report(_usage_error(exc), argv, session)
    except (KeyboardInterrupt, click.Abort) as exc:
        told = [str(each) for each in exc.args] or [_COMMITTED] * session.committed
        _tell("\n" + ": ".join(["interrupted", *told]))
        return INTERRUPTED
    except BrokenPipeError:
        _let_go(sys.stdout)
        _let_go(sys.stderr)
        return PIPE_CLOSED
    except UnicodeEncodeError as exc:
        return _report(_not_text(exc), argv, session)
    except Exception as exc:
        return _report(_unwritten(exc) or _bug(exc), argv, session)


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Within, SIGINT ends the process at once, whatever its threads wait for. For what only reads."""
    import signal

    def end(*_: object) -> None:
        _tell("\ninterrupted")
        os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _forget(sys.stderr)


def _let_go(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _forget(stream)


def _forget(stream: TextIO) -> None:
    """Nobody takes what we write there; keep the interpreter's last flush from complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _usage_error(exc: click.ClickException) -> UsageError:
    context = exc.ctx if isinstance(exc, click.UsageError) else None
    path = context.command_path if context else "cbx"
    return UsageError(exc.format_message(), hint=f"`{path} --help` shows what it takes")


def _not_text(exc: UnicodeEncodeError) -> UsageError:
    return UsageError(f"the text {exc.object[:40]!r} is not UTF-8", hint="check the command line's encoding")


def _unwritten(exc: Exception) -> CbxError | None:
    """What to say where the command did its work, and its answer found no place; and where a disk fails."""
    if isinstance(exc, OSError) and exc.errno == errno.EIO:
        what = "a file" if exc.filename is None else repr(exc.filename)
        return InvalidInput(f"cannot read or write {what}: {exc.strerror}", hint=_BROKEN)
    if not isinstance(exc, OSError) or exc.errno not in _UNWRITTEN:
        return None
    return InvalidInput(f"cannot write the answer: {exc.strerror}", hint=_UNWRITTEN[exc.errno])


_BROKEN = "a disk, a file system or a terminal is broken or gone; the system's log may say which"
_NO_ROOM = "make room, or send it elsewhere"
_UNWRITTEN = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.EBADF: "standard output is closed, or open to be read only: send it elsewhere",
}


def _bug(exc: Exception) -> CbxError:
    return CbxError(
        f"unexpected {type(exc).__name__}: {exc}",
        hint="this is a bug in cbx: please report it with the output of the same command and --debug",
    )


def _report(error: CbxError, argv: Sequence[str], session: Session) -> int:
    _let_go(sys.stdout)
    if session.debug or "--debug" in argv:
        import traceback

        _tell(printable(without_credentials(traceback.format_exc())))
    _tell(_as_json(error) if _wants_json(argv, session) else _as_text(error))
    return error.exit_code


def _as_text(error: CbxError) -> str:
    lines = [one_entry(f"error: {error.message}")]
    if error.hint:
        lines.append(one_entry(f"hint: {error.hint}"))
    return printable("\n".join(lines))


def _as_json(error: CbxError) -> str:
    import json

    parts = {"code": error.code, "message": error.message, "hint": error.hint, "details": error.details}
    return json.dumps({"error": parts}, default=str)


def _wants_json(argv: Sequence[str], session: Session) -> bool:
    """Whether `-o json` was asked for, even where parsing stopped before it."""
    if session.output in ("json", "jsonl"):
        return True
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return any(
        (word in ("-o", "--output") and value in ("json", "jsonl"))
        or word in ("-ojson", "-ojsonl", "--output=json", "--output=jsonl")
        for word, value in pairs
    )
