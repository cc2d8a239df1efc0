"""`cbx why`: the verdict on a turn, who must act next, and the command that fixes it. Never writes."""

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from cardbox_cli.cli.last_ids import LAST, recall
from cardbox_cli.cli.options.value_types import AGENT, TURN
from cardbox_cli.cli.project_database import lag_note, open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, Shown, fold_to_terminal, print_below
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings, UsageError
from cardbox_cli.settings import read_settings
from cardbox_cli.text.command_lines import command_line, split_comment
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.escaping import escape_line, flatten
from cardbox_cli.text.quantities import format_count
from cardbox_cli.text.times import format_time

if TYPE_CHECKING:
    from cardbox_cli.diagnosis.diagnoser import Survey
    from cardbox_cli.diagnosis.verdict import Diagnosis


@verb(
    "why",
    "cbx why",
    "cbx why 0198c2f0",
    "cbx why --agent researcher",
    "cbx why --all",
    "cbx why --all -o json | jq -r '.[].fix | select(. != null)'",
    pages=True,
    reads=True,
)
def explain_turn(
    turn: Annotated[
        str | None,
        Argument(
            click_type=TURN,
            help="A turn's full id, or a unique part at its start or end. Default: @last.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        Option(click_type=AGENT, help="Explain this agent's active turn, else its next or last turn."),
    ] = None,
    all_: Annotated[bool, Option("--all", help="List every stuck turn of the project.")] = False,
) -> None:
    """Explain why a turn is stuck or waiting: the rows that prove it, who must act next, and the exact fix.

    Exit code 0: healthy, ended, or waiting in time. 8: stuck, or in an unknown state.
    """
    choices = {"TURN": turn is not None, "--agent": agent is not None, "--all": all_}
    if sum(choices.values()) > 1:
        raise UsageError(conflict_message(*(name for name in choices if choices[name])))
    from cardbox_cli.diagnosis.diagnoser import Diagnoser
    from cardbox_cli.orchestration.handler_registry import HANDLERS
    from cardbox_cli.store.projects import require_known

    with open_database() as database:
        for note in lag_note(database):
            announce(note)
        diagnoser = Diagnoser(database, session().project_id, read_settings(), HANDLERS)
        if all_:
            survey = diagnoser.survey()
            if not (survey.problems or survey.looked_at):
                require_known(database, session().project_id)
            _print_survey(survey)
        elif agent is not None:
            _print_diagnosis(diagnoser.agent(agent))
        else:
            if turn is None or turn == LAST:
                turn = recall(database.address, session().project_id, "turn")
            _print_diagnosis(diagnoser.turn(turn))


def _print_diagnosis(diagnosis: "Diagnosis") -> None:
    from cardbox_cli.diagnosis.diagnoser import why_answer

    answer, names = why_answer(diagnosis, session().project_option), [diagnosis.turn or diagnosis.agent]
    output.emit(answer, table=lambda: _print_page(diagnosis), ids=names)
    if diagnosis.is_well:
        return
    # The page begins with the verdict: an error message would print it twice.
    if session().output in ("table", "wide"):
        raise Exit(Findings.exit_code)
    raise Findings(f"{_subject(diagnosis)} is {diagnosis.verdict}: {diagnosis.rule or diagnosis.proves}")


def _print_survey(survey: "Survey") -> None:
    from cardbox_cli.diagnosis.diagnoser import survey_answer

    output.emit_list(
        survey_answer(survey, session().project_option),
        columns=Shown(_PROBLEM_COLUMNS),
        item_id=lambda each: each.turn or each.agent,
        empty="nothing is stuck",
    )
    announce(
        f"{format_count(survey.active, 'active agent')}, {format_count(survey.queued, 'turn')} queued,"
        f" {survey.looked_at} examined"
        if survey.could_read
        else "no turn was examined: a table is not readable"
    )
    if survey.problems:
        first = survey.problems[0]
        words = ["why", first.turn] if first.turn else ["why", "--agent", first.agent]
        command = command_line(words, *split_comment(session().project_option)[0])
        raise Findings(
            f"{format_count(len(survey.problems), 'turn')} with problems",
            hint=f"explain the first turn: `{command}`",
        )


_PROBLEM_COLUMNS = (
    Column(
        "TURN",
        lambda problem: problem.turn or (f"of agent {problem.agent}" if problem.agent else NOTHING),
    ),
    Column("VERDICT", lambda problem: problem.verdict),
    Column("RULE", lambda problem: problem.rule or NOTHING),
    Column("WAITING", lambda problem: str(problem.waiting), right=True, spare=1),
    Column("FIX", lambda problem: problem.fix or problem.next_actor or NOTHING, overflow="whole"),
)
_EVIDENCE_COLUMNS = (
    Column("TABLE", lambda evidence: evidence.table),
    Column("ROW", lambda evidence: evidence.row),
    Column("SHOWS", lambda evidence: flatten(evidence.shows)),
)


def _print_page(diagnosis: "Diagnosis") -> None:
    from cardbox_cli.diagnosis.diagnoser import fix_line

    colour = "" if diagnosis.is_well else "red"
    output.print_painted([(colour, _headline(diagnosis))])
    output.print_text(fold_to_terminal(diagnosis.proves))
    print_below(_EVIDENCE_COLUMNS, diagnosis.evidence)
    output.print_text()
    fix = fix_line(diagnosis.fix, session().project_option)
    output.facts(("next", diagnosis.next_actor), ("by", format_time(diagnosis.due_at)), ("fix", fix))
    if diagnosis.also:
        output.print_lines(["", "also seen", *(f"  {seen.rule}: {seen.proves}" for seen in diagnosis.also)])


def _headline(diagnosis: "Diagnosis") -> str:
    if diagnosis.verdict == "ended" and diagnosis.end_status is not None:
        return f"{_subject(diagnosis)} has ended: {diagnosis.end_status}"
    rule = f": {diagnosis.rule}" if diagnosis.rule else ""
    return f"{_subject(diagnosis)} is {diagnosis.verdict}{rule}"


def _subject(diagnosis: "Diagnosis") -> str:
    what, name = ("agent", diagnosis.agent) if diagnosis.turn is None else ("turn", diagnosis.turn)
    return f"{what} {escape_line(name)}"
