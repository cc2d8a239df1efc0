"""What the commands say of themselves, and what saying it costs. Walks the whole tree of commands."""

import copy
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import pytest

from cardbox_cli.cli.command_table import COMMANDS, root
from cardbox_cli.cli.command_table import GROUPS as GROUPS_OF_ROOT
from cardbox_cli.cli.help_topics import TOPICS
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.session import Session
from cardbox_cli.cli.tree import LazyGroup
from cardbox_cli.errors import CbxError
from cardbox_cli.packing.recipe_files import read_recipe
from tests.cli.conftest import Shell, succeed
from tests.conftest import Cbx
from tests.style.sources import PLACEHOLDER, literals

Path = tuple[str, ...]


def verbs(noun: click.Group) -> dict[str, click.Command]:
    """The verbs of a noun by name, all of them loaded."""
    context = click.Context(noun)
    return {name: verb for name in noun.list_commands(context) if (verb := noun.get_command(context, name))}


def tree() -> dict[Path, click.Command]:
    """Every command by its words, groups too."""
    top = root()
    context = click.Context(top, info_name="cbx")
    found: dict[Path, click.Command] = {}
    for name in top.list_commands(context):
        command = top.get_command(context, name)
        assert command is not None
        found[(name,)] = command
        if isinstance(command, click.Group):
            found |= {(name, verb): child for verb, child in verbs(command).items()}
    return found


TREE = tree()
GROUPS = {path: command for path, command in TREE.items() if isinstance(command, click.Group)}
VERBS = {path: command for path, command in TREE.items() if path not in GROUPS}

each_verb = pytest.mark.parametrize("path", VERBS, ids=" ".join)


def parse(words: list[str]) -> tuple[Path, dict[str, Any], Session]:
    """Parse a command line as `cbx` does and stop before the command runs: its words, what it was given."""
    reached: list[tuple[Path, dict[str, Any]]] = []

    class Parser(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            command = copy.copy(super().get_command(ctx, cmd_name))
            path = (*ctx.command_path.split()[1:], cmd_name)
            if isinstance(command, LazyGroup):
                command.__class__ = Parser
            elif command is not None:
                command.callback = lambda **given: reached.append((path, given))
            return command

    session = Session()
    parser = root()
    parser.__class__ = Parser
    parser.main(words, prog_name="cbx", standalone_mode=False, obj=session)
    [(path, given)] = reached
    return path, given, session


def fillers(command: click.Command, parameters: Iterable[click.Parameter] | None = None) -> list[str]:
    """Words for parameters: by default, for the arguments and options that a command cannot do without."""
    required = (parameter for parameter in command.params if parameter.required)
    words: list[str] = []
    for parameter in required if parameters is None else parameters:
        words += [parameter.opts[0], "1"] if isinstance(parameter, click.Option) else ["x"]
    return words


class TestTheRoot:
    def test_the_root_help_lists_every_command(self, offline: Cbx) -> None:
        text = succeed(offline("--help"))
        pairs = [re.split(r"  +", line.strip(), maxsplit=1) for line in text.splitlines() if "  " in line]
        listed = {pair[0]: pair[-1] for pair in pairs}
        assert listed.items() >= root().entries.items()
        assert sorted(name for names in GROUPS_OF_ROOT.values() for name in names.split()) == sorted(COMMANDS)

    def test_the_root_help_fits_55_lines_of_80_columns(self, offline: Cbx) -> None:
        lines = succeed(offline("--help")).splitlines()
        assert len(lines) <= 55
        assert max(map(len, lines)) <= 80
        assert lines[4] == "Get started:"

    @pytest.mark.parametrize("topic", TOPICS)
    def test_each_topic_is_a_short_page(self, topic: str, offline: Cbx) -> None:
        lines = succeed(offline("help", topic)).splitlines()
        assert 5 < len(lines) <= 35
        assert max(map(len, lines)) <= 80

    def test_help_topics_names_every_topic(self, offline: Cbx) -> None:
        named = re.findall(r"^cbx help (\S+)", succeed(offline("help", "topics")), re.MULTILINE)
        assert ["topics", *named] == list(TOPICS)

    def test_turn_help_has_the_table_of_fixes(self, offline: Cbx) -> None:
        assert "Which fix?" in succeed(offline("turn", "--help"))

    def test_the_h_option_prints_the_help(self, offline: Cbx) -> None:
        assert succeed(offline("-h")) == succeed(offline("--help"))

    def test_the_version_option_prints_the_version(self, offline: Cbx) -> None:
        assert re.fullmatch(r"cbx \d+\.\d+\.\d+\n", succeed(offline("--version")))


class TestEveryCommand:
    def test_the_walk_finds_all_commands(self) -> None:
        assert len(GROUPS) >= 5
        assert len(VERBS) >= 34

    @pytest.mark.parametrize("path", TREE, ids=" ".join)
    def test_the_help_of_a_command_begins_with_a_sentence(self, path: Path) -> None:
        text = TREE[path].help or ""
        assert re.match(r"[A-Z].+\.", text), f"`cbx {' '.join(path)}` says {text!r}"

    @each_verb
    def test_each_option_of_a_command_has_a_help_text(self, path: Path) -> None:
        for parameter in VERBS[path].params:
            assert getattr(parameter, "help", None), f"{parameter.name} of `cbx {' '.join(path)}`"

    @each_verb
    def test_the_examples_of_a_command_can_be_parsed(self, path: Path) -> None:
        shown = list(examples(VERBS[path]))
        assert any(parse(words)[0] == path for words in shown), "no example shows the command itself"
        for words in shown:
            parse(words)

    def test_the_examples_of_pack_match_the_arguments_of_their_recipes(self) -> None:
        for words in examples(VERBS[("pack",)]):
            _, given, _ = parse(words)
            recipe = read_recipe(given["handover"], folders=[]).recipe
            named = {re.split(":?=", option)[0] for option in given["arg"]}
            declared = recipe.arguments or {}
            assert named <= declared.keys(), words
            needed = {name for name, each in declared.items() if each.required}
            assert needed <= named or given["args"], words

    @each_verb
    def test_f_is_the_short_name_of_file_only(self, path: Path) -> None:
        short = [parameter.opts for parameter in VERBS[path].params if "-f" in parameter.opts]
        assert all("--file" in names for names in short)

    @each_verb
    def test_help_shows_no_internal_metavars_or_bounds(self, path: Path, offline: Cbx) -> None:
        text = succeed(offline(*path, "--help"))
        assert not re.search(r"\bx *[<>]=?|INTEGER|FLOAT|RANGE", text)

    @each_verb
    def test_the_columns_in_the_help_exist(self, path: Path, offline: Cbx) -> None:
        texts = [getattr(each, "help", "") for each in VERBS[path].params if "--columns" in each.opts]
        for text in texts:
            named = re.search(r"for example (\S+)\.", text)
            assert named, text
            result = offline(*path, *fillers(VERBS[path]), "--columns", named[1])
            assert "no column" not in result.err

    @each_verb
    def test_help_ends_with_the_examples(self, path: Path, offline: Cbx) -> None:
        text = succeed(offline(*path, "--help"))
        assert text.startswith(f"Usage: cbx {' '.join(path)} ")
        _, shown = text.split("\n  Examples:\n")
        assert shown.lstrip().splitlines()[0] in (VERBS[path].epilog or "")

    @pytest.mark.parametrize("path", GROUPS, ids=" ".join)
    def test_the_help_of_a_noun_lists_its_verbs(self, path: Path, offline: Cbx) -> None:
        listed = succeed(offline(*path, "--help")).split("Commands:\n")[1].split("\n\n")[0]
        pairs = [re.split(r"  +", line.strip(), maxsplit=1) for line in listed.splitlines()]
        assert [name for name, _ in pairs] == [verb for noun, verb in VERBS_OF_NOUNS if noun == path[0]]
        assert all(re.match(r"[A-Z].+\.", text) for _, text in pairs)


VERBS_OF_NOUNS = [path for path in VERBS if len(path) == 2]


def examples(command: click.Command) -> Iterator[list[str]]:
    """The words after `cbx` of each command line in a command's examples."""
    _, text = (command.epilog or "").split("Examples:\n")
    for line in text.splitlines():
        for words in simple_commands(line):
            if "cbx" in words:
                after = words[words.index("cbx") + 1 :]
                yield [*after, "x"] if "xargs" in words else after


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command that a shell line runs, in pipes and $(…) too; redirections are left out."""
    unquoted = line.replace('"$(', "$(").replace(')"', ")")
    lexer = shlex.shlex(unquoted, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for token in lexer:
        if token in (">", "<"):
            lexer.get_token()
        elif set(token) <= set("|&;()"):
            yield words
            words = []
        else:
            words.append(token)
    yield words


class TestTheCommonOptions:
    """--project, --database-url, --output and --debug, before and after the subcommand."""

    GIVEN = ("--project", "one", "--database-url", "url", "--output", "yaml", "--debug")
    SHORT = ("-p", "two", "-o", "id")

    @each_verb
    def test_common_options_work_before_and_after_the_command_and_the_last_wins(self, path: Path) -> None:
        needed = fillers(VERBS[path])
        settings = Session(project_id="one", database_url="url", output="yaml", debug=True)
        assert parse([*self.GIVEN, *path, *needed])[2] == settings
        assert parse([*path, *needed, *self.GIVEN])[2] == settings
        assert parse([*path, *self.GIVEN, *needed])[2] == settings
        later = Session(project_id="two", database_url="url", output="id", debug=True)
        assert parse([*self.GIVEN, *path, *needed, *self.SHORT])[2] == later

    @pytest.mark.parametrize("path", VERBS_OF_NOUNS, ids=" ".join)
    def test_common_options_work_between_a_noun_and_its_verb(self, path: Path) -> None:
        noun, verb = path
        settings = Session(project_id="one", database_url="url", output="yaml", debug=True)
        assert parse([noun, *self.GIVEN, verb, *fillers(VERBS[path])])[2] == settings


class TestWhatItCosts:
    """A command imports what it needs and no more. Each in a process of its own."""

    HEAVY = ("psycopg", "pydantic", "rich", "yaml", "uuid6", "msgspec")

    def imported(self, shell: Shell, *arguments: str) -> set[str]:
        """Which of the heavy packages a command line imports."""
        [(_, names)] = self.each_imported(shell, arguments)
        return set(names)

    def each_imported(self, shell: Shell, *lines: Sequence[str]) -> list[tuple[list[str], list[str]]]:
        """Each of these command lines with the heavy packages that are there after it and those before it."""
        code = (
            "import contextlib, io, json, sys\n"
            "from cardbox_cli.entry import main\n"
            f"for line in {[list(line) for line in lines]!r}:\n"
            "    with contextlib.redirect_stdout(io.StringIO()): code = main(line)\n"
            f"    names = [name for name in {self.HEAVY!r} if name in sys.modules]\n"
            "    print(json.dumps([code, line, names]))"
        )
        told = [json.loads(line) for line in succeed(shell.python(code)).splitlines()]
        assert {code for code, *_ in told} == {0}
        return [(line, names) for _, line, names in told]

    @pytest.mark.parametrize("command", [("--help",), ("--version",)], ids=" ".join)
    def test_help_and_version_import_only_the_command_line_library(
        self, command: tuple[str, ...], shell: Shell
    ) -> None:
        assert self.imported(shell, *command) == set()

    @pytest.mark.parametrize("command", [("--version",), ("--help",), ("box", "--help")], ids=" ".join)
    def test_lists_of_commands_import_no_command(self, command: tuple[str, ...], shell: Shell) -> None:
        code = (
            "import contextlib, io, sys\n"
            "from cardbox_cli.entry import main\n"
            f"with contextlib.redirect_stdout(io.StringIO()): main({list(command)!r})\n"
            "print([name for name in sys.modules if name == 'typer' or name.startswith('cardbox_cli.cli.commands.box.')])"
        )
        assert succeed(shell.python(code)) == "[]\n"

    def test_validating_a_recipe_needs_no_database_driver(self, shell: Shell) -> None:
        (shell.folder / "mine.yaml").write_text("context_packing_config: {}\n")
        assert self.imported(shell, "handover", "validate", "mine.yaml") == {"pydantic", "yaml", "msgspec"}

    def test_the_help_of_a_command_needs_no_database_driver(self, shell: Shell) -> None:
        told = self.each_imported(shell, *([command, "--help"] for command in COMMANDS))
        assert [each for each in told if not set(each[1]) <= {"msgspec"}] == []
        assert len(told) == len(COMMANDS)

    def test_everyday_commands_need_neither_pydantic_nor_rich(self, shell: Shell) -> None:
        assert self.imported(shell, "card", "list", "-o", "json") == {"psycopg", "msgspec"}


class TestHints:
    """Commands in backticks, in hints and in all other texts of the package, can be typed."""

    def test_each_command_parses_and_names_existing_options(self) -> None:
        shown = {(line, text.path) for text in literals() for line in re.findall(r"`(cbx [^`]+)`", text.text)}
        assert len(shown) > 100
        assert [(path, line) for line, path in sorted(shown) if not is_command(shlex.split(line)[1:])] == []

    @pytest.mark.parametrize(
        "line",
        [
            "cbx box lst",
            "cbx box show X --filler",
            "cbx render --at",
            "cbx card show -o txt",
            "cbx help ls",
            "cbx turn report X --error X",
        ],
    )
    def test_an_invalid_command_line_is_detected(self, line: str) -> None:
        assert not is_command(shlex.split(line)[1:])


def is_command(words: list[str]) -> bool:
    """Return whether a command line parses; its placeholders and missing parameters are filled in."""
    if words[0] == "help":
        return words[1] in TOPICS or tuple(words[1:]) in TREE
    if words[-1] == "--help":
        return tuple(words[:-1]) in TREE
    matching = [path for path in TREE if all(map(fits, path, words)) and len(path) <= len(words)]
    return any(
        (path in VERBS and parses(path, words[len(path) :])) or len(path) == len(words) for path in matching
    )


def fits(name: str, word: str) -> bool:
    """Return whether a word of a command line is this name, or becomes it at run time."""
    return word in (name, PLACEHOLDER)


def parses(path: Path, words: list[str]) -> bool:
    """Return whether a command parses these words. Without arguments they only name it: the rest is added."""
    command = VERBS[path]
    context = click.Context(command)
    try:
        given, _, _ = command.make_parser(context).parse_args(list(words))
        missing = [
            each for each in command.params if each.value_is_missing(each.consume_value(context, given)[0])
        ]
        has_arguments = any(
            isinstance(each, click.Argument) and each not in missing for each in command.params
        )
        added = [] if has_arguments else fillers(command, [each for each in missing if each.required])
        parse([*path, *filled(command, words), *added])
    except (click.ClickException, CbxError):
        return False
    return True


def filled(command: click.Command, words: list[str]) -> Iterator[str]:
    """Yield the words, with a valid value for each placeholder after an option."""
    options = {name: each for each in command.params for name in each.opts}
    for before, word in zip(["", *words], words, strict=False):
        yield value(options[before]) if word == PLACEHOLDER and before in options else word


def value(parameter: click.Parameter) -> str:
    """Return a valid value of a parameter: the first one of a choice, else a number."""
    if isinstance(parameter.type, OneOf):
        return str(parameter.type.get_metavar(parameter, click.Context(root()))).split("|")[0]
    return "1"
