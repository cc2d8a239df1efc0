"""`cbx chat run` and `open`: an agent answers, once or a line at a time."""

import codecs
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
import msgspec
from click.shell_completion import CompletionItem
from typer import Option

from cardbox_cli.cli.actor import own_turn
from cardbox_cli.cli.boundary import INTERRUPTED
from cardbox_cli.cli.command_runtime import connecting, stopped_by_signals
from cardbox_cli.cli.commands.chat.chat_messages import room_of
from cardbox_cli.cli.interactive_shell import LEAVE, Matches, Shell, converse, open_script
from cardbox_cli.cli.options import compose_options, model_program
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.project_database import database_target, open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import ChatBusy, Findings, UsageError
from cardbox_cli.model.chats import check_key
from cardbox_cli.settings import Settings, settings_from
from cardbox_cli.text import argument, one_line, printable, spelled

if TYPE_CHECKING:
    from cardbox_cli.chat.runs.chat_runner import Answered, ChatRunner
    from cardbox_cli.execution.worker.worker_program import Program


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
        data = None if profile is None else _run_profile(database, profile)
        if text is not None:
            from cardbox_cli.chat.transcript import send

            send(room_of(database), key, text, turn=own_turn())
    try:
        with _runner(program, settings, data) as runner, stopped_by_signals(runner.cancel) as received:
            answered = runner.answer(key, wait=wait)
    except ChatBusy as busy:
        raise busy if text is None else _sent_already(busy) from None
    return _announce_run(answered, streaming, interrupted=bool(received))


def _sent_already(busy: ChatBusy) -> ChatBusy:
    return ChatBusy(
        busy.message,
        hint="the message was sent, and waits for a run; without --text it is not sent again",
        details=busy.details,
    )


def _streaming(answers: str) -> "_Streaming":
    """What shows the answers of a command in this mode. Raises UsageError where programs read them."""
    if session().format.kind != "text":
        raise UsageError(f"--stream is for people, not for -o {session().output}", hint="leave one out")
    return _Streaming(any_text=answers == "text")


def _run_profile(database: Any, name: str) -> dict[str, Any]:
    from cardbox_cli.context.request import profile_of
    from cardbox_cli.execution.requests.turn_requests import present_cards
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.profiles import ProfileStore

    profiles = ProfileStore(database, session().project_id)
    entry = profiles.get(name)
    profiles.refuse_lost_box(entry)
    return profile_of(present_cards(BoxStore(database, session().project_id).slots(entry.profile_box_id)))


@contextmanager
def _runner(program: "Program", settings: Settings, profile: dict[str, Any] | None) -> "Iterator[ChatRunner]":
    from cardbox_cli.chat.runs.chat_runner import ChatRunner
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


def _announce_run(answered: "Answered", streaming: "_Streaming | None", *, interrupted: bool) -> int:
    """Print the answer; the exit code. Raises Findings for a run that failed."""
    if answered.by_other:
        announce(f"run {answered.run_id} has answered it meanwhile")
    output.emit(
        answered,
        table=lambda: _print_run(answered.text or "", streaming),
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


def _print_run(text: str, streaming: "_Streaming | None") -> None:
    """Print an answer, if there is one, unless all of it was shown as it came."""
    if streaming is not None:
        streaming.end_line()
    if text and (streaming is None or streaming.told.strip() != text.strip()):
        output.print_text(text)


# --- what a command prints, shown as it comes if it is text

# What a JSON answer or a stream of events begins with.
_NO_TEXT = re.compile(r"[{\[]|event:|data:")


class _Streaming:
    """Shows the output of commands, one after the other. `told` is what was shown of the last one."""

    def __init__(self, *, any_text: bool) -> None:
        """`any_text`: also what looks like JSON is text."""
        self._any_text = any_text
        self.told = ""

    def end_line(self) -> None:
        """End the line that was shown last, if it has none."""
        if self.told and not self.told.endswith("\n"):
            sys.stdout.write("\n")

    def listen(self) -> "_StreamListener":
        """What hears the next command."""
        self.end_line()
        self.told = ""
        return _StreamListener(self, any_text=self._any_text)


class _StreamListener:
    """Hears the pieces of what one command prints. Shows them once it is plain that they are text."""

    def __init__(self, streaming: _Streaming, *, any_text: bool) -> None:
        self._streaming = streaming
        self._any_text = any_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._is_text: bool | None = None

    def __call__(self, piece: bytes) -> None:
        self._held += self._decoder.decode(piece)
        if self._is_text is None and self._held.strip():
            self._is_text = self._any_text or not _NO_TEXT.match(self._held.lstrip())
        if self._is_text:
            self._streaming.told += self._held
            sys.stdout.write(printable(self._held))
            sys.stdout.flush()
            self._held = ""


# --- open: a line at a time


@verb(
    "open",
    "cbx chat open me --exec 'python3 client.py'",
    "cbx chat open me --exec 'llm -m gpt-4o' --format text --answers text --env OPENAI_API_KEY",
    r"printf 'Hello\n/new First try\n' | cbx chat open me --exec ./ask.sh",
)
def open_chat(
    key: ChatKey,
    exec_: model_program.Exec,
    profile: Annotated[
        str | None,
        Option(click_type=PROFILE, help="The system prompt, model and tools of this profile, too."),
    ] = None,
    format_: model_program.RequestFormat = None,
    answers: model_program.AnswersRead = "auto",
    env: model_program.Variables = None,
    tools: model_program.ToolsFile = None,
    trust_stored_commands: model_program.TrustStored = False,
    model: compose_options.Model = None,
    timeout: model_program.CommandTimeout = 600,
    max_steps: model_program.MaxSteps = None,
    layer: compose_options.Layers = None,
) -> int:
    """Talk to an agent by hand: each line is a message, which `cbx chat run` answers by the command.

    Lines that begin with a slash are commands: /help lists them. The chat is kept like any other, so it goes
    on where it was. Ctrl-C stops an answer and loses nothing; Ctrl-D leaves. Off a terminal, lines come from
    standard input, and the first failure ends it.
    """
    check_key(key)
    model_program.check_command(exec_)
    if isinstance(session().process, Shell):
        raise UsageError("a shell opens no chat", hint="leave it first")
    with Shell(session()) as shell:
        talk = Talk(shell, key, _as_words(click.get_current_context()))
        if sys.stdin.isatty() and sys.stdout.isatty():
            announce(f"chat {spelled(key)}: type a message; /help lists the commands, Ctrl-D leaves")
            return converse(talk)
        with open_script("-") as lines:
            return talk.run_script(lines)


def _as_words(context: click.Context) -> list[str]:
    """The options that were given here, as words of `cbx chat run`."""
    return [
        word
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.name in context.params
        if context.get_parameter_source(parameter.name) is not click.core.ParameterSource.DEFAULT
        for word in _words_of(parameter, context.params[parameter.name])
    ]


def _words_of(option: click.Option, value: object) -> Iterator[str]:
    name = max(option.opts, key=len)
    if option.is_flag:
        yield name
        return
    for each in value if isinstance(value, list | tuple) else [value]:
        yield f"{name}={each}"


class _Slash(NamedTuple):
    """A command of the prompt: what it takes, what it does, and the words of `cbx` that do it."""

    takes: str
    help: str
    words: Callable[[str, str], list[str]]


def _load(key: str, rest: str) -> list[str]:
    by_id = rest.startswith("ctx_") and len(rest.split()) == 1
    return ["chat", "load", key, rest if by_id else f"--query={rest}"]


_SLASHES = {
    "new": _Slash(
        "[TITLE]",
        "Archive the context, and begin a new one.",
        lambda key, rest: ["chat", "new", key, *([f"--title={rest}"] if rest else [])],
    ),
    "list": _Slash("", "List the archived contexts.", lambda key, _: ["chat", "list", key]),
    "load": _Slash("WORDS|CONTEXT", "Go on with an archived context, found by words or its id.", _load),
    "clear": _Slash("", "Empty the context without archiving it.", lambda key, _: ["chat", "clear", key]),
    "show": _Slash("", "Show the context and the runs.", lambda key, _: ["chat", "show", key]),
    "why": _Slash("", "Explain what the next message carries with it.", lambda key, _: ["chat", "why", key]),
}
_HELP = "help"
_OWN = {
    _HELP: "List these commands.",
    **dict.fromkeys(LEAVE, "Leave; so does Ctrl-D."),
}


class Talk:
    """A chat that a person talks to; each line runs as a command of the shell that it stands on."""

    history = "chat_history"

    def __init__(self, shell: Shell, key: str, options: list[str]) -> None:
        self._shell = shell
        self._key = key
        self._options = options
        self.left = False

    @property
    def prompt(self) -> str:
        """The chat's key."""
        return f"{one_line(self._key, 30)}> "

    def run(self, line: str) -> int:
        """Do what a line says; the exit code, its failure reported."""
        text = line.strip()
        if not text:
            return 0
        if not text.startswith("/"):
            return self._say(text)
        if text.startswith("//"):
            return self._say(text[1:])
        name, _, rest = text[1:].partition(" ")
        return self._command(name, rest.strip())

    def run_script(self, lines: Iterable[str]) -> int:
        """Run lines to the first failure, or to the end; the exit code."""
        for line in lines:
            if code := self.run(line):
                return code
            if self.left:
                break
        return 0

    def _say(self, text: str) -> int:
        shown = ["--stream"] if self._shell.settings.format.kind == "text" else []
        return self._shell.run_words(["chat", "run", self._key, f"--text={text}", *shown, *self._options])

    def _command(self, name: str, rest: str) -> int:
        if name in LEAVE:
            self.left = True
            return 0
        if name == _HELP:
            output.print_lines(_help_lines())
            return 0
        if name in _SLASHES:
            return self._shell.run_words(_SLASHES[name].words(self._key, rest))
        return self._shell.refuse(_unknown(name), [name])

    def matches(self, text: str) -> Matches:
        """The commands that begin so."""
        known = {**{name: each.help for name, each in _SLASHES.items()}, **_OWN}
        return [
            (f"/{name} ", CompletionItem(f"/{name}", help=line))
            for name, line in known.items()
            if text.startswith("/") and f"/{name}".startswith(text)
        ]


def _help_lines() -> Iterator[str]:
    rows = [(f"/{name} {each.takes}".rstrip(), each.help) for name, each in _SLASHES.items()]
    rows += [(f"/{name}", line) for name, line in _OWN.items()]
    width = max(len(left) for left, _ in rows)
    yield from (f"{left.ljust(width)}  {line}" for left, line in rows)
    yield "Anything else is a message; one that begins with a slash is written with two."


def _unknown(name: str) -> UsageError:
    from cardbox_cli.text import did_you_mean

    known = [*_SLASHES, *_OWN]
    return UsageError(
        f"there is no command {'/' + name!r}{did_you_mean(name, known)}",
        hint="/help lists the commands; a message that begins with a slash is written with two",
    )
