"""Provides commands with a runtime on the session's database, and with an orderly end at a signal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from cardbox_cli.cli.project_database import database_target, open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.settings import Settings, read_settings

if TYPE_CHECKING:
    from cardbox_cli.execution.notifications.service import WakeupListener, Wakeups
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target


@contextmanager
def runtime() -> "Iterator[Runtime]":
    """Yield a runtime for the session's project for one command. Its commits notify workers."""
    from cardbox_cli.execution.notifications.service import Wakeups

    settings = read_settings()
    with Wakeups(announce) as wakeups, open_database() as database:
        yield make_runtime(database, session().project_id, settings, wakeups)


@contextmanager
def listener(worker_target: str | None) -> "Iterator[WakeupListener]":
    """Yield a listener for work of a worker target (None: any target) in the session's project."""
    from cardbox_cli.execution.notifications.service import Wakeups

    targets = None if worker_target is None else [worker_target]
    with (
        Wakeups(announce) as wakeups,
        wakeups.listener(
            database_target(), project_id=session().project_id, worker_targets=targets
        ) as opened,
    ):
        yield opened


def make_runtime(database: "Database", project_id: str, settings: Settings, wakeups: "Wakeups") -> "Runtime":
    """Return the runtime of a project on a connection, with notifiers and events."""
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.orchestration.batch_manager import BatchManager
    from cardbox_cli.orchestration.handler_registry import HANDLERS

    return Runtime(
        database,
        project_id,
        settings=settings,
        notify=wakeups.notifiers(database).notify,
        publish=wakeups.publish,
        followers=(BatchManager(),),
        handlers=HANDLERS,
    )


def make_connector(target: "Target") -> "Callable[[], Database]":
    """Return a function that connects to a database. Only its first call starts an embedded server."""
    from cardbox_cli.store.connection.database import Database

    was_open = Event()

    def connect() -> Database:
        database = Database.open_target(target, again=was_open.is_set())
        was_open.set()
        return database

    return connect


@contextmanager
def stop_at_signals(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Call `stop` at SIGTERM, SIGINT and SIGHUP, for an orderly end. Yields the list of received signals.

    SIGHUP stays ignored if it was ignored at the start, as under `nohup`.
    """
    received: list[int] = []

    def handle_signal(number: int, _: object) -> None:
        # A closed terminal sends SIGHUP more than once: by the kernel, and by the shell.
        if number != signal.SIGHUP or not received:
            received.append(number)
            stop()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle_signal) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
