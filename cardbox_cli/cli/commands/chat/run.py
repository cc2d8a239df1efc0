"""`cbx chat run`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Option

from cardbox_cli.cli.actor import own_turn
from cardbox_cli.cli.boundary import INTERRUPTED
from cardbox_cli.cli.command_runtime import connecting, stopped_by_signals
from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options import compose_options, model_program
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.project_database import database_target, open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.streaming import Streaming
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Busy, Findings, UsageError
from cardbox_cli.model.text.command_lines import argument
from cardbox_cli.settings import Settings, settings_from

if TYPE_CHECKING:
    from cardbox_cli.chat.runs.run import Answered, ChatRunner
    from cardbox_cli.execution.worker.commands.program import Program


@verb(
    "run",
    "cbx chat run telegram-chat-42 --exec 'python3 client.py'",
    "cbx chat run telegram-chat-42 --text 'Where is my order?' --exec ./ask.sh --no-wait",
    "cbx chat run telegram-chat-42 --exec 'llm -m gpt-4o' --format text --answers text --env OPENAI_API_KEY",
)
def run_chat(
    key: ChatKey,
    exec_: model_program.Exec,
    text: Annotated[str | None, Option(metavar="TEXT", help="A user's message, sent first.")] = None,
    profile: Annotated[
        str | None,
        Option(click_type=PROFILE, help="The system prompt, model and tools of this profile, too."),
    ] = None,
    wait: Annotated[
        bool, Option("--wait/--no-wait", help="Wait while another run has the chat; else exit 6.")
    ] = True,
    format_: model_program.RequestFormat = None,
    answers: model_program.AnswersRead = "auto",
    env: model_program.Variables = None,
    tools: model_program.ToolsFile = None,
    trust_stored_commands: model_program.TrustStored = False,
    model: compose_options.Model = None,
    timeout: model_program.CommandTimeout = 600,
    max_steps: model_program.MaxSteps = None,
    layer: compose_options.Layers = None,
    stream: Annotated[
        bool, Option("--stream", help="Show what the command prints as it comes, where that is text.")
    ] = False,
) -> int:
    """Answer the newest unanswered message of a chat, in steps: the command gets each request on its stdin.

    Calls of the four tools of chats are answered by cbx, those of registered tools by their commands here.
    What the command sends by itself with `cbx chat reply` is the answer; else what it prints in the end is
    entered as the reply. Messages that come meanwhile are taken in between two steps.
    """
    from cardbox_cli.cli.options.model_program import check_command, environment_of, program_of

    check_command(exec_)
    streaming = _streaming(answers) if stream else None
    settings = settings_from(max_steps=max_steps)
    where = database_target()
    program = program_of(
        exec_,
        where,
        settings,
        format=format_,
        answers=answers,
        options=compose_options.options(model=model, layers=layer),
        timeout=timeout,
        environment=environment_of(env or (), where),
        tools=tools,
        trusts_stored=trust_stored_commands,
    )
    if streaming is not None:
        program = msgspec.structs.replace(program, listen=streaming.listen)
    with open_database() as database:
        data = None if profile is None else _profile(database, profile)
        if text is not None:
            from cardbox_cli.chat.transcript import send

            send(room_of(database), key, text, turn=own_turn())
    try:
        with _runner(program, settings, data) as runner, stopped_by_signals(runner.cancel) as received:
            answered = runner.answer(key, wait=wait)
    except Busy as busy:
        raise busy if text is None else _sent_already(busy) from None
    return _tell(answered, streaming, interrupted=bool(received))


def _sent_already(busy: Busy) -> Busy:
    return Busy(
        busy.message,
        hint="the message was sent, and waits for a run; without --text it is not sent again",
        details=busy.details,
    )


def _streaming(answers: str) -> Streaming:
    """What shows the answers of a command in this mode. Raises UsageError where programs read them."""
    if session().format.kind != "text":
        raise UsageError(f"--stream is for people, not for -o {session().output}", hint="leave one out")
    return Streaming(any_text=answers == "text")


def _profile(database: Any, name: str) -> dict[str, Any]:
    from cardbox_cli.context.request import profile_of
    from cardbox_cli.execution.requests.request import present_cards
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.profiles import ProfileStore

    profiles = ProfileStore(database, session().project_id)
    entry = profiles.get(name)
    profiles.refuse_lost_box(entry)
    return profile_of(present_cards(BoxStore(database, session().project_id).slots(entry.profile_box_id)))


@contextmanager
def _runner(program: "Program", settings: Settings, profile: dict[str, Any] | None) -> "Iterator[ChatRunner]":
    from cardbox_cli.chat.runs.run import ChatRunner
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.execution.worker.connections import Connections

    connections = Connections(
        connecting(database_target()),
        lambda database, project_id: Runtime(database, project_id, settings=settings),
        longest_pause=settings.lease_time,
        announce=announce,
    )
    with closing(connections):
        yield ChatRunner(connections, session().project_id, program, profile=profile, tell=announce)


def _tell(answered: "Answered", streaming: Streaming | None, *, interrupted: bool) -> int:
    """Print the answer; the exit code. Raises Findings for a run that failed."""
    if answered.by_other:
        announce(f"run {answered.run_id} has answered it meanwhile")
    output.emit(
        answered,
        table=lambda: _print_text(answered.text or "", streaming),
        ids=[] if answered.answer_card_id is None else [answered.answer_card_id],
    )
    if answered.status == "success":
        return 0
    left = "its message is unanswered" if answered.answer_card_id is None else "what was sent stays said"
    if interrupted:
        announce(f"the run was stopped; {left}")
        return INTERRUPTED
    raise Findings(
        f"run {answered.run_id} {answered.status}: {answered.error or answered.error_code}",
        hint=f"{left}; `cbx chat show {argument(answered.chat_key)}` lists the runs",
    )


def _print_text(text: str, streaming: Streaming | None) -> None:
    """Print an answer, if there is one, unless all of it was shown as it came."""
    if streaming is not None:
        streaming.end_line()
    if text and (streaming is None or streaming.told.strip() != text.strip()):
        output.print_text(text)
