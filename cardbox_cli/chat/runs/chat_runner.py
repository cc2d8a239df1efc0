"""The runner of chats: it waits for the chat, runs the turn loop, and extends the run's lease.

The loop and the thread that extends the lease have a connection each. A lost lease stops the run. Independent
of the command line and the terminal.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Event, Thread
from typing import Any, TypeVar

import msgspec

from cardbox_cli.chat.runs.chat_ledger import ChatLedger
from cardbox_cli.chat.runs.run_lifecycle import begin_run, end_run
from cardbox_cli.chat.transcript import unanswered_messages
from cardbox_cli.errors import CbxError, ChatBusy, NotFound
from cardbox_cli.execution.worker.command_output import DeduplicatedWarnings
from cardbox_cli.execution.worker.connections import WorkerConnection, WorkerConnectionPool
from cardbox_cli.execution.worker.runner import CancellationToken, Run
from cardbox_cli.execution.worker.worker_program import Program
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.chats import ChatRun, RunStatus
from cardbox_cli.process_identity import make_owner_name
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.text.command_lines import quote_argument

_T = TypeVar("_T")

# How often to check whether a busy chat is free.
_POLL_SECONDS = 0.2


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a message: the run that answered it, its status and its reply.

    If `by_other`, the run of another process answered the message as a correction.
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
    """A runner of one project's chats. `tell` prints messages, for example about failed commands."""

    def __init__(
        self,
        connections: WorkerConnectionPool,
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
        self._warn = DeduplicatedWarnings(tell)
        self._cancellation = CancellationToken()
        self.owner = make_owner_name()

    def cancel(self) -> None:
        """Stop and leave the message unanswered. Safe in a signal handler."""
        self._cancellation.cancel()

    def answer(self, chat_key: str, *, wait: bool = True) -> ChatAnswer:
        """Answer the newest unanswered message of a chat, after waiting for another run that has the chat.

        Raises NotFound if all messages are answered, ChatBusy without `wait`, KeyboardInterrupt if it was
        cancelled while it waited, DatabaseUnavailable if the database does not let a run begin.
        """
        with self._connections.open_own(self._cancellation.cancelled.is_set) as connection:
            has_message = self._attempt(connection, partial(_has_message, chat_key=chat_key), insist=False)
            run = self._begin_run(connection, chat_key, wait=wait)
            if run is not None:
                self._run(connection, run)
                read = partial(_read_answer, chat_key=chat_key, run_id=run.run_id, by_other=False)
                return self._attempt(connection, read)
            if not has_message:
                raise NotFound(
                    f"chat {chat_key!r} has no unanswered message",
                    hint=f"add a message with `cbx chat send {quote_argument(chat_key)} TEXT`",
                )
            return self._attempt(connection, partial(_read_last_answer, chat_key=chat_key))

    def _begin_run(self, connection: WorkerConnection, chat_key: str, *, wait: bool) -> ChatRun | None:
        begin = partial(begin_run, chat_key=chat_key, owner=self.owner, profile=self._profile)
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
            time.sleep(_POLL_SECONDS)

    def _run(self, connection: WorkerConnection, run: ChatRun) -> None:
        over = Event()
        beats = Thread(target=self._send_heartbeats, args=(over, run), name="heartbeat", daemon=True)
        beats.start()
        ledger = ChatLedger(self._project_id, run, commands=self._program.tools)
        try:
            attempt = partial(connection.attempt, self._project_id)
            Run(attempt, ledger, self._program, self._cancellation, tell=self._tell, warn=self._warn).run()
        except BaseException as exc:
            self._give_up(connection, run, exc)
            raise
        finally:
            over.set()
            beats.join()

    def _give_up(self, connection: WorkerConnection, run: ChatRun, exc: BaseException) -> None:
        """End the run so that the next one can begin. If that fails, its lease expires."""
        message = exc.message if isinstance(exc, CbxError) else f"unexpected {type(exc).__name__}"
        try:
            self._attempt(
                connection,
                lambda stores: end_run(stores, run.fence, "failed", error_code="failure", error=message),
            )
        except CbxError:
            self._tell(f"warning: cannot end run {run.run_id}; it ends when its lease expires")

    def _send_heartbeats(self, over: Event, run: ChatRun) -> None:
        with self._connections.open_own(over.is_set) as connection:
            settings = connection.attempt(self._project_id, lambda runtime: runtime.settings)
            while not over.wait(settings.heartbeat):
                try:
                    has_chat = self._attempt(connection, partial(_extend_lease, run=run), insist=False)
                except CbxError as exc:
                    self._tell(f"warning: cannot extend the lease: {exc.message}")
                    continue
                if not has_chat and not over.is_set():
                    self._cancellation.cancel(lost=True)
                    return

    def _attempt(
        self, connection: WorkerConnection, action: Callable[[ChatStores], _T], *, insist: bool = True
    ) -> _T:
        return connection.attempt(
            self._project_id,
            lambda runtime: action(ChatStores(runtime.database, runtime.project_id, runtime.settings)),
            insist=insist,
        )


def _extend_lease(stores: ChatStores, run: ChatRun) -> bool:
    with stores.transaction():
        return stores.chats.extend_lease(run.fence, stores.database.now() + stores.settings.lease_time)


def _has_message(stores: ChatStores, chat_key: str) -> bool:
    chat = stores.chats.get(chat_key)
    return bool(unanswered_messages(stores, chat, chat.answered))


def _read_last_answer(stores: ChatStores, chat_key: str) -> ChatAnswer:
    """Read the outcome of a chat's last run, which belongs to another process."""
    last = stores.runs.last(chat_key, 1)
    if not last:
        raise NotFound(f"chat {chat_key!r} has no unanswered message", hint="a reply was sent meanwhile")
    return _read_answer(stores, chat_key, last[0].run_id, by_other=True)


def _read_answer(stores: ChatStores, chat_key: str, run_id: str, *, by_other: bool) -> ChatAnswer:
    run = stores.runs.get(chat_key, run_id)
    card_ids = [] if run.answer_card_id is None else [run.answer_card_id]
    cards = stores.cards.get_many(card_ids).cards
    return ChatAnswer(
        chat_key=chat_key,
        run_id=run_id,
        status=run.status,
        text=card_text(cards[0].content) if cards else None,
        answer_card_id=run.answer_card_id,
        steps=len(stores.runs.steps(chat_key, run_id)),
        context_id=stores.chats.get(chat_key).context_id,
        by_other=by_other,
        error_code=run.error_code,
        error=run.error,
    )
