"""Every kind of failure, brought about by a real command line: its exit code and its exact words."""

import json
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cardbox_cli
from cardbox_cli import errors
from cardbox_cli.cli.command_table import COMMANDS
from cardbox_cli.errors import CbxError
from cardbox_cli.model.ids import hash_ids
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.migrations.files import newest
from tests.cli import exploding
from tests.cli.conftest import succeed
from tests.conftest import Cbx


@dataclass(frozen=True)
class Stage:
    """What a setup has at hand: commands, a connection of its own, the folder that commands run in."""

    cbx: Cbx
    connection: "psycopg.Connection[Any]"
    folder: Path
    monkeypatch: pytest.MonkeyPatch


@pytest.fixture
def stage(cbx: Cbx, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(cbx, database.connection, tmp_path, monkeypatch)


# Setups. What they return fills the {names} of the row.


def nothing(_: Stage) -> dict[str, str]:
    return {}


def a_card(stage: Stage) -> dict[str, str]:
    succeed(stage.cbx("card", "add", "--type", "x.y", "--text", "one", "--id", "card-1"))
    return {}


def two_cards_with_one_ending(stage: Stage) -> dict[str, str]:
    for card_id in ("one-4711", "two-4711"):
        succeed(stage.cbx("card", "add", "--type", "x.y", "--text", "one", "--id", card_id))
    return {}


def a_box(stage: Stage) -> dict[str, str]:
    return {"box": succeed(stage.cbx("box", "create", "-o", "id")).strip()}


def a_box_that_asks(stage: Stage) -> dict[str, str]:
    card = succeed(stage.cbx("card", "add", "--type", "task.instruction", "--text", "hi", "-o", "id")).strip()
    return {"box": succeed(stage.cbx("box", "create", card, "-o", "id")).strip()}


def a_box_that_dangles(stage: Stage) -> dict[str, str]:
    made = stage.cbx("box", "create", "no-such-card", "--allow-dangling", "-o", "json")
    digest = stage.cbx("box", "show", made.json()["box_id"], "-o", "json").json()["digest"]
    return {"box": made.json()["box_id"], "digest": digest}


def a_locked_box(stage: Stage) -> dict[str, str]:
    """Another transaction holds the box, and this database waits for nobody."""
    names = {**a_box(stage), "database": stage.connection.info.dbname}
    stage.connection.execute(f"ALTER DATABASE {names['database']} SET lock_timeout = '20ms'")
    stage.connection.execute("BEGIN")
    stage.connection.execute("SELECT FROM card_boxes FOR UPDATE")
    return names


def a_recipe_with_two_slips(stage: Stage) -> dict[str, str]:
    (stage.folder / "slips.yaml").write_text("descripton: x\narguments: {a: {typ: string}}\n")
    return {}


def a_file_without_messages(stage: Stage) -> dict[str, str]:
    (stage.folder / "chat.json").write_text('{"title": "Hi"}')
    return {}


def a_file_that_is_no_conversation(stage: Stage) -> dict[str, str]:
    (stage.folder / "chat.json").write_text('{"messages": [{"role": "human", "content": "hi"}]}')
    return {}


def no_cards_table(stage: Stage) -> dict[str, str]:
    stage.connection.execute("DROP TABLE public.cards")
    return {}


def a_newer_schema(stage: Stage) -> dict[str, str]:
    stage.connection.execute("INSERT INTO cbx.schema_version (version) VALUES (99)")
    return {}


def an_older_schema(stage: Stage) -> dict[str, str]:
    stage.connection.execute("UPDATE cbx.schema_version SET version = 16")
    return {}


def a_closed_table(stage: Stage) -> dict[str, str]:
    stage.connection.execute(
        "CREATE FUNCTION close() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'boxes are closed'; END $$"
    )
    stage.connection.execute(
        "CREATE TRIGGER close BEFORE INSERT ON public.card_boxes FOR EACH ROW EXECUTE FUNCTION close()"
    )
    return {}


def a_trigger_of_the_administrator(stage: Stage) -> dict[str, str]:
    stage.connection.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'we are closed'; END $$"
    )
    stage.connection.execute("CREATE TRIGGER closed BEFORE INSERT ON public.cards EXECUTE FUNCTION refuse()")
    return {}


def a_chat_with_a_run(stage: Stage) -> dict[str, str]:
    succeed(stage.cbx("chat", "send", "web-chat-1", "hello"))
    stage.connection.execute(
        "UPDATE cbx.chats SET run_id = 'run_1', owner = 'host-1', epoch = 1,"
        " lease_expires_at = now() + interval '100 hours'"
    )
    stage.connection.commit()
    return {}


def a_command_with_a_bug(stage: Stage) -> dict[str, str]:
    stage.monkeypatch.setitem(COMMANDS, "explode", "Explode.")
    stage.monkeypatch.setitem(sys.modules, "cardbox_cli.cli.commands.explode", exploding)
    return {}


def a_turn(stage: Stage) -> dict[str, str]:
    """A turn that is dispatched, asked for under the correlation id `nightly`."""
    (stage.folder / "clerk.yaml").write_text("name: clerk\n")
    succeed(stage.cbx("profile", "import", "clerk.yaml"))
    succeed(stage.cbx("agent", "provision", "clerk", "--profile", "clerk"))
    names = a_box(stage)
    request = ("dispatch", "--agent", "clerk", "-c", names["box"], "--correlation-id", "nightly")
    return {**names, "turn": succeed(stage.cbx(*request, "-o", "id")).strip()}


@dataclass(frozen=True)
class Row:
    """A command line that fails: as what kind, and what it says. `{names}` are those of the setup."""

    kind: type[CbxError]
    setup: Callable[[Stage], dict[str, str]]
    command: tuple[str, ...]
    exit_code: int
    code: str
    message: str
    hint: str | None
    details: dict[str, Any] = field(default_factory=dict)
    on_stdout: Any = None
    quiet_as_text: bool = False
    id: str = ""


ADD = ("card", "add", "--type", "x.y")

TABLE = [
    Row(
        errors.UsageError,
        nothing,
        ("box", "shwo"),
        2,
        "usage",
        "`cbx box` has no command 'shwo'; did you mean 'show'?",
        "`cbx box --help` shows the options and examples",
    ),
    Row(
        errors.NotFound,
        nothing,
        ("box", "show", "8b1f22c0"),
        3,
        "not-found",
        "no box '8b1f22c0' in project 'p'",
        "`cbx box list` shows the newest",
    ),
    Row(
        errors.InvalidInput,
        nothing,
        (*ADD, "--json", "{{bad"),
        4,
        "invalid-input",
        "--json: not JSON at line 1 column 2: Expecting property name enclosed in double quotes",
        'quote it for the shell, for example \'{{"key": "value"}}\', or pass @FILE',
    ),
    Row(
        errors.BadRequest,
        nothing,
        ("pack", "--handover", "delegate", "--arg", "profile_name=researcher"),
        4,
        "bad-request",
        "argument 'instruction' is missing",
        "`cbx handover show RECIPE` lists its arguments; pass JSON values as NAME:=JSON",
        {"problems": [{"argument": "instruction", "message": "argument 'instruction' is missing"}]},
    ),
    Row(
        errors.NotAllowed,
        a_turn,
        ("tool", "call", "launch_principal", "--turn", "{turn}"),
        4,
        "not-allowed",
        "the profile of agent 'clerk' does not allow the handler 'launch_principal'",
        "add the handler to allowed_internal_tools of the profile",
    ),
    Row(
        errors.InvalidRecipe,
        a_recipe_with_two_slips,
        ("handover", "validate", "slips.yaml"),
        4,
        "invalid-recipe",
        "slips.yaml: 2 problems\n"
        "slips.yaml:1:1: descripton: unknown key; did you mean 'description'?\n"
        "slips.yaml:2:17: arguments.a.typ: unknown key; did you mean 'type'?",
        "`cbx handover schema` prints the keys of a recipe",
        {
            "problems": [
                {
                    "file": "slips.yaml",
                    "line": 1,
                    "column": 1,
                    "path": "descripton",
                    "message": "unknown key; did you mean 'description'?",
                },
                {
                    "file": "slips.yaml",
                    "line": 2,
                    "column": 17,
                    "path": "arguments.a.typ",
                    "message": "unknown key; did you mean 'type'?",
                },
            ]
        },
    ),
    Row(
        errors.InvalidCard,
        nothing,
        (*ADD, "--id", "c", "--json", '{{"a": [1, NaN]}}'),
        4,
        "invalid-card",
        "card 'c': content.data.a[1]: is nan, which JSON cannot represent",
        "remove or replace that value; nothing was written",
    ),
    Row(
        errors.DuplicateQuery,
        a_box_that_asks,
        ("render", "--box", "{box}", "--query", "hi"),
        4,
        "duplicate-query",
        "the query repeats the last user message of the history",
        "omit the query: the history already contains it",
    ),
    Row(
        errors.InvalidConversation,
        a_file_that_is_no_conversation,
        ("card", "import", "chat.json"),
        4,
        "invalid-conversation",
        "chat.json: message 0: unknown role 'human' for format openai",
        "roles are user, assistant, tool, function, system, developer; nothing was imported",
    ),
    Row(
        errors.NoMessages,
        a_file_without_messages,
        ("card", "import", "chat.json", "--at", "messages"),
        4,
        "no-messages",
        "chat.json: no list of messages at 'messages'",
        "its keys are 'title'; nothing was imported",
    ),
    Row(
        errors.Conflict,
        a_locked_box,
        ("box", "append", "{box}", "no-such-card", "--allow-dangling"),
        5,
        "conflict",
        "conflict with another transaction: canceling statement due to lock timeout",
        "run the command again; nothing was written",
    ),
    Row(
        errors.CardConflict,
        a_card,
        (*ADD, "--id", "card-1", "--text", "two"),
        5,
        "card-conflict",
        "the card id 'card-1' is taken",
        "use another id, or pass --repair to overwrite a card of this project",
    ),
    Row(
        errors.BoxConflict,
        a_box,
        ("box", "replace", "{box}", "--if-ids", "stale"),
        5,
        "box-conflict",
        f"box {{box}} has changed: its ids hash to {hash_ids([])}, not stale",
        "check `cbx box show {box}`, then try again",
    ),
    Row(
        errors.AmbiguousId,
        two_cards_with_one_ending,
        ("card", "show", "4711"),
        5,
        "ambiguous-id",
        "'4711' is ambiguous; it matches 2 cards: one-4711, two-4711",
        "type more characters of the id",
        {"candidates": ["one-4711", "two-4711"]},
    ),
    Row(
        errors.DatabaseUnavailable,
        nothing,
        ("--database-url", "host=127.0.0.1 port=1 dbname=d user=u", "box", "list"),
        7,
        "database-unavailable",
        "cannot connect (--database-url: user=u dbname=d host=127.0.0.1 port=1): connection failed: "
        'connection to server at "127.0.0.1", port 1 failed: Connection refused',
        "check that the server runs, and that its address, database and role are correct",
    ),
    Row(
        errors.SchemaMissing,
        no_cards_table,
        ("card", "list"),
        7,
        "schema-missing",
        "the database has no table public.cards",
        "create the tables of cbx with `cbx db init --yes`",
    ),
    Row(
        errors.MissingRight,
        a_closed_table,
        ("box", "create"),
        7,
        "missing-right",
        "the database role may not do this: boxes are closed",
        "GRANT the right, or connect as another role",
    ),
    Row(
        errors.SchemaTooNew,
        a_newer_schema,
        ("card", "list"),
        7,
        "schema-too-new",
        f"the database has schema version 99, but this cbx only knows versions up to {newest()}",
        "use the version of cbx that upgraded the database, or a newer version",
    ),
    Row(
        errors.SchemaTooOld,
        an_older_schema,
        ("card", "list"),
        7,
        "schema-too-old",
        "the database has schema version 16, but cbx upgrades only version 17 or later",
        "`cbx db upgrade --help` shows the commands that move its data to a new database",
    ),
    Row(
        errors.Findings,
        a_box_that_dangles,
        ("box", "verify", "{box}"),
        8,
        "findings",
        "1 finding in box {box}",
        None,
        on_stdout={
            "box_id": "{box}",
            "digest": "{digest}",
            "findings": [
                {
                    "position": 0,
                    "card_id": "no-such-card",
                    "kind": "dangling",
                    "message": "no-such-card: no such card",
                }
            ],
        },
    ),
    Row(
        errors.StaleEpoch,
        a_turn,
        ("turn", "fail", "{turn}", "--expect-epoch", "7", "--reason", "r"),
        5,
        "stale-epoch",
        "turn {turn} is no longer at epoch 7: agent 'clerk' is at turn {turn}, dispatched, epoch 1",
        "nothing was written; run `cbx turn show {turn}` for details",
        {"agent_turn_id": "{turn}", "turn_epoch": 7},
    ),
    Row(
        errors.LeaseLost,
        a_turn,
        ("inbox", "ack", "{turn}", "--owner", "me"),
        5,
        "lease-lost",
        "inbox row {turn} is not leased to 'me': it is pending",
        "nothing was written; run `cbx inbox show {turn}` for details",
        {"inbox_id": "{turn}", "status": "pending"},
    ),
    Row(
        errors.CorrelationConflict,
        a_turn,
        (
            *("dispatch", "--agent", "clerk", "-c", "{box}", "--correlation-id", "nightly"),
            *("--channel", "other"),
        ),
        5,
        "correlation-conflict",
        "correlation id 'nightly' was already used for a different request (turn {turn} of agent 'clerk')",
        "use another correlation id, or repeat the first request exactly",
        {"agent_turn_id": "{turn}", "agent_id": "clerk"},
    ),
    Row(
        errors.NotAccepted,
        a_turn,
        ("dispatch", "--agent", "clerk", "-c", "{box}", "--source-agent", "stranger"),
        6,
        "not-accepted",
        "not accepted (rejected, invalid_source_actor): the source 'stranger' is not an agent of project 'p'",
        "`cbx agent list` shows the agents; a person's name begins with sys.",
        {"status": "rejected", "error_code": "invalid_source_actor"},
        on_stdout={
            "status": "rejected",
            "error_code": "invalid_source_actor",
            "agent_id": "clerk",
            "agent_turn_id": None,
            "turn_epoch": None,
            "queue_position": None,
            "context_box_id": "{box}",
            "output_box_id": None,
            "inbox_id": None,
            "recursion_depth": None,
            "trace_id": None,
            "created": False,
        },
        quiet_as_text=True,
    ),
    Row(
        errors.ChatBusy,
        a_chat_with_a_run,
        ("chat", "run", "web-chat-1", "--exec", "true", "--no-wait"),
        6,
        "busy",
        "chat 'web-chat-1' is busy: run run_1 of host-1 has it; its lease ends in 4d",
        "wait for the run to end, or omit --no-wait",
        {"chat_key": "web-chat-1", "run_id": "run_1", "owner": "host-1"},
    ),
    Row(
        errors.WaitTimeout,
        a_turn,
        ("turn", "wait", "{turn}", "--timeout", "0"),
        124,
        "waited-too-long",
        "turn {turn} did not end within 0 s: it is dispatched",
        "the turn continues; run `cbx why {turn}` to see what it waits for",
        {"agent_turn_id": "{turn}", "status": "dispatched"},
    ),
    Row(
        errors.CbxError,
        a_trigger_of_the_administrator,
        (*ADD, "--text", "x"),
        1,
        "failure",
        "the database reported P0001: we are closed",
        None,
    ),
    Row(
        errors.CbxError,
        a_command_with_a_bug,
        ("explode",),
        1,
        "failure",
        "unexpected ZeroDivisionError: division by zero",
        "this is a bug in cbx: please report it with the output of the same command with --debug",
        id="unexpected",
    ),
]


def filled(value: Any, names: dict[str, str]) -> Any:
    """`value` with the {names} of its texts filled in."""
    if isinstance(value, str):
        return value.format(**names)
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    return [filled(item, names) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id or row.kind.__name__)
def test_each_error_has_its_exact_text_and_json(row: Row, stage: Stage) -> None:
    names = row.setup(stage)
    command, message, hint = filled([row.command, row.message, row.hint], names)

    as_text = stage.cbx(*command)
    below = message.replace("\n", "\n  ")
    assert as_text.err == f"error: {below}\n" + (f"hint: {hint}\n" if hint else "")
    assert (as_text.out != "") is (row.on_stdout is not None and not row.quiet_as_text)

    as_json = stage.cbx(*command, "-o", "json")
    parts = {"code": row.code, "message": message, "hint": hint, "details": filled(row.details, names)}
    assert json.loads(as_json.err) == {"error": parts}
    assert (json.loads(as_json.out) if as_json.out else None) == filled(row.on_stdout, names)

    assert as_text.code == as_json.code == row.exit_code == row.kind.exit_code


def test_every_error_class_is_in_the_table() -> None:
    for module in pkgutil.walk_packages(cardbox_cli.__path__, "cardbox_cli."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    # A wakeup that fails is a warning, a package's handler that fails the failed result of its call, and a server
    # whose connections are all at work answers so: what tests of these look at.
    never_printed = {errors.ServiceUnavailable, errors.HandlerFailed, errors.ConnectionsBusy}
    assert {CbxError, *subclasses(CbxError)} - never_printed == {row.kind for row in TABLE}


def test_the_page_on_exit_codes_lists_every_error() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "output.md").read_text()
    lines = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    told = {(cells[1].strip(), code) for cells in lines for code in re.findall(r"`([a-z-]+)`", cells[-2])}
    assert {(str(row.exit_code), row.code) for row in TABLE} <= told


def subclasses(kind: type[CbxError]) -> set[type[CbxError]]:
    found = set(kind.__subclasses__())
    return found | {deeper for one in found for deeper in subclasses(one)}


def test_error_codes_are_distinct() -> None:
    kinds = {row.kind for row in TABLE}
    assert len({kind.code for kind in kinds}) == len(kinds)


class TestBeforeACommandIsKnown:
    """Where parsing itself fails, `-o json` is still heard, wherever it stands."""

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (("-o", "json", "nope"), "`cbx` has no command 'nope'"),
            (("nope", "-o", "json"), "`cbx` has no command 'nope'"),
            (("--output", "json", "bx"), "`cbx` has no command 'bx'; did you mean 'box'?"),
            (("-ojson", "box", "shw"), "`cbx box` has no command 'shw'; did you mean 'show'?"),
            (("box", "show", "--output=json"), "Missing argument 'BOX...'."),
            (("box", "show", "-o", "jsonl"), "Missing argument 'BOX...'."),
            (("box", "--no-such", "-o", "json"), "No such option '--no-such'."),
            (
                ("box", "list", "--limit", "x", "-o", "json"),
                "Invalid value for '--limit' / '-n': 'x' is not a valid integer range.",
            ),
            (("-o", "json"), "Missing command."),
            (("box", "-o", "json"), "Missing command."),
        ],
        ids=" ".join,
    )
    def test_a_parsing_error_is_printed_as_json(
        self, command: tuple[str, ...], message: str, offline: Cbx
    ) -> None:
        result = offline(*command)
        assert (result.code, result.out) == (2, "")
        error = json.loads(result.err)["error"]
        assert (error["code"], error["message"], error["details"]) == ("usage", message, {})
        assert re.fullmatch(r"`cbx( [a-z ]+)? --help` shows the options and examples", error["hint"])

    def test_an_unknown_output_format_is_reported_as_text(self, offline: Cbx) -> None:
        result = offline("-o", "xml", "box", "list")
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            "error: Invalid value for '--output' / '-o': 'xml' is not one of"
            " 'table', 'wide', 'json', 'jsonl', 'yaml', 'csv', 'tsv', 'id'.\nhint: `cbx --help` shows the options and examples\n"
        )

    @pytest.mark.parametrize(
        ("command", "told"),
        [
            ("-o jsn box list", "'tsv', 'id'; did you mean 'json'?"),
            ("box list --color alwas", "'auto', 'always', 'never'; did you mean 'always'?"),
            ("box list --columns titel", "--columns: unknown column 'titel'; did you mean 'title'?"),
            ("card lint f --provider opneai", "--provider: unknown format 'opneai'; did you mean 'openai'?"),
            ("card lint f --provider=opneai", "--provider: unknown format 'opneai'; did you mean 'openai'?"),
            ("card lint f --format opneai", "--format: unknown format 'opneai'; did you mean 'openai'?"),
            ("card import f --from antropic", "--from: unknown format 'antropic'; did you mean 'anthropic'?"),
            ("card import f --from x", "--from: unknown format 'x'"),
        ],
    )
    def test_an_unknown_value_is_reported_with_the_typed_option_and_a_near_value(
        self, command: str, told: str, cbx: Cbx
    ) -> None:
        result = cbx(*command.split())
        assert (result.code, result.out) == (2, "")
        assert result.err.splitlines()[0].removeprefix("error: ").endswith(told)

    @pytest.mark.parametrize("command", [(), ("box",)], ids=["cbx", "cbx box"])
    def test_without_a_command_the_help_is_shown(self, command: tuple[str, ...], offline: Cbx) -> None:
        result = offline(*command)
        assert (result.code, result.out) == (2, "")
        assert result.err == offline(*command, "--help").out


class TestDebug:
    @pytest.mark.parametrize(
        "command", [("--debug", "card", "show", "none"), ("card", "show", "none", "--debug")], ids=" ".join
    )
    def test_a_traceback_comes_before_the_error(self, command: tuple[str, ...], offline: Cbx) -> None:
        result = offline(*command)
        assert result.code == 7
        traceback, error = result.err.split("\nerror: ")
        assert traceback.startswith("Traceback (most recent call last):\n")
        assert error.startswith("cannot connect (CBX_DATABASE_URL")

    def test_the_error_in_json_is_the_last_line(self, offline: Cbx) -> None:
        result = offline("card", "show", "none", "--debug", "-o", "json")
        assert result.err.startswith("Traceback")
        assert result.error["code"] == "database-unavailable"

    def test_no_traceback_is_printed_without_debug(self, offline: Cbx) -> None:
        assert "Traceback" not in offline("card", "show", "none").err
