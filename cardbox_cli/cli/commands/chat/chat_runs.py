"""`cbx chat run` and `open`: let an agent answer, once or line by line."""

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
from cardbox_cli.cli.command_runtime import make_connector, stop_at_signals
from cardbox_cli.cli.commands.chat.chat_messages import open_chat_stores
from cardbox_cli.cli.interactive_shell import LEAVE, Matches, Shell, open_script, run_repl
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
from cardbox_cli.settings import Settings, read_settings
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.error_messages import conflict_message, unknown_message
from cardbox_cli.text.escaping import escape_invisible, escape_line, excerpt

if TYPE_CHECKING:
    from cardbox_cli.chat.runs.chat_runner import ChatAnswer, ChatRunner
    from cardbox_cli.execution.worker.worker_program import Program

ProfileName = Annotated[
    str | None, Option(click_type=PROFILE, help="Use the system prompt, model and tools of this profile.")
]


@verb(
    "run",
    "cbx chat run telegram-chat-42 --exec 'python3 client.py'",
    "cbx chat run telegram-chat-42 --text 'Where is my order?' --exec ./ask.sh --no-wait",
    "cbx chat run telegram-chat-42 --exec 'llm -m gpt-4o' --format text --answers text --env OPENAI_API_KEY",
)
def run_chat(
    key: ChatKey,
    exec_: model_program.Exec,
    text: Annotated[str | None, Option(metavar="TEXT", help="Send this user message first.")] = None,
    profile: ProfileName = None,
    wait: Annotated[
        bool, Option("--wait/--no-wait", help="If another run holds the chat, wait for it or exit 6.")
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
        bool, Option("--stream", help="Print the command's output while it runs, if the output is text.")
    ] = False,
) -> int:
    """Answer a chat's newest unanswered message. The command reads each request on stdin.

    cbx answers calls of the four chat tools and runs the commands of registered tools. If the command sends
    replies with `cbx chat reply`, these are the answer; otherwise its last output becomes the reply. New
    messages are added between two steps.
    """
    from cardbox_cli.cli.options.model_program import check_command, environment_of, make_program

    check_command(exec_)
    streaming = _streaming(answers) if stream else None
    settings = read_settings(max_steps=max_steps)
    where = database_target()
    program = make_program(
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

            send(open_chat_stores(database), key, text, turn=own_turn())
    try:
        with _runner(program, settings, data) as runner, stop_at_signals(runner.cancel) as received:
            answered = runner.answer(key, wait=wait)
    except ChatBusy as busy:
        if text is not None:
            busy.hint = "the message was sent; to answer it later, run the command without --text"
        raise
    return _announce_run(answered, streaming, interrupted=bool(received))


def _streaming(answers: str) -> "_Streaming":
    """Return the printer of a command's answers. Raises UsageError for formats of programs."""
    if session().format.kind != "text":
        raise UsageError(conflict_message("--stream", f"-o {session().output}"), hint="remove one of them")
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
    from cardbox_cli.execution.worker.connections import WorkerConnectionPool

    connections = WorkerConnectionPool(
        make_connector(database_target()),
        lambda database, project_id: Runtime(database, project_id, settings=settings),
        longest_pause=settings.lease_time,
        announce=announce,
    )
    with closing(connections):
        yield ChatRunner(connections, session().project_id, program, profile=profile, tell=announce)


def _announce_run(answered: "ChatAnswer", streaming: "_Streaming | None", *, interrupted: bool) -> int:
    """Print the answer and return the exit code. Raises Findings for a failed run."""
    if answered.by_other:
        announce(f"run {answered.run_id} has already answered the message")
    text = answered.text or ""

    def table() -> None:
        if streaming is not None:
            streaming.end_line()
        # The command's output may have been printed while it ran.
        if text and (streaming is None or streaming.printed.strip() != text.strip()):
            output.print_text(text)

    output.emit(
        answered,
        table=table,
        ids=[] if answered.answer_card_id is None else [answered.answer_card_id],
    )
    if answered.status == "success":
        return 0
    left = "its message is unanswered" if answered.answer_card_id is None else "its replies stay in the chat"
    if interrupted:
        announce(f"the run was stopped; {left}")
        return INTERRUPTED
    raise Findings(
        f"run {answered.run_id} {answered.status}: {answered.error or answered.error_code}",
        hint=f"{left}; for details run `cbx chat show {quote_argument(answered.chat_key)}`",
    )


# --- printing the output of a running command

# The beginning of a JSON answer or a stream of events.
_NOT_TEXT = re.compile(r"[{\[]|event:|data:")


class _Streaming:
    """Prints the output of commands as they run. `printed` is the text of the current one."""

    def __init__(self, *, any_text: bool) -> None:
        """Treat all output as text if `any_text`, even JSON."""
        self._any_text = any_text
        self.printed = ""

    def end_line(self) -> None:
        if self.printed and not self.printed.endswith("\n"):
            sys.stdout.write("\n")

    def listen(self) -> Callable[[bytes], None]:
        """Return the listener for the next command. It prints output as soon as that is known to be text."""
        self.end_line()
        self.printed = ""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        held, is_text = "", True if self._any_text else None

        def receive(chunk: bytes) -> None:
            nonlocal held, is_text
            held += decoder.decode(chunk)
            if is_text is None and held.strip():
                is_text = not _NOT_TEXT.match(held.lstrip())
            if is_text:
                self.printed += held
                sys.stdout.write(escape_invisible(held))
                sys.stdout.flush()
                held = ""

        return receive


@verb(
    "open",
    "cbx chat open me --exec 'python3 client.py'",
    "cbx chat open me --exec 'llm -m gpt-4o' --format text --answers text --env OPENAI_API_KEY",
    r"printf 'Hello\n/new First try\n' | cbx chat open me --exec ./ask.sh",
)
def open_chat(
    key: ChatKey,
    exec_: model_program.Exec,
    profile: ProfileName = None,
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
    """Talk to an agent. Each line is a message, which `cbx chat run` answers with your model command.

    Lines that begin with a slash are commands; /help lists them. The chat is stored, so you can continue it
    later. Ctrl-C stops an answer, Ctrl-D exits. Without a terminal, lines come from stdin, and the first
    failure ends the command.
    """
    check_key(key)
    model_program.check_command(exec_)
    if isinstance(session().process, Shell):
        raise UsageError(
            "cbx chat open cannot be used inside cbx shell", hint="exit the shell with `exit` first"
        )
    with Shell(session()) as shell:
        talk = Talk(shell, key, _given_option_words(click.get_current_context()))
        if sys.stdin.isatty() and sys.stdout.isatty():
            announce(f"chat {escape_line(key)}: type a message; /help lists the commands, Ctrl-D exits")
            return run_repl(talk)
        with open_script("-") as lines:
            return talk.run_script(lines)


def _given_option_words(context: click.Context) -> list[str]:
    """Return the given options in the form of `cbx chat run`."""
    return [
        word
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.name in context.params
        if context.get_parameter_source(parameter.name) is not click.core.ParameterSource.DEFAULT
        for word in _format_option(parameter, context.params[parameter.name])
    ]


def _format_option(option: click.Option, value: object) -> Iterator[str]:
    name = max(option.opts, key=len)
    if option.is_flag:
        yield name
        return
    for each in value if isinstance(value, list | tuple) else [value]:
        yield f"{name}={each}"


class _Slash(NamedTuple):
    """A command of the prompt: its arguments, its help, and the words of the cbx command that it runs."""

    takes: str
    help: str
    words: Callable[[str, str], list[str]]


def _load(key: str, rest: str) -> list[str]:
    by_id = rest.startswith("ctx_") and len(rest.split()) == 1
    return ["chat", "load", key, rest if by_id else f"--query={rest}"]


_SLASHES = {
    "new": _Slash(
        "[TITLE]",
        "Archive the context and begin a new context.",
        lambda key, rest: ["chat", "new", key, *([f"--title={rest}"] if rest else [])],
    ),
    "list": _Slash("", "List the archived contexts.", lambda key, _: ["chat", "list", key]),
    "load": _Slash("TEXT|CONTEXT", "Continue with an archived context, found by its text or id.", _load),
    "clear": _Slash("", "Empty the context without archiving it.", lambda key, _: ["chat", "clear", key]),
    "show": _Slash("", "Show the context and the runs.", lambda key, _: ["chat", "show", key]),
    "why": _Slash(
        "", "Explain what the model sees with the next message.", lambda key, _: ["chat", "why", key]
    ),
}
_HELP = "help"
_OWN = {_HELP: "List these commands.", **dict.fromkeys(LEAVE, "Leave (or Ctrl-D).")}


class Talk:
    """A chat at a prompt. Each line runs as a command of the shell."""

    history = "chat_history"

    def __init__(self, shell: Shell, key: str, options: list[str]) -> None:
        self._shell = shell
        self._key = key
        self._options = options
        self.left = False

    @property
    def prompt(self) -> str:
        return f"{excerpt(self._key, 30)}> "

    def run(self, line: str) -> int:
        """Run a line, report its failure, and return the exit code."""
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
        """Run lines to the first failure or the end, and return the exit code."""
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
        error = UsageError(
            unknown_message("command", f"/{name}", [f"/{each}" for each in (*_SLASHES, *_OWN)]),
            hint="/help lists the commands; type // to begin a message with a slash",
        )
        return self._shell.refuse(error, [name])

    def matches(self, text: str) -> Matches:
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
    yield "Anything else is a message. Type // to begin a message with a slash."
