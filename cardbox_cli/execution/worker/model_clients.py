"""Long-running model clients: processes that exchange lines of JSON with the worker.

A client prints `{"ready": true}`. Then it reads a line `{"id": n, "request": …, "turn": {…}}` and prints
`{"id": n, "answer": …}` or `{"id": n, "error": "why"}`, repeatedly until its input ends. The worker finds the
request of a late answer by the id. A client that prints no ids must answer in order.

A line `{"cancel": true}` means that the worker no longer waits. A busy client must then print an answer or
error at once, or it is killed. An idle client ignores the line. The worker starts one client for each
concurrent call. `command_processes.py` makes sure that no client outlives the worker.
"""

import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from threading import Event, Lock
from typing import TypeVar

import msgspec

from cardbox_cli.execution.worker.command_processes import (
    MAX_OUTPUT,
    CommandOutcome,
    Pipes,
    SupervisedCommand,
    outcome_of,
)
from cardbox_cli.settings import STDERR_KEPT

_POLL_INTERVAL = 0.1
# The seconds that a client has to acknowledge a cancellation, and to end when its input ends.
_CLIENT_TIMEOUT_SECONDS = 2.0
# The number of characters of an unexpected line that a message shows.
_MAX_QUOTE_LENGTH = 200


class _Ready(msgspec.Struct):
    ready: bool


class _Reply(msgspec.Struct):
    """A line that a client printed. The answer is a string, null, or a message in the provider's format."""

    id: int | None = None
    answer: msgspec.Raw = msgspec.Raw()
    error: str | None = None


_Line = TypeVar("_Line", _Ready, _Reply)


class _NoReply(Exception):
    """The reason why the worker stopped waiting for a line, and the fault of the client, if it is known."""

    def __init__(self, why: str, fault: str | None = None) -> None:
        super().__init__(why)
        self.why, self.fault = why, fault


class ModelClients:
    """The clients of a worker. Many threads may call `ask` at once."""

    def __init__(
        self,
        command: str,
        environment: Mapping[str, str],
        *,
        requests: int | None = None,
        keep_stderr: int = STDERR_KEPT.default,
    ) -> None:
        """Configure clients that run `sh -c COMMAND`. Their whole environment is `environment`.

        A client is replaced after `requests` requests. Outcomes have the last `keep_stderr` bytes of stderr.
        """
        self._command = command
        self._environment = environment
        self._requests = requests
        self._keep_stderr = keep_stderr
        self._lock = Lock()
        self._idle: list[_Client] = []

    def ask(self, body: bytes, turn: Mapping[str, str], *, timeout: float, stop: Event) -> CommandOutcome:
        """Send the JSON of a request to a client. Wait for `timeout` seconds, or until `stop` is set.

        `turn` has the variables that describe the turn. Raises OSError if no client can be started.
        """
        began = time.monotonic()
        client = self._take_client()
        try:
            ran = client.ask(body, turn, until=began + timeout, stop=stop)
        except BaseException:
            client.end()
            raise
        if not client.is_running or client.answered == self._requests:
            client.end()
        else:
            with self._lock:
                self._idle.append(client)
        return msgspec.structs.replace(ran, duration=time.monotonic() - began)

    def close(self) -> None:
        """End the idle clients. A busy client ends after its request."""
        with self._lock:
            ending, self._idle = self._idle, []
        for client in ending:
            client.end()

    def _take_client(self) -> "_Client":
        with self._lock:
            while self._idle:
                client = self._idle.pop()
                if client.is_running and client.is_silent:
                    return client
                client.end()
        return _Client(self._command, self._environment, self._keep_stderr)


class _Client:
    def __init__(self, command: str, environment: Mapping[str, str], keep_stderr: int) -> None:
        self.answered = 0
        self._last_id = 0
        self._is_ready = False
        self._stack = ExitStack()
        self._supervised = self._stack.enter_context(SupervisedCommand(command, environment))
        self._process = self._supervised.process
        self._pipes = self._stack.enter_context(closing(Pipes(self._supervised, MAX_OUTPUT, keep_stderr)))

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def is_silent(self) -> bool:
        """True if it has printed nothing since its last answer. The next turn must not read such output."""
        self._pipes.serve(0)
        return not self._pipes.stdout

    def ask(self, body: bytes, turn: Mapping[str, str], *, until: float, stop: Event) -> CommandOutcome:
        """Send a request and return its outcome. Kills the client if it cannot serve another request."""
        self._pipes.stderr.clear()
        self._pipes.stderr_bytes = 0
        try:
            if not self._is_ready:
                line = self._ready_line(until, stop)
                if _decode(line, _Ready) != _Ready(ready=True):
                    raise self._unexpected(line, '{"ready": true}')
                self._is_ready = True
            self._last_id += 1
            request = msgspec.json.encode({"id": self._last_id, "request": msgspec.Raw(body), "turn": turn})
            # The request must be one line. Indented JSON has line breaks only between values.
            self._pipes.send(request.replace(b"\n", b" ") + b"\n")
            reply = self._reply(until, stop)
        except _NoReply as exc:
            return self._give_up(exc)
        self.answered += 1
        return self._outcome(reply)

    def _ready_line(self, until: float, stop: Event) -> bytes:
        try:
            return self._line(until, stop)
        except _NoReply as exc:
            if str(exc) in ("timed_out", "ended"):
                self._write_stderr(
                    'cbx: expected the client to print {"ready": true}, but it printed nothing'
                )
            raise

    def end(self) -> None:
        """Close its input and wait for its end, then kill it."""
        if self.is_running:
            self._pipes.send(b"", is_last=True)
            self._wait(time.monotonic() + _CLIENT_TIMEOUT_SECONDS)
        self._kill()
        self._stack.close()

    def _reply(self, until: float, stop: Event) -> _Reply:
        """Return the reply to the last request. Late replies to earlier requests are dropped."""
        while True:
            line = self._line(until, stop)
            reply = _decode(line, _Reply)
            if reply is None or not (bytes(reply.answer) or reply.error is not None):
                raise self._unexpected(line, '{"answer": …} or {"error": "…"}')
            if reply.id is None or reply.id == self._last_id:
                return reply
            if not 0 < reply.id < self._last_id:
                raise self._unexpected(
                    line, f"a reply to a request that was sent; the last id is {self._last_id}"
                )

    def _unexpected(self, line: bytes, expected: str) -> _NoReply:
        quote = line[: 4 * _MAX_QUOTE_LENGTH].decode(errors="replace")[:_MAX_QUOTE_LENGTH]
        fault = f"expected the client to print {expected}, found {quote!r}"
        self._write_stderr(f"cbx: {fault}")
        return _NoReply("failed", fault)

    def _line(self, until: float, stop: Event) -> bytes:
        """Return the next line that it prints. Raises _NoReply."""
        while (line := self._pipes.take_line()) is None:
            if stop.is_set():
                raise _NoReply("stopped")
            if time.monotonic() >= until:
                raise _NoReply("timed_out")
            if self._pipes.too_long:
                raise _NoReply("too_long")
            if not self._pipes.open or not self.is_running:
                # The client may have answered just before it ended.
                self._wait(time.monotonic() + _CLIENT_TIMEOUT_SECONDS)
                last_line = self._pipes.take_line()
                if last_line is None and self._process.poll() == 0:
                    # A program that has succeeded may omit the last line break.
                    last_line = self._pipes.take_rest()
                if last_line is not None:
                    return last_line
                raise _NoReply("ended")
            self._pipes.serve(_POLL_INTERVAL)
        return line

    def _give_up(self, given_up: _NoReply) -> CommandOutcome:
        """Give up the request and return its outcome. Kills the client unless it confirms a cancellation."""
        why, fault = given_up.why, given_up.fault
        if why == "timed_out" and not self._is_ready:
            fault = 'the client did not print {"ready": true}'
        if why in ("stopped", "timed_out") and self._is_ready and self._confirms_cancellation():
            self.answered += 1
        else:
            self._kill()
        exit_code = self._process.poll()
        code = 1 if why == "failed" else exit_code or 0
        return msgspec.structs.replace(self._outcome(None, exit_code=code, why=why), fault=fault)

    def _confirms_cancellation(self) -> bool:
        self._pipes.send(b'{"cancel": true}\n')
        try:
            self._reply(time.monotonic() + _CLIENT_TIMEOUT_SECONDS, Event())
        except _NoReply:
            return False
        return True

    def _wait(self, until: float) -> None:
        """Read its output until it has ended."""
        while (self._pipes.open or self.is_running) and time.monotonic() < until:
            if self._pipes.open:
                self._pipes.serve(_POLL_INTERVAL)
            else:
                time.sleep(_POLL_INTERVAL)

    def _kill(self) -> None:
        self._supervised.signal(signal.SIGKILL)
        self._process.wait()

    def _write_stderr(self, text: str) -> None:
        self._pipes.stderr += f"{text}\n".encode()
        self._pipes.stderr_bytes += len(text) + 1

    def _outcome(self, reply: _Reply | None, *, exit_code: int = 0, why: str = "") -> CommandOutcome:
        stdout = b""
        if reply is not None and reply.error is not None:
            self._write_stderr(reply.error)
            exit_code = 1
        elif reply is not None:
            stdout = _answer_bytes(bytes(reply.answer))
        return outcome_of(self._pipes, exit_code, stdout, why, has_read=self._is_ready, duration=0)


def _decode(line: bytes, kind: type[_Line]) -> _Line | None:
    try:
        # `decode` checks that the line is UTF-8, because msgspec.Raw does not check its bytes.
        return msgspec.json.decode(line.decode(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _answer_bytes(answer: bytes) -> bytes:
    """Return the answer as a command would print it: a string as text, null as nothing, the rest as JSON."""
    if answer == b"null":
        return b""
    return msgspec.json.decode(answer, type=str).encode() if answer.startswith(b'"') else answer
