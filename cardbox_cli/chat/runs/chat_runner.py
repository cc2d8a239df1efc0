"""A run of a chat from its beginning to its end: it waits for the chat, runs the loop, keeps its lease.

The loop has a connection of its own, and so has the thread that extends the lease; one that is lost stops the
run. Knows no command line and no terminal.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Event, Thread
from typing import Any, TypeVar

import msgspec
import uuid6

from cardbox_cli.chat.runs.chat_ledger import ChatLedger
from cardbox_cli.chat.runs.rounds import end, take
from cardbox_cli.chat.transcript import unanswered
from cardbox_cli.errors import CbxError, ChatBusy, NotFound
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.command_output import Once
from cardbox_cli.execution.worker.connections import Connection, Connections
from cardbox_cli.execution.worker.runner import CancellationToken, Outcome, Run
from cardbox_cli.execution.worker.worker_program import Program
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.chats import ChatRun, RunStatus
from cardbox_cli.store.chats import Room
from cardbox_cli.text import argument

_T = TypeVar("_T")

# Seconds between two looks at whether a chat is free.
_LOOK = 0.2


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a message: the run that answered it, how that ended, and what it said.

    `by_other`: another run answered it, as a correction of what it was at.
    """

    chat_key: str
    run_id: str
    status: RunStatus
    text: str | None
    answer_card_id: str | None
    steps: int
    context_id: str | None
    by_other: bool
    error_code: str | None
    error: str | None


class ChatRunner:
    """Runs chats of one project by a program. `tell` is told of commands that fail, in words."""

    def __init__(
        self,
        connections: Connections,
        project_id: str,
        program: Program,
        *,
        profile: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connections = connections
        self._project_id = project_id
        self._program = program
        self._profile = profile
        self._tell = tell
        self._warn = Once(tell)
        self._cancellation = CancellationToken()
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid6.uuid7().hex[-8:]}"

    def cancel(self) -> None:
        """Stop: the message stays unanswered. May be called from a signal handler."""
        self._cancellation.cancel()

    def answer(self, chat_key: str, *, wait: bool = True) -> Answered:
        """Answer the newest unanswered message of a chat; where another run has it, wait for that.

        Raises NotFound where nothing is unanswered, ChatBusy without `wait`, KeyboardInterrupt where it was
        cancelled while it waited, DatabaseUnavailable where the database refuses to let a run begin.
        """
        with self._connections.own(self._cancellation.cancelled.is_set) as connection:
            asked = self._attempt(connection, lambda room: _newest(room, chat_key), insist=False)
            run = self._taken(connection, chat_key, wait=wait)
            if run is not None:
                self._run(connection, run)
                told = partial(_told, chat_key=chat_key, run_id=run.run_id, by_other=False)
                return self._attempt(connection, told)
            if asked is None:
                raise NotFound(
                    f"chat {chat_key!r} has no unanswered message",
                    hint=f"`cbx chat send {argument(chat_key)} TEXT`, or --text, adds one",
                )
            return self._attempt(connection, lambda room: _told_of_last(room, chat_key))

    def _taken(self, connection: Connection, chat_key: str, *, wait: bool) -> ChatRun | None:
        begin = partial(take, chat_key=chat_key, owner=self.owner, profile=self._profile)
        waits_for = None
        while True:
            try:
                return self._attempt(connection, begin, insist=False)
            except ChatBusy as busy:
                if not wait:
                    raise
                if waits_for != busy.details["run_id"]:
                    waits_for = busy.details["run_id"]
                    self._tell(f"{busy.message}; waiting")
            if self._cancellation.cancelled.is_set():
                raise KeyboardInterrupt
            time.sleep(_LOOK)

    def _run(self, connection: Connection, run: ChatRun) -> None:
        over = Event()
        beats = Thread(target=self._beat_until, args=(over, run), name="heartbeat", daemon=True)
        beats.start()
        ledger = ChatLedger(self._project_id, run, commands=self._program.tools)
        try:
            self._loop(connection, ledger)
        except BaseException as exc:
            self._give_up(connection, run, exc)
            raise
        finally:
            over.set()
            beats.join()

    def _loop(self, connection: Connection, ledger: ChatLedger) -> Outcome:
        def attempt(action: Callable[[Runtime], _T]) -> _T:
            return connection.attempt(self._project_id, action)

        run = Run(attempt, ledger, self._program, self._cancellation, tell=self._tell, warn=self._warn)
        return run.run()

    def _give_up(self, connection: Connection, run: ChatRun, exc: BaseException) -> None:
        """Leave the chat to the next run, if the database lets us; else its lease ends."""
        message = exc.message if isinstance(exc, CbxError) else f"unexpected {type(exc).__name__}"
        try:
            self._attempt(
                connection,
                lambda room: end(room, run.fence, "failed", error_code="failure", error=message),
            )
        except CbxError:
            self._tell(f"warning: run {run.run_id} is left to its lease")

    def _beat_until(self, over: Event, run: ChatRun) -> None:
        with self._connections.own(over.is_set) as connection:
            settings = connection.attempt(self._project_id, lambda runtime: runtime.settings)
            while not over.wait(settings.heartbeat):
                try:
                    kept = self._attempt(connection, lambda room: _extended(room, run), insist=False)
                except CbxError as exc:
                    self._tell(f"warning: no heartbeat: {exc.message}")
                    continue
                if not kept and not over.is_set():
                    self._cancellation.cancel(lost=True)
                    return

    def _attempt(self, connection: Connection, action: Callable[[Room], _T], *, insist: bool = True) -> _T:
        return connection.attempt(
            self._project_id,
            lambda runtime: action(Room(runtime.database, runtime.project_id, runtime.settings)),
            insist=insist,
        )


def _extended(room: Room, run: ChatRun) -> bool:
    with room.transaction():
        return room.chats.extend_lease(run.fence, room.database.now() + room.settings.lease_time)


def _newest(room: Room, chat_key: str) -> int | None:
    """The place of the newest message that nobody has answered."""
    chat = room.chats.get(chat_key)
    waiting = unanswered(room, chat, chat.answered)
    return waiting[-1].position if waiting else None


def _told_of_last(room: Room, chat_key: str) -> Answered:
    """What the last run of a chat, which was another's, came to."""
    last = room.runs.last(chat_key, 1)
    if not last:
        raise NotFound(f"chat {chat_key!r} has no unanswered message", hint="somebody has replied meanwhile")
    return _told(room, chat_key, last[0].run_id, by_other=True)


def _told(room: Room, chat_key: str, run_id: str, *, by_other: bool) -> Answered:
    run = room.runs.get(chat_key, run_id)
    card_ids = [] if run.answer_card_id is None else [run.answer_card_id]
    cards = room.cards.get_many(card_ids).cards
    return Answered(
        chat_key=chat_key,
        run_id=run_id,
        status=run.status,
        text=card_text(cards[0].content) if cards else None,
        answer_card_id=run.answer_card_id,
        steps=len(room.runs.steps(chat_key, run_id)),
        context_id=room.chats.get(chat_key).context_id,
        by_other=by_other,
        error_code=run.error_code,
        error=run.error,
    )
