"""`cbx chat open`: a chat to be talked to by hand, a line at a time.

Owns what a line means: a message, or a command that begins with a slash, which is one of `cbx chat`.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, NamedTuple

import click
from click.shell_completion import CompletionItem
from typer import Option

from cardbox_cli.cli.line_editor import Matches
from cardbox_cli.cli.options import compose_options, model_program
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.session import session
from cardbox_cli.cli.shell.lines import LEAVE, Shell, script
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.chats import check_key
from cardbox_cli.model.text.escaping import one_line, spelled


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
    from cardbox_cli.cli.options.model_program import check_command

    check_key(key)
    check_command(exec_)
    if isinstance(session().process, Shell):
        raise UsageError("a shell opens no chat", hint="leave it first")
    with Shell(session()) as shell:
        talk = Talk(shell, key, _as_words(click.get_current_context()))
        if sys.stdin.isatty() and sys.stdout.isatty():
            from cardbox_cli.cli.line_editor import converse

            announce(f"chat {spelled(key)}: type a message; /help lists the commands, Ctrl-D leaves")
            return converse(talk)
        with script("-") as lines:
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
    from cardbox_cli.model.handwritten.wording import did_you_mean

    known = [*_SLASHES, *_OWN]
    return UsageError(
        f"there is no command {'/' + name!r}{did_you_mean(name, known)}",
        hint="/help lists the commands; a message that begins with a slash is written with two",
    )
