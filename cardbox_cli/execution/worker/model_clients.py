"""Clients of models that stay: each is started once, and speaks lines of JSON with the worker.

A client prints `{"ready": true}`. Then it reads a line `{"id": n, "request": …, "turn": {…}}` and prints a
line `{"id": n, "answer": …}`, or `{"id": n, "error": "why"}`, again and again until its input ends. With its
id a line is the answer to that request and to no other, however late it comes; a client that leaves it out is
taken to answer in turn. A line `{"cancel": true}` says that nobody waits for the answer any more: a client
that is at work prints any answer or error at once, or is killed; one that is not reads on. Owns that
protocol, and how many clients there are: one for each call at the same time. That none outlives us is
`supervised.py`'s.
"""

import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from threading import Event, Lock
from typing import TypeVar

import msgspec

from cardbox_cli.execution.worker.command_processes import MAX_OUTPUT, Pipes, Ran, SupervisedCommand
from cardbox_cli.settings import STDERR_KEPT

# Seconds: how often a client is looked after, how long it may take to own a cancellation, and to end.
_LOOK = 0.1
_GRACE = 2.0
# How much is shown of a line that is none of the protocol, in characters.
_SHOWN = 200


class _Ready(msgspec.Struct):
    ready: bool


class _Reply(msgspec.Struct):
    """A line of a client. An answer is a text, a message or response as the provider spells it, or null. `id`
    is that of the request, where the client says it."""

    id: int | None = None
    answer: msgspec.Raw = msgspec.Raw()
    error: str | None = None


_Line = TypeVar("_Line", _Ready, _Reply)


class _Over(Exception):
    """No line comes: why, as `Ran` says it."""


class Clients:
    """The clients of a worker. `ask` may be called by many threads at once."""

    def __init__(
        self,
        command: str,
        environment: Mapping[str, str],
        *,
        requests: int | None = None,
        keep_stderr: int = STDERR_KEPT.default,
    ) -> None:
        """`command` by `sh -c` is a client, in `environment` and no more; after so many `requests` another
        takes its place. Of what each writes on stderr for a request the last `keep_stderr` bytes are kept.
        """
        self._command = command
        self._environment = environment
        self._requests = requests
        self._keep_stderr = keep_stderr
        self._lock = Lock()
        self._idle: list[_Client] = []

    def ask(self, body: bytes, turn: Mapping[str, str], *, timeout: float, stop: Event) -> Ran:
        """Have a client answer the JSON of a request, within so many seconds, or until `stop` is set.

        `turn` is what a command would have in its environment. Raises OSError where none can be started.
        """
        began = time.monotonic()
        client = self._lent()
        try:
            ran = client.ask(body, turn, until=began + timeout, stop=stop)
        except BaseException:
            client.end()
            raise
        self._returned(client)
        return msgspec.structs.replace(ran, duration=time.monotonic() - began)

    def close(self) -> None:
        """End the clients that are idle. Those at work end with what they work for."""
        with self._lock:
            ending, self._idle = self._idle, []
        for client in ending:
            client.end()

    def _lent(self) -> "_Client":
        with self._lock:
            while self._idle:
                client = self._idle.pop()
                if client.lives and client.is_in_step:
                    return client
                client.end()
        return _Client(self._command, self._environment, self._keep_stderr)

    def _returned(self, client: "_Client") -> None:
        if not client.lives or client.answered == self._requests:
            client.end()
            return
        with self._lock:
            self._idle.append(client)


class _Client:
    """One client, from its start to its end."""

    def __init__(self, command: str, environment: Mapping[str, str], keep_stderr: int) -> None:
        self.answered = 0
        self._asked = 0
        self._is_ready = False
        self._stack = ExitStack()
        self._supervised = self._stack.enter_context(SupervisedCommand(command, environment))
        self._process = self._supervised.process
        self._pipes = self._stack.enter_context(closing(Pipes(self._process, MAX_OUTPUT, keep_stderr)))

    @property
    def lives(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    @property
    def is_in_step(self) -> bool:
        """Whether it has said nothing since its last answer: that would be taken for the next one, of another
        turn."""
        self._pipes.serve(0)
        return not self._pipes.stdout

    def ask(self, body: bytes, turn: Mapping[str, str], *, until: float, stop: Event) -> Ran:
        """What it answers to a request. One that cannot be asked again is dead then."""
        self._pipes.forget_stderr()
        try:
            if not self._is_ready:
                self._await_ready(until, stop)
            self._asked += 1
            request = msgspec.json.encode({"id": self._asked, "request": msgspec.Raw(body), "turn": turn})
            # A line ends where the text does: whoever indents has put line breaks between values only.
            self._pipes.send(request.replace(b"\n", b" ") + b"\n")
            reply = self._reply(until, stop)
        except _Over as exc:
            return self._over(str(exc))
        self.answered += 1
        return self._ran(reply)

    def end(self) -> None:
        """End it: kindly at first."""
        if self.lives:
            self._pipes.send(b"", is_last=True)
            self._wait(time.monotonic() + _GRACE)
        self._kill()
        self._stack.close()

    def _await_ready(self, until: float, stop: Event) -> None:
        line = self._line(until, stop)
        said = _decoded(line, _Ready)
        if said is None or not said.ready:
            raise self._odd(line, '{"ready": true}')
        self._is_ready = True

    def _reply(self, until: float, stop: Event) -> _Reply:
        """The reply to what was asked last. One to an earlier request came too late: it is dropped."""
        while True:
            line = self._line(until, stop)
            reply = _decoded(line, _Reply)
            if reply is None or not (bytes(reply.answer) or reply.error is not None):
                raise self._odd(line, '{"answer": …} or {"error": "…"}')
            if reply.id is None or reply.id == self._asked:
                return reply
            if not 0 < reply.id < self._asked:
                raise self._odd(line, f"of a request that was made; the last one has the id {self._asked}")

    def _odd(self, line: bytes, wanted: str) -> _Over:
        shown = line[: 4 * _SHOWN].decode(errors="replace")[:_SHOWN]
        self._tell(f"cbx: a line of the client is not {wanted}: {shown!r}")
        return _Over("failed")

    def _line(self, until: float, stop: Event) -> bytes:
        """The next line that it prints. Raises _Over."""
        while (line := self._pipes.take_line()) is None:
            if stop.is_set():
                raise _Over("stopped")
            if time.monotonic() >= until:
                raise _Over("timed_out")
            if self._pipes.too_long:
                raise _Over("too_long")
            if not self._pipes.open or not self.lives:
                # It may have answered with its last breath.
                self._wait(time.monotonic() + _GRACE)
                last = self._pipes.take_line()
                if last is None and self._process.poll() == 0:
                    # The end of a program that succeeded ends its line, too.
                    last = self._pipes.take_rest()
                if last is not None:
                    return last
                raise _Over("ended")
            self._pipes.serve(_LOOK)
        return line

    def _over(self, why: str) -> Ran:
        """What came of a request without an answer. A client that owns the cancellation goes on."""
        if why in ("stopped", "timed_out") and self._is_ready and self._owns_cancellation():
            self.answered += 1
        else:
            self._kill()
        exit_code = self._process.poll()
        return self._ran(None, exit_code=1 if why == "failed" else exit_code or 0, why=why)

    def _owns_cancellation(self) -> bool:
        self._pipes.send(b'{"cancel": true}\n')
        try:
            self._reply(time.monotonic() + _GRACE, Event())
        except _Over:
            return False
        return True

    def _wait(self, until: float) -> None:
        """Read what it still writes until it has ended."""
        while (self._pipes.open or self.lives) and time.monotonic() < until:
            if self._pipes.open:
                self._pipes.serve(_LOOK)
            else:
                time.sleep(_LOOK)

    def _kill(self) -> None:
        self._supervised.signal(signal.SIGKILL)
        self._process.wait()

    def _tell(self, text: str) -> None:
        self._pipes.stderr += f"{text}\n".encode()
        self._pipes.stderr_bytes += len(text) + 1

    def _ran(self, reply: _Reply | None, *, exit_code: int = 0, why: str = "") -> Ran:
        stdout = b""
        if reply is not None and reply.error is not None:
            self._tell(reply.error)
            exit_code = 1
        elif reply is not None:
            stdout = _text(bytes(reply.answer))
        pipes = self._pipes
        return Ran(
            exit_code=exit_code,
            stdout=stdout,
            stderr=bytes(pipes.stderr).decode(errors="replace"),
            stderr_bytes=pipes.stderr_bytes,
            stderr_is_cut=pipes.stderr_bytes > len(pipes.stderr),
            timed_out=why == "timed_out",
            stopped=why == "stopped",
            too_long=why == "too_long",
            duration=0,
        )


def _decoded(line: bytes, kind: type[_Line]) -> _Line | None:
    try:
        # As a text: what is kept raw of bytes is looked at by nobody, and may be no UTF-8.
        return msgspec.json.decode(line.decode(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text(answer: bytes) -> bytes:
    """What a command would have printed: a text as it is, else the JSON; nothing for null."""
    if answer == b"null":
        return b""
    return msgspec.json.decode(answer, type=str).encode() if answer.startswith(b'"') else answer
