"""`cbx worker`: runs the turns of a target by a command of yours, and lists who else does."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardbox_cli.cli.parameters import composing
from cardbox_cli.cli.parameters.inputs import check_choice, check_seconds
from cardbox_cli.cli.runtime import wired
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import age, time
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.context.formats import format_names
from cardbox_cli.context.providers.registry import DEFAULT
from cardbox_cli.errors import UsageError

if TYPE_CHECKING:
    from cardbox_cli.execution.notifications.listener import Listener
    from cardbox_cli.execution.notifications.service import Wakeups
    from cardbox_cli.execution.settings import Settings
    from cardbox_cli.execution.worker.runner import Outcome
    from cardbox_cli.execution.worker.worker import Plan, Worker
    from cardbox_cli.store.connection.target import Target

INTERRUPTED = 130

app = noun("Run turns by a command of yours; list the workers.")


@app.command(
    epilog=examples(
        "  cbx worker run --exec 'python3 client.py' --drain\n"
        "  cbx worker run --exec 'llm -m gpt-4o' --format text --concurrency 4\n"
        "  cbx worker run --target gpu --exec ./ask.sh --once -o jsonl | jq -r .deliverable_card_id"
    )
)
def run(
    exec_: Annotated[
        str,
        typer.Option(
            "--exec", metavar="CMD", help="What answers for the model: reads the request, prints the answer."
        ),
    ],
    target: Annotated[
        str, typer.Option(metavar="T", help="The worker target whose agents it serves.")
    ] = "worker_generic",
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="|".join(format_names()),
            help="The request's, as of `cbx render`.",
        ),
    ] = DEFAULT,
    model: Annotated[str | None, typer.Option(metavar="M", help="The model. Default: the profile's.")] = None,
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, max=256, help="Turns at the same time.")
    ] = 1,
    once: Annotated[bool, typer.Option("--once", help="Make one claim, run it, and end.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing of the target is due or running.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0.1,
            callback=check_seconds,
            help="Seconds that one call of the command may take.",
        ),
    ] = 600,
    max_steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Calls of the model in a turn. Default: CBX_MAX_STEPS, or 8."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0,
            callback=check_seconds,
            help="Seconds that running turns have once it shall stop.",
        ),
    ] = 30,
    layer: composing.Layers = None,
    share: composing.Share = None,
    layout: composing.LayoutName = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Serve the target's agents in all projects.")
    ] = False,
) -> int:
    """Run turns: the command gets each request on its standard input, its output is the model's answer.

    A message of an assistant, or a provider's whole response, may call tools; those with a command are run,
    for others the turn waits. Any other output is the deliverable. What happens is told on stderr; with
    -o jsonl each turn that came to rest is a line of JSON on stdout. A turn that fails is no failure of the
    worker. SIGTERM and Ctrl-C let running turns finish; again, and they are handed back at once.
    """
    check_choice(format_, "--format", format_names(), what="format")
    if once and drain:
        raise UsageError("--once and --drain exclude each other", hint="leave one of them out")
    if not exec_.strip():
        raise UsageError("--exec: the command is blank", hint="for example --exec 'python3 client.py'")
    if not target.strip():
        raise UsageError(
            "--target: the worker target is blank", hint="`cbx agent list` shows those of agents"
        )
    from cardbox_cli.execution.settings import settings_from
    from cardbox_cli.execution.worker.runner import Program
    from cardbox_cli.execution.worker.worker import Plan

    settings = settings_from(os.environ)
    url = session().database_url
    plan = Plan(
        target=target,
        program=Program(
            command=exec_,
            format=format_,
            options=composing.options(model=model, layers=layer, share=share, layout=layout),
            timeout=timeout,
            max_steps=max_steps or settings.max_steps,
            environment={} if url is None else {"CBX_DATABASE_URL": url},
        ),
        project_id=None if all_projects else session().project_id,
        concurrency=concurrency,
        mode="once" if once else "drain" if drain else "serve",
        grace=grace,
    )
    return _serve(plan, settings)


def _serve(plan: "Plan", settings: "Settings") -> int:
    from cardbox_cli.execution.notifications.service import Wakeups
    from cardbox_cli.execution.worker.worker import Worker
    from cardbox_cli.store.connection.database import Database

    target = session().target()
    journal = _Journal(session().output)
    with Wakeups(journal.line) as wakeups, _listener(plan, target, wakeups) as listener:
        worker = Worker(
            plan,
            settings,
            connect=lambda: Database.open_target(target),
            make_runtime=lambda database, project_id: wired(database, project_id, settings, wakeups),
            journal=journal,
            listener=listener,
        )
        where = "all projects" if plan.project_id is None else f"project {plan.project_id!r}"
        journal.leave = worker.leave
        journal.line(f"worker {worker.worker_id} serves {plan.target} in {where}")
        with _signals(worker) as received:
            worker.run()
    journal.close()
    return INTERRUPTED if signal.SIGINT in received else 0


def _listener(plan: "Plan", target: "Target", wakeups: "Wakeups") -> "Listener":
    """Doorbells are for a worker that goes on waiting; others only wait for their own turns."""
    from cardbox_cli.execution.notifications.listener import Listener

    if plan.mode != "serve":
        return Listener()
    return wakeups.listener(target, project_id=plan.project_id, worker_targets=[plan.target])


@contextmanager
def _signals(worker: "Worker") -> Iterator[list[int]]:
    """SIGTERM and SIGINT tell the worker to leave; those that came."""
    received: list[int] = []

    def leave(number: int, _: object) -> None:
        received.append(number)
        worker.leave()

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Journal:
    """What happens, a line each on stderr; turns that came to rest on stdout, where data is asked for.

    What cannot be written is no failure of a turn: `leave` is called once, and `close` raises it.
    """

    def __init__(self, format_: str) -> None:
        self.leave: Callable[[], None] | None = None
        self._format = format_
        self._lock = Lock()
        self._rests: list[dict[str, Any]] = []
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
        with self._writing():
            announce(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}")

    def ended(self, project_id: str, outcome: "Outcome") -> None:
        deliverable = f", deliverable {outcome.end.deliverable_card_id}" if outcome.end else ""
        code = f" ({outcome.error_code})" if outcome.error_code else ""
        end = f" {outcome.end.end_status}" if outcome.end else ""
        said = "" if outcome.said == end.strip() else f": {outcome.said}"
        kind = outcome.kind.replace("_", " ")
        self.line(f"turn {outcome.agent_turn_id} of {outcome.agent_id}: {kind}{end}{code}{said}{deliverable}")
        if outcome.kind in ("ended", "suspended"):
            with self._writing():
                self._keep(_shown(project_id, outcome))

    def _keep(self, shown: dict[str, Any]) -> None:
        if self._format == "jsonl":
            from cardbox_cli.model import exact_json

            output.write(exact_json.encode(shown).decode())
        elif self._format == "id":
            output.write(shown["agent_turn_id"])
        else:
            self._rests.append(shown)
        sys.stdout.flush()

    def close(self) -> None:
        """Print what was kept for the end. Raises what kept something from being written."""
        if self._unwritten is not None:
            raise self._unwritten
        if self._format in ("json", "yaml"):
            output.emit(self._rests, table=lambda: None)


def _shown(project_id: str, outcome: "Outcome") -> dict[str, Any]:
    return {
        "project_id": project_id,
        "agent_turn_id": outcome.agent_turn_id,
        "agent_id": outcome.agent_id,
        "status": outcome.kind,
        "end_status": outcome.end.end_status if outcome.end else None,
        "error_code": outcome.error_code,
        "message": outcome.said if outcome.error_code else None,
        "deliverable_card_id": outcome.end.deliverable_card_id if outcome.end else None,
        "waiting_tool_call_ids": outcome.waiting,
        "steps": outcome.steps,
    }


@app.command("list", epilog=examples("  cbx worker list\n  cbx worker list --target gpu -o json"))
def list_(
    target: Annotated[str | None, typer.Option(metavar="T", help="Only those of this target.")] = None,
) -> None:
    """List the workers that serve this project, and those that fell silent without signing off."""
    from cardbox_cli.store.workers import WorkerStore

    with session().database() as database:
        database.require_execution()
        found = WorkerStore(database, session().project_id).all(target)
    now = datetime.now(UTC)
    output.emit_list(
        found,
        columns=["WORKER", "TARGET", "STATE", "SLOTS", "PROJECT", "STARTED", "HEARD"],
        row=lambda worker: [
            worker.worker_id,
            worker.worker_target,
            "live" if worker.live else "silent",
            str(worker.concurrency),
            worker.project_id or "all",
            time(worker.started_at),
            age(worker.heartbeat_at, now),
        ],
        item_id=lambda worker: worker.worker_id,
        empty=f"no workers serve project {session().project_id!r}; `cbx worker run` is one",
    )
