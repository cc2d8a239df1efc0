"""Two job queues on Postgres as peers of the inbox: put a job, take a batch and complete it, run a worker.

Both are used by their public interface, with psycopg, as durable as they are by default: every table logged,
every step committed. They are imported when they are opened: `make bench` installs them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import Any, Protocol
from uuid import uuid4

import psycopg

from benchmarks.workbench import Workbench
from cardbox_cli.store.connection.database import Database

# Pointers, as in the payload of an inbox row.
_JOB = {"after_execution": "suspend", "status": "success", "tool_result_card_id": 32 * "0"}
_NAME = "work"


class Work:
    """What a worker has done: `begun` when a job started, `ended` when it was completed."""

    def __init__(self) -> None:
        self.begun, self.ended = Event(), Event()
        self.ended.set()

    def wait_for_end(self) -> None:
        """Wait until nothing runs, and forget it."""
        self.ended.wait(60)
        self.begun.clear()
        self.ended.clear()


class Queue(Protocol):
    """A queue of jobs."""

    def put(self, count: int) -> None:
        """Enqueue so many jobs."""

    def put_one(self) -> None:
        """Enqueue one job as a program does that has one."""

    def work(self, batch: int) -> int:
        """Take so many jobs and complete them; how many there were."""

    def worker(self) -> AbstractContextManager[Work]:
        """A worker that waits for jobs, in a thread."""


Open = Callable[[Workbench, Database], AbstractContextManager[Queue]]


class _PgQueuer:
    def __init__(
        self, connection: Any, conninfo: str, run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        from pgqueuer.queries import EntrypointExecutionParameter, Queries

        self._queries = Queries.from_psycopg_connection(connection)
        self._entrypoints = {_NAME: EntrypointExecutionParameter(concurrency_limit=0)}
        self._manager = uuid4()
        self._conninfo = conninfo
        self._run = run
        self._payload = str(_JOB).encode()
        run(self._queries.install())

    def put(self, count: int) -> None:
        self._run(self._queries.enqueue([_NAME] * count, [self._payload] * count, [0] * count))

    def put_one(self) -> None:
        self._run(self._queries.enqueue(_NAME, self._payload))

    def work(self, batch: int) -> int:
        return int(self._run(self._work(batch)))

    async def _work(self, batch: int) -> int:
        jobs = await self._queries.dequeue(
            batch, self._entrypoints, self._manager, None, timedelta(seconds=60)
        )
        await self._queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)

    @contextmanager
    def worker(self) -> Iterator[Work]:
        work = Work()

        async def serve(started: Callable[[Callable[[], object]], None]) -> None:
            from pgqueuer import PgQueuer

            async with await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
                manager = PgQueuer.from_psycopg_connection(connection)

                async def job(job: Any) -> None:
                    work.begun.set()
                    work.ended.set()

                manager.entrypoint(_NAME)(job)
                started(manager.shutdown.set)
                await manager.run(batch_size=1)

        with _in_thread(serve):
            yield work


class _Procrastinate:
    def __init__(self, app: Any, conninfo: str, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._app = app
        self._conninfo = conninfo
        self._run = run
        self._task = _task(app, Work())
        run(app.schema_manager.apply_schema_async())
        self._worker_id = run(app.job_manager.register_worker())

    def put(self, count: int) -> None:
        self._run(self._task.batch_defer_async(*[_JOB] * count))

    def put_one(self) -> None:
        self._run(self._task.defer_async(**_JOB))

    def work(self, batch: int) -> int:
        if batch != 1:
            raise ValueError("procrastinate fetches one job at a time")
        return int(self._run(self._work()))

    async def _work(self) -> int:
        from procrastinate.jobs import Status

        manager = self._app.job_manager
        job = await manager.fetch_job([_NAME], self._worker_id)
        if job is None:
            return 0
        await manager.finish_job(job, status=Status.SUCCEEDED, delete_job=False)
        return 1

    @contextmanager
    def worker(self) -> Iterator[Work]:
        work = Work()

        async def serve(started: Callable[[Callable[[], object]], None]) -> None:
            app = _app(self._conninfo, connections=4)
            _task(app, work)
            async with app.open_async():
                serving = asyncio.ensure_future(
                    app.run_worker_async(queues=[_NAME], install_signal_handlers=False)
                )
                started(serving.cancel)
                await asyncio.wait([serving])

        with _in_thread(serve):
            yield work


def _app(conninfo: str, *, connections: int) -> Any:
    from procrastinate import App, PsycopgConnector

    return App(connector=PsycopgConnector(conninfo=conninfo, min_size=connections, max_size=connections))


def _task(app: Any, work: Work) -> Any:
    async def job(**_: Any) -> None:
        work.begun.set()
        work.ended.set()

    return app.task(queue=_NAME, name=_NAME)(job)


@contextmanager
def _loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    with asyncio.Runner() as runner:
        yield runner.get_loop().run_until_complete


@contextmanager
def _in_thread(
    serve: Callable[[Callable[[Callable[[], object]], None]], Coroutine[Any, Any, None]],
) -> Iterator[None]:
    """Run `serve` in a loop of its own; it says how to stop it when it has started."""
    ready = Event()
    stops: list[Callable[[], object]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def started(stop: Callable[[], object]) -> None:
            stops.append(lambda: loop.call_soon_threadsafe(stop))
            ready.set()

        await serve(started)

    thread = Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        ready.wait(60)
        yield
    finally:
        for stop in stops:
            stop()
        thread.join()


@contextmanager
def pgqueuer(bench: Workbench, database: Database) -> Iterator[Queue]:
    """PgQueuer, which takes jobs in batches."""
    conninfo = database.target.conninfo or ""
    with _loop() as run:
        connection = run(psycopg.AsyncConnection.connect(conninfo, autocommit=True))
        try:
            yield _PgQueuer(connection, conninfo, run)
        finally:
            run(connection.close())


@contextmanager
def procrastinate(bench: Workbench, database: Database) -> Iterator[Queue]:
    """Procrastinate, which takes one job at a time."""
    conninfo = database.target.conninfo or ""
    with _loop() as run:
        app = _app(conninfo, connections=1)
        run(app.open_async())
        try:
            yield _Procrastinate(app, conninfo, run)
        finally:
            run(app.close_async())


ALL: dict[str, Open] = {"pgqueuer": pgqueuer, "procrastinate": procrastinate}
