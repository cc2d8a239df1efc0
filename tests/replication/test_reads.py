"""Commands that only read ask the replica that is named, and tell how old what it answers is."""

from collections.abc import Callable
from pathlib import Path

import click
import psycopg
import pytest

from cardbox_cli.cli.command_table import root
from cardbox_cli.cli.tree import LazyGroup
from cardbox_cli.cli.verb import Verb
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import succeed
from tests.conftest import Cbx, Result
from tests.replication.standby import Standby

CLERK = "name: clerk\nworker_target: desk\nmodel: {provider: openai, name: gpt-4.1}\n"
CHAT = '[{"role": "user", "content": "Where is the key?"}, {"role": "assistant", "content": "In the door."}]'
RECIPE = ["-H", "delegate", "-a", "profile_name=clerk", "-a", "instruction=Look"]

# Command lines by the verbs that only read. {box}, {card} and {turn} are there.
READ = {
    "agent list": "",
    "agent show": "clerk",
    "audit": "",
    "batch list": "",
    "batch show": None,
    "box compress": "{box} --keep 0 --summary short --dry-run",
    "box diff": "{box} {box}",
    "box expand": None,
    "box list": "",
    "box repair": "{box} --drop-orphans --dry-run",
    "box show": "{box}",
    "box verify": "{box}",
    "card export": "--box {box}",
    "card list": "",
    "card refs": "{card}",
    "card search": "key",
    "card show": "{card}",
    "chat export": None,
    "chat list": "",
    "chat show": None,
    "chat transcript": None,
    "chat why": None,
    "cost": "{box}",
    "dispatch": "--agent clerk --context-box {box} --dry-run",
    "handover list": "",
    "handover show": "delegate",
    "inbox list": "",
    "inbox show": None,
    "mcp": None,
    "pack": "-H delegate -a profile_name=clerk -a instruction=Look --dry-run",
    "profile list": "",
    "profile show": "clerk",
    "project list": "",
    "project show": "p",
    "render": "--box {box} --profile clerk",
    "todo list": "{box}",
    "token list": "",
    "tool list": "",
    "tool show": None,
    "turn list": "",
    "turn logs": "{turn}",
    "turn show": "{turn}",
    "turn trace": "{turn}",
    "why": "{turn}",
    "worker list": "",
}


@pytest.fixture
def known(cbx: Cbx, standby: Standby, tmp_path: Path) -> dict[str, str]:
    """What is there, on both servers: a conversation, a card of it, a turn."""
    profile, chat = tmp_path / "clerk.yaml", tmp_path / "chat.json"
    profile.write_text(CLERK)
    chat.write_text(CHAT)
    succeed(cbx("profile", "import", str(profile)))
    succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
    box = succeed(cbx("card", "import", str(chat), "-o", "id")).strip()
    card = succeed(cbx("card", "list", "-o", "id", "--limit", "1")).strip()
    turn = succeed(cbx("dispatch", "--agent", "clerk", "-c", box, "-o", "id")).strip()
    standby.catch_up()
    return {"box": box, "card": card, "turn": turn}


@pytest.fixture
def away(
    cbx: Cbx, known: dict[str, str], target: Target, standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Run a command while the database itself does not answer, and a replica of it does."""
    name = _name(target)
    monkeypatch.setenv("CBX_DATABASE_URL", f"host=127.0.0.1 port=1 user=cbx dbname={name}")
    monkeypatch.setenv("CBX_READ_URL", standby.conninfo(name))
    return cbx


def _name(target: Target) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(target.conninfo or "")["dbname"])


def verbs(group: LazyGroup, *names: str) -> dict[str, Verb]:
    found: dict[str, Verb] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, LazyGroup):
            found |= verbs(command, *names, name)
        elif isinstance(command, Verb):
            found[" ".join((*names, name))] = command
    return found


def test_every_read_only_command_is_covered() -> None:
    assert set(READ) == {name for name, verb in verbs(root()).items() if verb.reads}


def test_each_read_only_command_asks_the_replica(away: Callable[..., Result], known: dict[str, str]) -> None:
    lines = [f"{name} {line}".format(**known).split() for name, line in READ.items() if line is not None]
    asked = {" ".join(line): away(*line) for line in lines}
    assert {line: result.err for line, result in asked.items() if result.code or "error" in result.err} == {}


def test_a_writing_command_does_not_ask_the_replica(
    away: Callable[..., Result], known: dict[str, str]
) -> None:
    assert away("dispatch", "--agent", "clerk", "-c", known["box"]).code == 7
    assert away("pack", *RECIPE).code == 7


@pytest.mark.parametrize("command", ["why", "turn show"])
def test_an_answer_reports_the_age_of_its_data(
    command: str, away: Callable[..., Result], known: dict[str, str]
) -> None:
    asked = away(*command.split(), known["turn"], "-o", "json")
    assert "note: read from a replica that has all it received" in asked.err
    assert asked.json()


def test_last_refers_to_the_same_turn_on_both_servers(
    cbx: Cbx, known: dict[str, str], standby: Standby, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBX_READ_URL", standby.conninfo(_name(target)))
    shown = cbx("turn", "show", "@last", "-o", "id")
    assert "read from a replica" in shown.err
    assert succeed(shown).strip() == known["turn"]


def test_an_unknown_id_is_reported_with_the_state_of_the_replica(away: Callable[..., Result]) -> None:
    refused = away("turn", "show", "0000")
    assert refused.code == 3
    assert "; a replica that has all it received was asked" in refused.err


class TestDryRunDispatch:
    def test_a_checked_dry_run_of_a_recipe_is_accepted(self, away: Callable[..., Result]) -> None:
        asked = away("dispatch", "--agent", "clerk", *RECIPE, "--dry-run", "--check", "-o", "json").json()
        assert (asked["status"], asked["agent_turn_id"], asked["context_box_id"]) == ("accepted", None, None)
        # It would be the second in the queue, whose first is at work.
        assert (asked["turn_epoch"], asked["queue_position"]) == (None, 1)

    def test_a_dry_run_refuses_the_same_errors(
        self, away: Callable[..., Result], known: dict[str, str]
    ) -> None:
        refused = away("dispatch", "--agent", "nobody", "-c", known["box"], "--dry-run")
        assert refused.code == 3
        assert "no agent 'nobody'" in refused.err
        busy = away("dispatch", "--agent", "clerk", "-c", known["box"], "--dry-run", "--no-queue")
        assert (busy.code, "agent_busy" in busy.err) == (6, True)


class TestReplicaSelection:
    def test_the_variable_is_ignored_if_an_option_names_another_database(
        self, away: Callable[..., Result], target: Target
    ) -> None:
        assert away("box", "list", "--database-url", "host=127.0.0.1 port=1 dbname=other").code == 7

    def test_a_replica_without_a_named_database_is_refused(
        self, cbx: Cbx, standby: Standby, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CBX_DATABASE_URL")
        monkeypatch.setenv("CBX_READ_URL", standby.conninfo("postgres"))
        refused = cbx("box", "list")
        assert refused.code == 2
        assert (
            "CBX_READ_URL names a replica, but no option or variable names the database that it follows"
            in refused.err
        )

    def test_an_unreachable_replica_is_an_error(self, cbx: Cbx) -> None:
        refused = cbx("box", "list", "--read-url", "host=127.0.0.1 port=1 dbname=d user=u password=hunter2")
        assert refused.code == 7
        assert "--read-url" in refused.err
        assert "hunter2" not in refused.err.replace("ps shows", "")

    def test_the_config_file_can_name_both_databases(
        self, cbx: Cbx, known: dict[str, str], target: Target, standby: Standby, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        name = _name(target)
        file = tmp_path / "config.toml"
        file.write_text(
            f'database_url = "host=127.0.0.1 port=1 dbname={name}"\nread_url = "{standby.conninfo(name)}"\n'
        )
        monkeypatch.setenv("CBX_CONFIG", str(file))
        # A database that a variable names is another one.
        assert (
            "config.toml" not in succeed(cbx("config", "-o", "jsonl")).split("CBX_READ_URL")[1].split("}")[0]
        )
        monkeypatch.delenv("CBX_DATABASE_URL")
        assert known["box"] in succeed(cbx("box", "list", "-o", "id"))
