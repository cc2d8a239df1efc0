"""`cbx turn replay` and `fork`: run turns here or await them, and compare the results."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Option

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import make_connector, make_runtime, runtime, stop_at_signals
from cardbox_cli.cli.last_ids import remember_made, resolving_turns
from cardbox_cli.cli.options import model_program
from cardbox_cli.cli.options.shared_options import EndTimeout, TurnId
from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.output import compare_texts
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_table
from cardbox_cli.cli.terminal.turn_report import refuse
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Conflict, Findings
from cardbox_cli.model.ids import short_id
from cardbox_cli.settings import read_settings
from cardbox_cli.text.command_lines import command_line
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.execution.worker.runner import RunOutcome
    from cardbox_cli.execution.worker.worker_program import Program
    from cardbox_cli.orchestration.replay import OutcomeComparison, ReplayOptions, TurnOutcome
    from cardbox_cli.store.views.turn_views import TurnViews


ProfileName = Annotated[
    str | None, Option(click_type=PROFILE, help="Run the turn with this profile. Default: its own profile.")
]
Exec = Annotated[
    str | None,
    Option(
        "--exec",
        metavar="CMD",
        help="Run the turn here with this model command. Default: the workers of its target run it.",
    ),
]


class _OwnWorker(NamedTuple):
    """A worker in this process: its program, and a new worker target that only this worker serves."""

    target: str
    program: "Program"


def _make_own_worker(
    run: "Runtime",
    turn_id: str,
    command: str | None,
    env: Sequence[str] | None,
    tools: str | None,
    trust_stored_commands: bool,
) -> _OwnWorker | None:
    """Return the worker for --exec, with requests in the format of the turn; None without --exec."""
    if command is None:
        return None
    import uuid6

    from cardbox_cli.context.request import DEFAULT_OPTIONS
    from cardbox_cli.execution.requests.step_snapshots import read_snapshot

    model_program.check_command(command)
    where = database_target()
    snapshots = (read_snapshot(step.metadata) for step in run.turns.steps(turn_id))
    first = next(filter(None, snapshots), None)
    program = model_program.make_program(
        command,
        where,
        run.settings,
        format=None if first is None else first.format,
        answers="auto",
        options=DEFAULT_OPTIONS,
        timeout=600,
        environment=model_program.environment_of(env or (), where),
        tools=tools,
        trusts_stored=trust_stored_commands,
    )
    return _OwnWorker(f"replay-{uuid6.uuid7().hex}", program)


def _dispatch(run: "Runtime", turn_id: str, options: "ReplayOptions") -> list[str]:
    """Dispatch the turns and return their ids. Raises NotAccepted."""
    from cardbox_cli.orchestration.replay import dispatch_replays

    replays = dispatch_replays(run, turn_id, options)
    last = replays[-1].result
    if last.status != "accepted":
        refuse(replays[-1])
    remember_made(turn_id=last.agent_turn_id, box_id=last.context_box_id)
    return [each.result.agent_turn_id or "" for each in replays]


def _run_here(run: "Runtime", turn_ids: Sequence[str], worker: _OwnWorker) -> None:
    """Run the turns until none is due. An early end, for example by a signal, stops the remaining turns."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    try:
        with stop_at_signals(interrupt):
            _work(worker)
    except BaseException:
        # No other worker serves the target.
        _stop_unfinished(run, turn_ids)
        raise
    _announce_waiting(run, turn_ids, worker.target)


def _stop_unfinished(run: "Runtime", turn_ids: Sequence[str]) -> None:
    """Stop the turns that have not ended, waiting ones before running ones."""
    from cardbox_cli.execution.recovery import fixes

    stopped = 0
    for turn_id in reversed(turn_ids):
        with suppress(Conflict):
            fixes.stop(run, turn_id, actor=actor(run.database), reason="its replay ended early")
            stopped += 1
    if stopped:
        announce(f"note: {format_count(stopped, 'turn')} stopped")


def _announce_waiting(run: "Runtime", turn_ids: Sequence[str], worker_target: str) -> None:
    """Announce how to continue the turns that wait for a tool result."""
    views = resolving_turns(run.database, run.project_id)
    waiting = [turn_id for turn_id in turn_ids if views.get(turn_id).status != "ended"]
    if waiting:
        run_worker = command_line(["worker", "run"], "--target", worker_target)
        verb = "waits" if len(waiting) == 1 else "wait"
        announce(
            f"note: {format_count(len(waiting), 'turn')} {verb} for a tool result: see "
            f"`cbx why {waiting[0]}`, then continue with `{run_worker} --exec CMD --drain`"
        )


def _work(worker: _OwnWorker) -> None:
    from cardbox_cli.execution.notifications.service import WakeupListener, Wakeups
    from cardbox_cli.execution.worker.worker import Worker, WorkerPlan

    settings = read_settings()
    plan = WorkerPlan(
        target=worker.target, program=worker.program, project_id=session().project_id, mode="drain"
    )
    with Wakeups(announce) as wakeups, WakeupListener() as listener:
        Worker(
            plan,
            settings,
            connect=make_connector(database_target()),
            make_runtime=lambda database, project_id: make_runtime(database, project_id, settings, wakeups),
            journal=_ReplayJournal(),
            listener=listener,
        ).run()


class _ReplayJournal:
    """Prints warnings and ends; the results are printed at the end."""

    def line(self, text: str) -> None:
        if text.startswith("warning"):
            announce(text)

    def write_outcome(self, project_id: str, outcome: "RunOutcome") -> None:
        announce(f"turn {outcome.agent_turn_id}: {outcome.kind} {outcome.message}")


def _print_compared(turns: "TurnViews", turn_id: str, others: Sequence[str]) -> None:
    """Print the results next to the first turn. Raises Findings unless all others succeeded."""
    from cardbox_cli.orchestration.replay import compare, outcome_of

    with turns.database.snapshot():
        first = outcome_of(turns, turn_id)
        comparisons = compare(first, [outcome_of(turns, each) for each in others])
    answer = {"turn": first, "replays": comparisons}
    output.emit(answer, table=lambda: _print_table(first, comparisons), ids=list(others))
    failed_ids = [each.outcome.agent_turn_id for each in comparisons if each.outcome.end_status != "success"]
    if failed_ids:
        raise Findings(
            f"{len(failed_ids)} of {len(comparisons)} turns did not succeed",
            hint=f"run `cbx turn show {failed_ids[0]}` for details",
            details={"agent_turn_ids": failed_ids},
        )


def _print_table(first: "TurnOutcome", comparisons: "Sequence[OutcomeComparison]") -> None:
    print_table(_OUTCOME_COLUMNS, [(first, None), *((each.outcome, each) for each in comparisons)])
    for each in comparisons:
        if not each.same_text:
            output.print_text()
            output.print_painted([("bold", f"{short_id(each.outcome.agent_turn_id)} answered differently:")])
            output.print_painted(compare_texts(first.text, each.outcome.text))


def _format_changes(each: "OutcomeComparison | None") -> str:
    if each is None:
        return NOTHING
    return "same" if each.same_text else f"+{each.words_added} -{each.words_removed}"


def _format_tokens(outcome: "TurnOutcome") -> str:
    if outcome.input_tokens is None and outcome.output_tokens is None:
        return NOTHING
    return f"{outcome.input_tokens or 0} + {outcome.output_tokens or 0}"


def _format_tools(outcome: "TurnOutcome") -> str:
    return ", ".join(f"{name} {times}" for name, times in outcome.tools.items()) or NOTHING


# Items are pairs of an outcome and its comparison with the first, None for the first itself.
_OUTCOME_COLUMNS = (
    Column("TURN", lambda pair: short_id(pair[0].agent_turn_id)),
    Column("END", lambda pair: pair[0].end_status or pair[0].status),
    Column("STEPS", lambda pair: str(pair[0].steps), right=True),
    Column("TOKENS", lambda pair: _format_tokens(pair[0]), right=True),
    Column("WRITTEN", lambda pair: f"~{pair[0].written_tokens}", right=True),
    Column("WORDS", lambda pair: _format_changes(pair[1]), right=True),
    Column("TOOLS", lambda pair: _format_tools(pair[0])),
)


@verb(
    "replay",
    "cbx turn replay 1d5c8f72 --exec 'python3 client.py' --times 3",
    "cbx turn replay @last --profile terse --timeout 300 -o json | jq '.replays[].same_text'",
    "cbx turn replay 1d5c8f72 --no-wait -o id | xargs -n1 cbx turn wait",
)
def replay_turn(
    turn: TurnId,
    profile: ProfileName = None,
    exec_: Exec = None,
    env: model_program.Variables = None,
    tools: model_program.ToolsFile = None,
    trust_stored_commands: model_program.TrustStored = False,
    times: Annotated[int, Option(metavar="N", min=1, max=100, help="Run the turn N times.")] = 1,
    timeout: EndTimeout = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Request the turns and print their ids, without waiting.")
    ] = False,
) -> None:
    """Run a turn again with the same context and a new output box, and compare the results.

    A new agent runs it, so the agent and boxes of the turn do not change. Its tools run again.
    Exit 8 if one of the turns does not succeed, 124 when --timeout elapses.
    """
    from cardbox_cli.execution.turn_summary import wait_for_end
    from cardbox_cli.orchestration.replay import ReplayOptions

    with runtime() as run:
        turns = resolving_turns(run.database, run.project_id)
        turn_id = turns.resolve(turn)
        worker = _make_own_worker(run, turn_id, exec_, env, tools, trust_stored_commands)
        options = ReplayOptions(times=times, profile_name=profile, worker_target=worker and worker.target)
        ids = _dispatch(run, turn_id, options)
        if worker is not None:
            _run_here(run, ids, worker)
        elif no_wait:
            output.emit({"agent_turn_ids": ids}, table=lambda: output.print_lines(ids), ids=ids)
            return
        else:
            for each in ids:
                wait_for_end(turns, each, timeout=timeout)
        _print_compared(turns, turn_id, ids)


@verb(
    "fork",
    "cbx turn fork 1d5c8f72 --at 3 --instruction 'Look at the second log, too.'",
    "cbx turn fork @last --at 2 --profile careful --exec 'python3 client.py'",
)
def fork_turn(
    turn: TurnId,
    at: Annotated[str, Option(metavar="STEP", help="The step to run again: its number or id.")],
    instruction: Annotated[
        str | None, Option(metavar="TEXT", help="An instruction to add after the output so far.")
    ] = None,
    profile: ProfileName = None,
    exec_: Exec = None,
    env: model_program.Variables = None,
    tools: model_program.ToolsFile = None,
    trust_stored_commands: model_program.TrustStored = False,
) -> None:
    """Branch from a step of a turn: a new agent runs the step again with everything before it.

    The old turn does not change. With --exec, the new turn runs here and is compared; else workers run it.
    """
    from cardbox_cli.orchestration.replay import ReplayOptions

    with runtime() as run:
        turns = resolving_turns(run.database, run.project_id)
        turn_id = turns.resolve(turn)
        worker = _make_own_worker(run, turn_id, exec_, env, tools, trust_stored_commands)
        target = worker and worker.target
        options = ReplayOptions(profile_name=profile, worker_target=target, at=at, instruction=instruction)
        ids = _dispatch(run, turn_id, options)
        if worker is not None:
            _run_here(run, ids, worker)
            _print_compared(turns, turn_id, ids)
        else:
            output.emit({"agent_turn_id": ids[0]}, table=lambda: output.facts(("turn", ids[0])), ids=ids)
