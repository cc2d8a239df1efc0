"""`cbx audit`: which commands leave a row, whose, and how rows are listed; and that nothing changes them."""

import os
import pwd
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cardbox_cli.cli.commands.audit import ACTIONS
from cardbox_cli.model.ids import hash_ids
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import lines, succeed
from tests.conftest import PROJECT, Cbx
from tests.databases import Databases
from tests.execution.desk import Desk
from tests.execution.fixtures import Asked
from tests.foreign.tables import DEPLOYMENT

BEARER = "Bearer abcdef0123456789abcd"
SECRET = f"curl -H 'Authorization: {BEARER}' x"
HIDDEN = SECRET.replace(BEARER, "Bearer [redacted]")


def audited(cbx: Cbx, *options: str) -> list[dict[str, Any]]:
    """The rows, oldest first."""
    rows: list[dict[str, Any]] = cbx("audit", *options, "-o", "json").json()
    assert {row["action"] for row in rows} <= set(ACTIONS)
    return rows[::-1]


def told(cbx: Cbx, *options: str) -> list[tuple[str, Any]]:
    """What was done and to what, oldest first."""
    return [(row["action"], row["detail"]) for row in audited(cbx, *options)]


class TestWhatIsWrittenDown:
    def test_changes_and_removals_of_tools_are_audited(self, cbx: Cbx) -> None:
        succeed(cbx("tool", "add", "look", "--exec", SECRET))
        succeed(cbx("tool", "add", "look", "--exec", SECRET))
        assert cbx("tool", "add", "look", "--exec", "true").code == 5
        succeed(cbx("tool", "add", "look", "--exec", "true", "--replace"))
        assert cbx("tool", "remove", "other", "--yes").code == 3
        succeed(cbx("tool", "remove", "look", "--yes"))
        assert told(cbx) == [
            ("tool add", {"tool_name": "look", "did": "added", "command": HIDDEN}),
            (
                "tool add",
                {"tool_name": "look", "did": "replaced", "command": "true", "command_before": HIDDEN},
            ),
            ("tool remove", {"tool_name": "look", "command": "true"}),
        ]

    def test_repairs_and_deletions_of_cards_are_audited(self, cbx: Cbx, add: Callable[..., str]) -> None:
        add("one", "--id", "card-1")
        add("two", "--id", "card-2")
        add("one", "--id", "card-1", "--repair")
        assert told(cbx) == []
        add("other", "--id", "card-1", "--repair")
        succeed(cbx("card", "delete", "card-1", "card-2", "--dry-run"))
        assert cbx("card", "delete", "card-1", "never", "--yes").code == 3
        succeed(cbx("card", "delete", "card-1", "card-2", "--yes"))
        succeed(cbx("card", "delete", "card-1", "--yes"))
        assert told(cbx) == [
            ("card repair", {"card_ids": ["card-1"]}),
            ("card delete", {"card_ids": ["card-1", "card-2"]}),
        ]

    def test_changes_of_a_box_are_audited_with_the_hash_of_its_ids(
        self, cbx: Cbx, add: Callable[..., str], feed: Any
    ) -> None:
        cards = [add("one"), add("two")]
        box = succeed(cbx("box", "create", *cards, "-o", "id")).strip()
        for _ in range(2):
            succeed(cbx("box", "replace", box, cards[0]))
        feed(f"{cards[1]}\n")
        succeed(cbx("box", "edit", box, "--in-place", "--file", "-"))
        assert cbx("box", "replace", box, cards[0], "--if-ids", "0").code == 5
        succeed(cbx("box", "delete", box, "--dry-run"))
        succeed(cbx("box", "delete", box, "--yes"))
        both, first, second = (
            {"cards": len(ids), "ids_sha256": hash_ids(ids)} for ids in (cards, cards[:1], cards[1:])
        )
        assert told(cbx) == [
            ("box replace", {"box_id": box, **both, "after": first}),
            ("box edit", {"box_id": box, **first, "after": second}),
            ("box delete", {"box_id": box, **second}),
        ]

    def test_imports_of_a_changed_profile_are_audited(self, cbx: Cbx, tmp_path: Path) -> None:
        clerk = tmp_path / "clerk.yaml"
        boxes = []
        for text in ("name: clerk", "name: clerk", "name: clerk\nsystem_prompt: Be brief."):
            clerk.write_text(text)
            boxes += lines(cbx("profile", "import", str(clerk), "-o", "id"))
        assert told(cbx) == [
            ("profile import", {"name": "clerk", "box_id": boxes[0]}),
            ("profile import", {"name": "clerk", "box_id": boxes[2], "box_before": boxes[0]}),
        ]

    def test_updates_of_a_project_are_audited_with_the_values_before(self, cbx: Cbx) -> None:
        succeed(cbx("project", "create", "shop", "--title", "Shop"))
        for _ in range(2):
            succeed(cbx("project", "update", "shop", "--status", "archived", "--allow-incomplete-context"))
        succeed(cbx("project", "update", "shop", "--reproducible-layers", "todo__context"))
        assert cbx("project", "update", "nowhere", "--title", "x").code == 3
        assert told(cbx) == []
        assert told(cbx, "-p", "shop") == [
            (
                "project update",
                {
                    "changes": {
                        "status": {"before": "active", "after": "archived"},
                        "allow_incomplete_context": {"before": False, "after": True},
                    }
                },
            ),
            (
                "project update",
                {"changes": {"reproducible_layers": {"before": [], "after": ["todo__context"]}}},
            ),
        ]

    def test_reported_tool_results_are_audited(self, cbx: Cbx, desk: Desk, ask: Asked) -> None:
        """A person's answer in the place of a tool may be an approval."""
        turn = ask().agent_turn_id or ""
        desk.waiting("c1")
        report = ("turn", "report", turn, "--tool-call-id", "c1", "--result-text")
        card = succeed(cbx(*report, "approved", "-o", "id")).strip()
        succeed(cbx(*report, "approved"))
        assert cbx(*report, "refused").code == 5
        [row] = audited(cbx, "--turn", turn)
        assert (row["action"], row["agent_id"], row["agent_turn_id"]) == ("report", "clerk", turn)
        assert row["detail"] == {"tool_call_id": "c1", "card_id": card, "status": "success"}
        assert row["actor"].startswith(f"uid {os.getuid()}")
        assert row["epoch_before"] == row["epoch_after"]

    def test_a_purge_is_audited_in_each_project(self, cbx: Cbx, add: Callable[..., str]) -> None:
        for project in (PROJECT, "q"):
            for ttl in ((), ("--ttl", "0")):
                succeed(cbx("-p", project, "card", "add", "--type", "x", "--text", "x", *ttl))
        succeed(cbx("db", "gc", "--all-projects", "--dry-run"))
        succeed(cbx("db", "gc", "--all-projects", "--yes"))
        succeed(cbx("db", "gc", "--all-projects", "--yes"))
        found = {"found": {"expired": 1, "deleted": 0, "box_info": 0, "logs": 0}}
        assert told(cbx) == told(cbx, "-p", "q") == [("db gc", found)]

    def test_the_actor_is_the_operating_system_user_and_the_session_role(
        self, cbx: Cbx, add: Callable[..., str], monkeypatch: pytest.MonkeyPatch, database: Database
    ) -> None:
        for name in ("USER", "LOGNAME", "LNAME", "USERNAME", "SUDO_USER"):
            monkeypatch.setenv(name, "mallory")
        role = database.connection.info.user
        database.connection.execute("CREATE ROLE mallory")
        monkeypatch.setenv("PGOPTIONS", "-c role=mallory")
        database.connection.execute("GRANT pg_read_all_data, pg_write_all_data TO mallory")
        try:
            succeed(cbx("card", "delete", add(), "--yes"))
        finally:
            monkeypatch.delenv("PGOPTIONS")
            database.connection.execute("DROP ROLE mallory")
        [row] = audited(cbx)
        user = f"uid {os.getuid()} ({pwd.getpwuid(os.getuid()).pw_name})"
        assert row["actor"] == f"{user} on {socket.gethostname()} as role {role}"
        assert (row["agent_id"], row["agent_turn_id"], row["epoch_before"]) == (None, None, None)


class TestTheList:
    @pytest.fixture
    def rows(self, database: Database) -> None:
        """450 rows, the last the newest; every third of turn-1 of clerk."""
        database.connection.execute(
            "INSERT INTO cbx.audit (project_id, audit_id, agent_id, agent_turn_id, action, actor, created_at)"
            " SELECT 'p', 'audit_' || n, CASE n % 3 WHEN 0 THEN 'clerk' ELSE '' END,"
            " CASE n % 3 WHEN 0 THEN 'turn_1' END, CASE n % 3 WHEN 0 THEN 'stop' ELSE 'db gc' END, 'me',"
            " now() - (450 - n) * interval '1 h' FROM generate_series(1, 450) AS n"
        )

    def test_rows_are_listed_newest_first_without_gaps(self, cbx: Cbx, rows: None) -> None:
        ids = [f"audit_{number}" for number in range(450, 0, -1)]
        listed = cbx("audit", "-o", "id")
        assert (lines(listed), listed.err) == (ids[:50], "400 more; --limit 0 shows all\n")
        assert lines(cbx("audit", "--limit", "0", "-o", "id")) == ids
        assert lines(cbx("audit", "--limit", "0", "--turn", "turn_1", "-o", "id")) == ids[::3]
        assert lines(cbx("audit", "--limit", "2", "--agent", "clerk", "-o", "id")) == ids[:6:3]
        assert lines(cbx("audit", "--limit", "2", "--action", "db gc", "-o", "id")) == ids[1:3]
        assert lines(cbx("audit", "--since", "150m", "--until", "90m", "-o", "id")) == ids[2:3]
        assert lines(cbx("audit", "--limit", "1"))[0].split() == [
            "AGE", "ACTION", "AGENT", "TURN", "WHO", "REASON", "DETAIL",
        ]  # fmt: skip

    def test_the_list_omits_other_projects_and_escapes_control_characters(
        self, cbx: Cbx, database: Database, rows: None
    ) -> None:
        none = cbx("-p", "q", "audit")
        assert (none.out, none.err) == ("", "no audit rows in project 'q'\n")
        none = cbx("audit", "--action", "stopp")
        assert (none.out, none.err) == ("", "no such audit rows in project 'p'\n")
        database.connection.execute(
            "INSERT INTO cbx.audit (project_id, audit_id, agent_id, action, actor, reason, detail)"
            """ VALUES ('q', E'a\\e[2J', E'\\e[2J', E'\\e[2J', E'\\e]0;x', E'\\e[2J\\nturn  healthy', '["\\u001b[2J"]')"""
        )
        shown = cbx("-p", "q", "audit", "-o", "wide").out
        assert ("\x1b" in shown, len(shown.splitlines())) == (False, 2)


def refused(database: Database, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        database.connection.execute(statement.encode())


class TestAppendOnly:
    def test_statements_of_the_owner_cannot_change_a_row(
        self, cbx: Cbx, add: Callable[..., str], database: Database
    ) -> None:
        succeed(cbx("card", "delete", add(), "--yes"))
        before = audited(cbx)
        assert len(before) == 1
        refused(database, "UPDATE cbx.audit SET actor = 'somebody'")
        refused(database, "DELETE FROM cbx.audit")
        refused(database, "TRUNCATE cbx.audit")
        refused(database, "TRUNCATE cbx.audit, cbx.turns CASCADE")
        refused(
            database,
            "INSERT INTO cbx.audit SELECT * FROM cbx.audit"
            " ON CONFLICT (project_id, audit_id) DO UPDATE SET actor = 'somebody'",
        )
        refused(
            database,
            "MERGE INTO cbx.audit AS a USING cbx.audit AS b ON a.audit_id = b.audit_id WHEN MATCHED THEN DELETE",
        )
        refused(database, "WITH gone AS (DELETE FROM cbx.audit RETURNING 1) SELECT * FROM gone")
        assert audited(cbx) == before

    def test_a_change_and_its_audit_row_are_written_together_or_not_at_all(
        self, cbx: Cbx, add: Callable[..., str], database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        card, box = add(), succeed(cbx("box", "create", "-o", "id")).strip()
        role = f"clerk_{database.connection.info.dbname[-12:]}"
        database.script(
            f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA public, resource, state, cbx TO {role};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA public, resource, state, cbx TO {role};"
            f"REVOKE SELECT, INSERT ON cbx.audit FROM {role}"
        )
        url = os.environ["CBX_DATABASE_URL"]
        try:
            monkeypatch.setenv("CBX_DATABASE_URL", f"{url} user={role}")
            for command in (
                ("card", "delete", card, "--yes"),
                ("box", "delete", box, "--yes"),
                ("box", "replace", box, card),
                ("card", "add", "--type", "x", "--text", "other", "--id", card, "--repair"),
                ("tool", "add", "look"),
            ):
                answer = cbx(*command)
                assert (answer.code, "permission denied for table audit" in answer.err) == (7, True), command
            database.script(f"GRANT INSERT ON cbx.audit TO {role}")
            succeed(cbx("box", "delete", box, "--yes"))
        finally:
            monkeypatch.setenv("CBX_DATABASE_URL", url)
            database.script(f"DROP OWNED BY {role}; DROP ROLE {role}")
        assert [row["action"] for row in audited(cbx)] == ["box delete"]
        assert audited(cbx)[0]["actor"].endswith(f" as role {role}")
        assert succeed(cbx("card", "show", card, "-o", "json"))
        assert cbx("tool", "list", "-o", "json").json() == []


@pytest.fixture
def elsewhere(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, cbx: Cbx
) -> Iterator[Callable[[str], Target]]:
    """Let commands run on a database that a script made."""
    made = []

    def make(of: str) -> Target:
        made.append(databases.make(databases.prepared(of)))
        target = databases.target(made[-1])
        monkeypatch.setenv("CBX_DATABASE_URL", target.conninfo or "")
        return target

    yield make
    for name in made:
        databases.drop(name)


class TestOtherDatabases:
    def test_a_database_without_an_audit_table_can_still_be_changed(
        self, cbx: Cbx, add: Callable[..., str], elsewhere: Callable[[str], Target]
    ) -> None:
        elsewhere(DEPLOYMENT)
        succeed(cbx("card", "delete", add("one"), "--yes"))
        answer = cbx("audit")
        assert (answer.code, answer.err.splitlines()[0]) == (7, "error: the database has no table cbx.audit")
