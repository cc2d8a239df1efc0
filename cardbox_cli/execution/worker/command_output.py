"""The output of commands: redacted secrets, messages about failures, stored logs, and warnings.

Redaction removes only text that matches `PATTERNS`. It does not find secrets that look like ordinary words.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from signal import Signals
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ToolCall
from cardbox_cli.execution.worker.command_processes import MAX_OUTPUT, CommandOutcome
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import CommandLog, Fence, last_lines
from cardbox_cli.store.execution.turn_store import LogStore

REDACTED = "[redacted]"
# In characters. Only private keys may be longer, and a pattern recognizes the beginning or the end of a key.
MAX_SECRET_LENGTH = 4096
# The maximum number of characters of a failure message.
_MAX_MESSAGE_LENGTH = 10_000


def is_too_long(output: bytes) -> bool:
    """Return whether a tool's output exceeds the size of a result."""
    return len(output) > RESULT_SIZE.value << 20


class Pattern(NamedTuple):
    """A pattern of secrets. Its group `secret` is redacted, or the whole match if it has no such group."""

    what: str
    found: re.Pattern[str]


def _pattern(what: str, text: str, flags: int = 0) -> Pattern:
    return Pattern(what, re.compile(text, flags))


# Each pattern takes linear time for any text.
PATTERNS = (
    _pattern(
        "a private key",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<secret>.*?)(?=-----END [A-Z ]{0,40}PRIVATE KEY|\Z)",
        re.DOTALL,
    ),
    _pattern("the end of a private key", r"\A(?P<secret>[\w+/=\s]+)(?=-----END [A-Z ]{0,40}PRIVATE KEY)"),
    _pattern("the password of an address", r"://[^\s:/@\"']{0,256}:(?P<secret>[^\s/@\"']{1,512})@"),
    _pattern(
        "credentials of a request",
        r"\b(?:bearer|basic)\s{1,8}(?P<secret>(?=[^\s\"',;]{0,64}[\d=._-])[^\s\"',;]{8,4096})",
        re.IGNORECASE,
    ),
    _pattern(
        "a value with the name of a secret",
        r"(?:pass(?:word|wd|phrase)|pwd|secret|credentials?|token|api[ _-]?key|access[ _-]?key(?:[ _-]?id)?"
        r"|private[ _-]?key|authorization)[\"']?\s{0,8}[=:]\s{0,8}(?!(?:bearer|basic)\s)"
        r"[\"']?(?P<secret>(?<=\")[^\"\n]{1,4096}|(?<=')[^'\n]{1,4096}|[^\s\"',;&)}\]]{1,4096})",
        re.IGNORECASE,
    ),
    _pattern("a key of OpenAI, Anthropic or Stripe", r"\b(?:sk|rk|pk)(?:-|_live_|_test_)[\w-]{8,512}"),
    _pattern("a key of AWS", r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"),
    _pattern("a key of Google", r"\bAIza[\w-]{30,}"),
    _pattern("a token of GitHub", r"\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,})"),
    _pattern("a token of GitLab, Hugging Face or Slack", r"\b(?:glpat-|hf_|xox[abeprs]-)[\w-]{10,}"),
    _pattern("a JSON web token", r"\beyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{0,4096}"),
)

_REST_OF_A_LINE = re.compile(rf"\A(?:[^\n]{{0,{MAX_SECRET_LENGTH}}}\n|\S{{0,{MAX_SECRET_LENGTH}}})")


def redact(text: str, *, cut: bool = False) -> str:
    """Return `text` with `[redacted]` instead of everything that looks like a secret.

    If the beginning of the text was `cut` off, removes the first line, which may be the rest of a secret.
    """
    if cut:
        text = _REST_OF_A_LINE.sub("", text, count=1)
    for pattern in PATTERNS:
        text = pattern.found.sub(_redact_match, text)
    return text


def redact_message(text: str) -> str:
    """Return a failure message without secrets. The middle of a long message is removed."""
    if len(text) <= _MAX_MESSAGE_LENGTH:
        return redact(text)
    half = _MAX_MESSAGE_LENGTH // 2
    return f"{redact(text[: half + MAX_SECRET_LENGTH])[:half]} … {redact(text[-half:], cut=True)}"


def _redact_match(found: re.Match[str]) -> str:
    secret = "secret" if "secret" in found.re.groupindex else 0
    start, end = found.start(secret) - found.start(), found.end(secret) - found.start()
    return found[0][:start] + REDACTED + found[0][end:]


FAILED, TIMED_OUT, TOO_LONG = "command_failed", "command_timeout", "output_too_long"

# The number of last characters of stderr in a deliverable or result, and of stdout in diagnostics.
TAIL = 4000
_MAX_HEAD_LENGTH = 1000


def failure_reason(ran: CommandOutcome, call: ToolCall | None, timeout: float) -> tuple[str, str]:
    """Return the error code and message of a failed command. `call` is None if the command is the model's."""
    what = "the command" if call is None else f"the tool {call.tool_name!r}"
    if ran.fault is not None:
        within = f" within {timeout:g} seconds" if ran.timed_out else ""
        return TIMED_OUT if ran.timed_out else FAILED, ran.fault + within
    if ran.timed_out:
        return TIMED_OUT, f"{what} took longer than {timeout:g} seconds"
    if ran.too_long:
        return TOO_LONG, f"{what} printed more than {MAX_OUTPUT} bytes"
    if ran.exit_code < 0:
        return FAILED, f"{what} was killed by {_signal_name(-ran.exit_code)}"
    return FAILED, f"{what} ended with exit code {ran.exit_code}"


def _signal_name(number: int) -> str:
    """Return the name of a signal, or its number if it has no name."""
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def diagnostics(ran: CommandOutcome) -> dict[str, Any]:
    head = ran.stdout[: _MAX_HEAD_LENGTH + MAX_SECRET_LENGTH].decode(errors="replace")
    return {
        "exit_code": ran.exit_code,
        "seconds": round(ran.duration, 3),
        "stderr_tail": ran.stderr[-TAIL:],
        "stdout_head": exact_json.replace_unstorable(redact(head)[:_MAX_HEAD_LENGTH]),
    }


def failure_message(what: str, ran: CommandOutcome) -> str:
    """Return a log line about a failed command, followed by the last lines of its stderr."""
    lines = last_lines(ran.stderr[-TAIL:])
    return "\n    ".join([what + ("; its stderr ends:" if lines else ""), *lines])


def bytes_to_read(kept: int) -> int:
    """Return the number of bytes of stderr that must be read to store `kept` bytes and show a tail."""
    return max(kept, TAIL * 4) + MAX_SECRET_LENGTH


def redact_stderr(ran: CommandOutcome) -> CommandOutcome:
    """Return the outcome with the secrets and unstorable characters of its stderr replaced."""
    if not ran.stderr:
        return ran
    text = exact_json.replace_unstorable(redact(ran.stderr, cut=ran.stderr_is_cut))
    return msgspec.structs.replace(ran, stderr=text)


def store_log(
    runtime: Runtime,
    hold: Callable[[], object],
    *,
    fence: Fence,
    ran: CommandOutcome,
    log_id: str,
    step_id: str,
    call: ToolCall | None,
    worker_id: str,
    kept: int,
) -> None:
    """Store the last `kept` bytes of a command's stderr, if it wrote any or failed.

    `hold` must lock the row that `fence` guards, or raise StaleEpoch.
    """
    store = LogStore(runtime.database, runtime.project_id)
    if not kept or not (ran.stderr_bytes or not ran.succeeded) or not store.writable:
        return
    with runtime.transaction():
        hold()
        ended_at = runtime.database.now()
        store.add(
            CommandLog(
                log_id=log_id,
                agent_turn_id=fence.agent_turn_id,
                step_id=step_id,
                tool_call_id=call.tool_call_id if call else None,
                tool_name=call.tool_name if call else None,
                turn_epoch=fence.turn_epoch,
                worker_id=worker_id,
                exit_code=ran.exit_code if ran.was_not_killed else None,
                stderr=ran.stderr.encode()[-kept:].decode(errors="ignore"),
                stderr_bytes=ran.stderr_bytes,
                started_at=ended_at - timedelta(seconds=ran.duration),
                ended_at=ended_at,
            )
        )


MAX_TROUBLE_LENGTH = 400


def shorten_trouble(message: str | None) -> str | None:
    """Return a message about a worker's trouble as one short, redacted line, or None for None."""
    if not message:
        return None
    line = " ".join(redact(message).split()).replace("\x00", "")
    return line if len(line) <= MAX_TROUBLE_LENGTH else line[: MAX_TROUBLE_LENGTH - 1] + "…"


class DeduplicatedWarnings:
    """A filter that passes each text on only once. Any thread may call it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._seen: set[str] = set()
        self._lock = Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            is_new = text not in self._seen
            self._seen.add(text)
        if is_new:
            self._tell(text)
