"""Error boundary: the one place that prints errors and chooses the exit code."""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from cardbox_cli.cli.session import Session
from cardbox_cli.errors import CbxError, InvalidInput, UsageError
from cardbox_cli.text.escaping import escape_invisible, indent_margin, redact_credentials

INTERRUPTED = 130
PIPE_CLOSED = 141


def run(command: Callable[[], Any], argv: Sequence[str], session: Session) -> int:
    """Call `command`, print its failure on stderr, and return the exit code."""
    try:
        code = command()
        if code == PIPE_CLOSED:
            raise BrokenPipeError
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CbxError as exc:
        return _report(exc, argv, session)
    except click.exceptions.NoArgsIsHelpError as exc:
        _print_error(exc.format_message())
        return UsageError.exit_code
    except click.ClickException as exc:
        return _report(_usage_error(exc), argv, session)
    except (KeyboardInterrupt, click.Abort) as exc:
        notes = [str(each) for each in exc.args] or [
            "work done before the interrupt is committed"
        ] * session.committed
        _print_error("\n" + ": ".join(["interrupted", *notes]))
        return INTERRUPTED
    except BrokenPipeError:
        _flush(sys.stdout)
        _flush(sys.stderr)
        return PIPE_CLOSED
    except UnicodeEncodeError as exc:
        hint = "check the encoding of your terminal"
        return _report(UsageError(f"the text {exc.object[:40]!r} is not UTF-8", hint=hint), argv, session)
    except Exception as exc:
        return _report(_describe_exception(exc), argv, session)


@contextmanager
def end_at_interrupt() -> Iterator[None]:
    """End the process at once at SIGINT, even if threads wait. Use it only in commands that only read."""
    import signal

    def end(*_: object) -> None:
        _print_error("\ninterrupted")
        os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_error(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Redirect a closed stream to the null device, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _usage_error(exc: click.ClickException) -> UsageError:
    context = exc.ctx if isinstance(exc, click.UsageError) else None
    path = context.command_path if context else "cbx"
    return UsageError(exc.format_message(), hint=f"`{path} --help` shows the options and examples")


def _describe_exception(exc: Exception) -> CbxError:
    """Return the error for an answer that cannot be written, for a failing disk, or for a bug."""
    if isinstance(exc, OSError) and exc.errno == errno.EIO:
        what = "a file" if exc.filename is None else repr(exc.filename)
        return InvalidInput(
            f"cannot read or write {what}: {exc.strerror}",
            hint="check the disk, file system or terminal; the system log may have details",
        )
    if isinstance(exc, OSError) and exc.errno in _WRITE_HINTS:
        return InvalidInput(f"cannot write the output: {exc.strerror}", hint=_WRITE_HINTS[exc.errno])
    return CbxError(
        f"unexpected {type(exc).__name__}: {exc}",
        hint="this is a bug in cbx: please report it with the output of the same command with --debug",
    )


_FREE_SPACE = "free some space, or redirect the output"
_WRITE_HINTS = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: _FREE_SPACE,
    errno.EBADF: "standard output is closed or read-only: redirect it",
}


def _report(error: CbxError, argv: Sequence[str], session: Session) -> int:
    _flush(sys.stdout)
    if session.debug or "--debug" in argv:
        import traceback

        _print_error(escape_invisible(redact_credentials(traceback.format_exc())))
    _print_error(_format_json(error) if _wants_json(argv, session) else _format_text(error))
    return error.exit_code


def _format_text(error: CbxError) -> str:
    lines = [indent_margin(f"error: {error.message}")]
    if error.hint:
        lines.append(indent_margin(f"hint: {error.hint}"))
    return escape_invisible("\n".join(lines))


def _format_json(error: CbxError) -> str:
    import json

    parts = {"code": error.code, "message": error.message, "hint": error.hint, "details": error.details}
    return json.dumps({"error": parts}, default=str)


def _wants_json(argv: Sequence[str], session: Session) -> bool:
    """Return whether `-o json` was requested, even if parsing failed before it."""
    if session.output in ("json", "jsonl"):
        return True
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return any(
        (word in ("-o", "--output") and value in ("json", "jsonl"))
        or word in ("-ojson", "-ojsonl", "--output=json", "--output=jsonl")
        for word, value in pairs
    )
