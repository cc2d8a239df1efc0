"""`cbx worker`: runs the turns of a target with your command, and lists workers."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cardbox_cli.cli.boundary import INTERRUPTED
from cardbox_cli.cli.command_runtime import make_connector, make_runtime, stop_at_signals
from cardbox_cli.cli.common_options import FORMATS
from cardbox_cli.cli.options import compose_options, model_program
from cardbox_cli.cli.options.value_types import Seconds
from cardbox_cli.cli.project_database import database_target, open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, Shown
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.pairing import PREVIEW
from cardbox_cli.settings import MAX_STEPS, Settings, read_settings
from cardbox_cli.store.connection.target import Target
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.escaping import excerpt
from cardbox_cli.text.quantities import format_count
from cardbox_cli.text.times import format_age, format_time

if TYPE_CHECKING:
    from cardbox_cli.execution.notifications.service import WakeupListener, Wakeups
    from cardbox_cli.execution.worker.runner import RunOutcome
    from cardbox_cli.execution.worker.worker import WorkerPlan
    from cardbox_cli.model.execution.turns import WorkerEntry


# The id of a turn, or another UUID.
_LONG_ID = re.compile(
    r"\bturn_[0-9a-f]{32}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b"
)


class _WorkerJournal:
    """Prints events as lines on stderr, and outcomes of runs on stdout if a data format was chosen.

    A failure to write does not fail a turn: it calls `leave` once, and `close` raises it.
    """

    def __init__(self, format_: str) -> None:
        self.leave: Callable[[], None] | None = None
        self._format = format_
        self._lock = Lock()
        self._outcomes: list[dict[str, Any]] = []
        self._unwritten: OSError | None = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except OSError as exc:
            self._unwritten = self._unwritten or exc
            leave, self.leave = self.leave, None
            if leave is not None:
                leave()

    def line(self, text: str) -> None:
        """Print a line of the log. A terminal gets short ids and the time without the date."""
        moment = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if sys.stderr.isatty():
            moment = moment[11:]
            text = _LONG_ID.sub(lambda match: short_id(match[0]), text)
        with self._writing():
            announce(f"{moment} {text}")

    def write_outcome(self, project_id: str, outcome: "RunOutcome") -> None:
        deliverable = f", deliverable {outcome.end.deliverable_card_id}" if outcome.end else ""
        code = f" ({outcome.error_code})" if outcome.error_code else ""
        end = f" {outcome.end.end_status}" if outcome.end else ""
        message = "" if outcome.message == end.strip() else f": {outcome.message}"
        kind = outcome.kind.replace("_", " ")
        self.line(
            f"turn {outcome.agent_turn_id} of {outcome.agent_id}: {kind}{end}{code}{message}{deliverable}"
        )
        if outcome.kind in ("ended", "suspended"):
            with self._writing():
                self._write(_outcome_json(project_id, outcome))

    def _write(self, shown: dict[str, Any]) -> None:
        if self._format == "jsonl":
            from cardbox_cli.model import exact_json

            output.write(exact_json.encode(shown).decode())
        elif self._format == "id":
            output.write(shown["agent_turn_id"])
        else:
            self._outcomes.append(shown)
        sys.stdout.flush()

    def close(self) -> None:
        """Print the outcomes held for the end. Raises the OSError of an earlier write."""
        if self._unwritten is not None:
            raise self._unwritten
        if FORMATS[self._format].kind != "lines":
            output.emit(self._outcomes, table=lambda: None)


def _outcome_json(project_id: str, outcome: "RunOutcome") -> dict[str, Any]:
    return {
        "project_id": project_id,
        "agent_turn_id": outcome.agent_turn_id,
        "agent_id": outcome.agent_id,
        "status": outcome.kind,
        "end_status": outcome.end.end_status if outcome.end else None,
        "error_code": outcome.error_code,
        "message": outcome.message if outcome.error_code else None,
        "deliverable_card_id": outcome.end.deliverable_card_id if outcome.end else None,
        "waiting_tool_call_ids": outcome.waiting,
        "steps": outcome.steps,
    }


@verb(
    "run",
    "cbx worker run --exec 'python3 client.py' --drain",
    "cbx worker run --exec 'llm -m gpt-4o' --format text --answers text --env OPENAI_API_KEY",
    "cbx worker run --serve 'python3 client.py --serve' --concurrency 4",
    "cbx worker run --exec 'python3 client.py' --tools commands.yaml --concurrency 4",
    "cbx worker run --target gpu --exec ./ask.sh --once -o jsonl | jq -r .deliverable_card_id",
)
def run_worker(
    exec_: Annotated[
        str | None,
        Option(
            "--exec", metavar="CMD", help="Your model command: reads a request on stdin, prints the answer."
        ),
    ] = None,
    serve: Annotated[
        str | None,
        Option(
            metavar="CMD",
            help="Instead of --exec: a long-running command that reads requests and prints answers as JSONL.",
        ),
    ] = None,
    restart_after: Annotated[
        int | None, Option(metavar="N", min=1, help="Restart a --serve command after N requests.")
    ] = None,
    target: Annotated[
        str, Option(metavar="TARGET", help="Serve the agents with this worker target.")
    ] = "worker_generic",
    format_: model_program.RequestFormat = None,
    answers: model_program.AnswersRead = "auto",
    env: model_program.Variables = None,
    tools: model_program.ToolsFile = None,
    trust_stored_commands: model_program.TrustStored = False,
    model: compose_options.Model = None,
    concurrency: Annotated[int, Option(metavar="N", min=1, max=256, help="Turns to run in parallel.")] = 1,
    once: Annotated[bool, Option("--once", help="Run one turn, then exit.")] = False,
    drain: Annotated[
        bool, Option("--drain", help="Exit when no turn of the target is due or running.")
    ] = False,
    timeout: Annotated[
        float, Option(click_type=Seconds(min=0.1), help="Time limit of one call of the command.")
    ] = 600,
    max_steps: Annotated[
        int | None,
        Option(metavar="N", help=f"{MAX_STEPS.help} Default: {MAX_STEPS.name}, or {MAX_STEPS.default}."),
    ] = None,
    grace: Annotated[
        float, Option(click_type=Seconds(min=0), help="Time to let running turns finish on shutdown.")
    ] = 30,
    layer: compose_options.Layers = None,
    share: compose_options.Share = None,
    layout: compose_options.LayoutName = None,
    all_projects: Annotated[
        bool, Option("--all-projects", help="Serve the target's agents in all projects.")
    ] = False,
) -> int:
    """Run the turns of a worker target (--target) with your model command.

    The command reads a request on stdin and prints the answer: an assistant message, a provider's response,
    or text. If the answer calls tools, the worker runs their commands; the turn waits for tools without
    a command. Any other answer is the deliverable.

    Events go to stderr; -o jsonl prints the outcome of each turn on stdout. A failed turn does not fail the
    worker. SIGTERM, SIGHUP and Ctrl-C let running turns finish; a second one returns them to the queue.
    """
    if once and drain:
        raise UsageError(conflict_message("--once", "--drain"), hint="remove one of them")
    if not target.strip():
        raise UsageError("--target is empty", hint="`cbx agent list` shows the worker target of each agent")
    from cardbox_cli.cli.options.model_program import environment_of, keep_running, make_program, one_command
    from cardbox_cli.execution.worker.worker import WorkerPlan

    settings = read_settings(max_steps=max_steps)
    where = database_target()
    option, answering = one_command(exec_, serve, restart_after)
    program = make_program(
        answering,
        where,
        settings,
        option=option,
        format=format_,
        answers=answers,
        options=compose_options.options(model=model, layers=layer, share=share, layout=layout),
        timeout=timeout,
        environment=environment_of(env or (), where),
        tools=tools,
        trusts_stored=trust_stored_commands,
    )
    with keep_running(program, restart_after) if serve is not None else nullcontext(program) as program:
        plan = WorkerPlan(
            target=target,
            program=program,
            project_id=None if all_projects else session().project_id,
            concurrency=concurrency,
            mode="once" if once else "drain" if drain else "serve",
            grace=grace,
        )
        return _serve(plan, settings)


def _serve(plan: "WorkerPlan", settings: Settings) -> int:
    from cardbox_cli.execution.notifications.service import Wakeups
    from cardbox_cli.execution.worker.worker import Worker

    target = database_target()
    journal = _WorkerJournal(session().output)
    with Wakeups(journal.line) as wakeups, _listener(plan, target, wakeups) as listener:
        worker = Worker(
            plan,
            settings,
            connect=make_connector(target),
            make_runtime=lambda database, project_id: make_runtime(database, project_id, settings, wakeups),
            journal=journal,
            listener=listener,
        )
        where = "all projects" if plan.project_id is None else f"project {plan.project_id!r}"
        journal.leave = worker.drain
        journal.line(f"worker {worker.worker_id} serves {plan.target} in {where}")
        with stop_at_signals(worker.leave) as received:
            worker.run()
    journal.close()
    return INTERRUPTED if signal.SIGINT in received else 0


def _listener(plan: "WorkerPlan", target: Target, wakeups: "Wakeups") -> "WakeupListener":
    """Return a listener for new work; other modes wait only for their own turns."""
    from cardbox_cli.execution.notifications.service import WakeupListener

    if plan.mode != "serve":
        return WakeupListener()
    return wakeups.listener(target, project_id=plan.project_id, worker_targets=[plan.target])


@verb("list", "cbx worker list", "cbx worker list --target gpu -o json", pages=True, reads=True)
def list_workers(
    target: Annotated[str | None, Option(metavar="TARGET", help="Only workers of this target.")] = None,
    all_: Annotated[bool, Option("--all", help="Include workers that stopped unexpectedly.")] = False,
) -> None:
    """List the workers that serve this project."""
    from cardbox_cli.store.execution.worker_store import WorkerStore

    with open_database() as database:
        database.require_execution()
        workers = WorkerStore(database, session().project_id).all(target)
    shown = [worker for worker in workers if all_ or worker.live]
    output.emit_list(
        shown,
        columns=Shown(_WORKER_COLUMNS),
        item_id=lambda worker: worker.worker_id,
        empty=f"no workers serve project {session().project_id!r}; start one with `cbx worker run`",
    )
    if len(shown) < len(workers):
        announce(
            f"{format_count(len(workers) - len(shown), 'worker')} stopped unexpectedly; show them with --all"
        )


def _worker_state(worker: "WorkerEntry") -> str:
    if not worker.live:
        return "silent"
    return "live" if worker.last_error is None else "unable"


_WORKER_COLUMNS = (
    Column("WORKER", lambda worker: worker.worker_id),
    Column("TARGET", lambda worker: worker.worker_target),
    Column("STATE", _worker_state),
    Column("SLOTS", lambda worker: str(worker.concurrency), right=True),
    Column("PROJECT", lambda worker: worker.project_id or "all"),
    Column("STARTED", lambda worker: format_time(worker.started_at) or NOTHING, spare=2),
    Column("HEARD", lambda worker: format_age(worker.heartbeat_at), right=True),
    Column("CANNOT WORK", lambda worker: excerpt(worker.last_error or NOTHING, PREVIEW)),
)
