"""Provisioning: what rows it leaves, what it refuses, two at a time, and what other programs wrote before."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from cardbox_cli.errors import CbxError, Conflict, InvalidInput, NotFound
from cardbox_cli.execution.provision import AgentRequest, ProvisionOutcome, provision
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileEntry, ProfileStore
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.roster import AgentStore
from tests.conftest import PROJECT
from tests.crash.processes import until

Row = tuple[Any, ...]
Second = Callable[..., Future[ProvisionOutcome]]


class TakenBack(Exception):
    """What rolls a transaction back here."""


def imported(database: Database, name: str = "clerk", project: str = PROJECT, **given: Any) -> ProfileEntry:
    profile = {"name": name, "worker_target": "desk", "tags": ["office"], **given}
    return ProfileStore(database, project).save(profile, author_id=OPERATOR)


@pytest.fixture
def clerk(database: Database) -> ProfileEntry:
    """The profile `clerk`, for worker target `desk`."""
    return imported(database)


def make(database: Database, agent: str = "a", *, update: bool = False, **given: Any) -> ProvisionOutcome:
    request = AgentRequest(agent_id=agent, **{"profile_name": "clerk", **given})
    return provision(database, PROJECT, request, update=update)


def edges(database: Database) -> list[Row]:
    return database.connection.execute(
        "SELECT project_id, action, source_agent_id, target_agent_id, metadata FROM state.identity_edges"
        " ORDER BY created_at, edge_id"
    ).fetchall()


class TestANewAgent:
    def test_a_new_agent_has_an_entry_an_idle_head_and_an_edge(
        self, database: Database, clerk: ProfileEntry
    ) -> None:
        done = make(database, display_name="Ann", owner_agent_id=OPERATOR, metadata={"depth": 1})
        assert (done.action, done.outdated) == ("provision", False)
        entry = AgentStore(database, PROJECT).entry("a")
        assert (entry.profile_box_id, entry.worker_target, entry.tags) == (
            clerk.profile_box_id,
            "desk",
            ["office"],
        )
        assert (entry.display_name, entry.owner_agent_id, entry.status) == ("Ann", OPERATOR, "active")
        assert entry.metadata == {"depth": 1, "profile_name": "clerk"}
        assert entry.head is not None
        assert (entry.head.status, entry.head.turn_epoch) == ("idle", 0)
        assert edges(database) == [
            (
                PROJECT,
                "provision",
                OPERATOR,
                "a",
                {
                    **entry.metadata,
                    "profile_box_id": clerk.profile_box_id,
                    "worker_target": "desk",
                    "tags": ["office"],
                    "display_name": "Ann",
                    "owner_agent_id": OPERATOR,
                },
            )
        ]

    def test_the_first_write_creates_the_project(self, database: Database) -> None:
        imported(database)
        assert ProjectsStore(database).get(PROJECT).owner_id == OPERATOR
        database.script("DELETE FROM public.projects")
        make(database)
        assert ProjectsStore(database).get(PROJECT).title == PROJECT

    def test_an_agent_can_be_created_without_a_projects_table(self, database: Database) -> None:
        database.script("DROP TABLE public.projects")
        database.clear_table_cache()
        imported(database)
        assert make(database).action == "provision"

    @pytest.mark.parametrize(
        ("given", "error", "said"),
        [
            ({"profile_name": "nope"}, NotFound, "no profile 'nope' in project 'p'"),
            ({"owner_agent_id": "nope"}, NotFound, "no agent 'nope' in project 'p'"),
            ({"agent": "sys.a"}, InvalidInput, "the agent id 'sys.a' must be one word without '.', '*' and '>'"),
            ({"agent": " "}, InvalidInput, "the agent id ' ' must be one word without '.', '*' and '>'"),
            ({"worker_target": ""}, InvalidInput, "the worker target '' must be one word without '.', '*' and '>'"),
            ({"worker_target": "a.b"}, InvalidInput, "the worker target 'a.b' must be one word"),
            ({"display_name": "\n"}, InvalidInput, "the display name '\\n' must have 1 to 255 printable characters"),
            ({"tags": ["ok", ""]}, InvalidInput, "the tag '' must have 1 to 255 printable characters"),
        ],
    )  # fmt: skip
    def test_a_refused_request_writes_nothing(
        self,
        database: Database,
        clerk: ProfileEntry,
        row_counts: Callable[[], dict[str, int]],
        given: dict[str, Any],
        error: type[CbxError],
        said: str,
    ) -> None:
        before = row_counts()
        with pytest.raises(error) as refused:
            make(database, **given)
        assert said in refused.value.message
        assert row_counts() == before

    def test_a_profile_with_a_lost_box_is_refused(self, database: Database, clerk: ProfileEntry) -> None:
        database.script("DELETE FROM card_boxes")
        with pytest.raises(NotFound, match="of profile 'clerk' is gone"):
            make(database)

    def test_an_empty_worker_target_in_a_foreign_profile_is_refused(
        self, database: Database, clerk: ProfileEntry
    ) -> None:
        database.script("UPDATE resource.profiles SET worker_target = ''")
        with pytest.raises(InvalidInput, match="the worker target '' must be"):
            make(database)
        assert make(database, worker_target="desk").agent.worker_target == "desk"

    def test_provisioning_joins_the_transaction_of_its_caller(
        self, database: Database, clerk: ProfileEntry
    ) -> None:
        with suppress(TakenBack), database.transaction():
            make(database)
            raise TakenBack
        assert AgentStore(database, PROJECT).find("a") is None
        assert edges(database) == []


class TestAnAgentThatExists:
    def test_a_repeated_request_changes_nothing(self, database: Database, clerk: ProfileEntry) -> None:
        first = make(database, worker_target="gpu", tags=["x"])
        assert make(database, worker_target="gpu", tags=["x"]) == ProvisionOutcome(
            agent=first.agent, action="unchanged"
        )
        assert make(database, profile_name="CLERK", update=True).action == "unchanged"
        assert len(edges(database)) == 1

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"profile_name": "writer"}, "agent 'a' exists with profile 'clerk'"),
            ({"worker_target": "gpu"}, "agent 'a' exists with worker target 'desk'"),
            (
                {"tags": ["x"], "display_name": "B"},
                "agent 'a' exists with tags ['office'], display name None",
            ),
        ],
    )
    def test_a_different_request_is_a_conflict_without_update(
        self, database: Database, clerk: ProfileEntry, given: dict[str, Any], said: str
    ) -> None:
        imported(database, "writer")
        first = make(database)
        with pytest.raises(Conflict) as refused:
            make(database, **given)
        assert (refused.value.message, refused.value.hint) == (said, "add --update to change the agent")
        assert AgentStore(database, PROJECT).get("a") == first.agent
        assert make(database, **given, update=True).action == "update"
        assert make(database, **given).action == "unchanged"
        assert [action for _, action, *_ in edges(database)] == ["provision", "update"]

    def test_an_agent_keeps_its_profile_version_until_an_update(
        self, database: Database, clerk: ProfileEntry
    ) -> None:
        make(database)
        newer = imported(database, "Clerk", worker_target="counter", tags=["front"])
        kept = make(database)
        assert (kept.action, kept.outdated) == ("unchanged", True)
        assert (kept.agent.profile_box_id, kept.agent.worker_target) == (clerk.profile_box_id, "desk")
        updated = make(database, update=True)
        assert (updated.action, updated.outdated) == ("update", False)
        assert updated.agent.profile_box_id == newer.profile_box_id
        assert (updated.agent.worker_target, updated.agent.tags) == ("counter", ["front"])
        assert updated.agent.profile_name == "Clerk"

    def test_explicit_settings_survive_a_change_of_the_profile(
        self, database: Database, clerk: ProfileEntry
    ) -> None:
        make(database, worker_target="gpu", tags=["x"], display_name="Ann", owner_agent_id=OPERATOR)
        imported(database, worker_target="counter", tags=["front"])
        agent = make(database, update=True).agent
        assert (agent.worker_target, agent.tags) == ("gpu", ["x"])
        assert (agent.display_name, agent.owner_agent_id) == ("Ann", OPERATOR)

    def test_an_update_does_not_change_the_head_or_a_running_turn(
        self, database: Database, clerk: ProfileEntry
    ) -> None:
        make(database)
        database.script(
            "UPDATE state.agent_state_head SET status = 'running', turn_epoch = 3, active_agent_turn_id = 't'"
        )
        before = AgentStore(database, PROJECT).entry("a").head
        imported(database, worker_target="counter")
        make(database, update=True)
        assert AgentStore(database, PROJECT).entry("a").head == before

    def test_agents_with_one_id_in_two_projects_are_separate(
        self, database: Database, clerk: ProfileEntry
    ) -> None:
        make(database)
        imported(database, project="other", worker_target="theirs")
        theirs = provision(database, "other", AgentRequest(agent_id="a", profile_name="clerk"))
        assert (theirs.action, theirs.agent.worker_target) == ("provision", "theirs")
        assert AgentStore(database, PROJECT).get("a").worker_target == "desk"
        assert [project for project, *_ in edges(database)] == [PROJECT, "other"]
        with pytest.raises(NotFound, match="no agent 'a' in project 'third'"):
            AgentStore(database, "third").get("a")


class TestTwoAtATime:
    """The second of two connections waits for the first, and then sees what that one made."""

    @pytest.fixture
    def second(self, target: Target) -> Iterator[Second]:
        """Provision on another connection, which by now waits for this one."""

        def other(given: dict[str, Any]) -> ProvisionOutcome:
            with Database.open_target(target) as opened:
                return make(opened, **given)

        with ThreadPoolExecutor(1) as pool:

            def start(**given: Any) -> Future[ProvisionOutcome]:
                future = pool.submit(other, given)
                wait_for_a_waiter(target)
                return future

            yield start

    def test_the_second_of_two_equal_requests_changes_nothing(
        self, database: Database, clerk: ProfileEntry, second: Second
    ) -> None:
        with database.transaction():
            first = make(database)
            waiting = second()
        assert waiting.result() == ProvisionOutcome(agent=first.agent, action="unchanged")
        assert len(edges(database)) == 1

    def test_the_second_of_two_different_requests_is_a_conflict(
        self, database: Database, clerk: ProfileEntry, second: Second
    ) -> None:
        with database.transaction():
            make(database)
            waiting = second(worker_target="gpu")
        with pytest.raises(Conflict, match="agent 'a' exists with worker target 'desk'"):
            waiting.result()

    def test_the_second_request_creates_the_agent_if_the_first_rolls_back(
        self, database: Database, clerk: ProfileEntry, second: Second
    ) -> None:
        with suppress(TakenBack), database.transaction():
            make(database, worker_target="gpu")
            waiting = second()
            raise TakenBack
        done = waiting.result()
        assert (done.action, done.agent.worker_target) == ("provision", "desk")

    def test_two_concurrent_updates_are_both_applied(
        self, database: Database, clerk: ProfileEntry, second: Second
    ) -> None:
        make(database)
        with database.transaction():
            make(database, worker_target="gpu", metadata={"one": 1}, update=True)
            waiting = second(display_name="Ann", metadata={"two": 2}, update=True)
        assert waiting.result().action == "update"
        agent = AgentStore(database, PROJECT).get("a")
        assert (agent.worker_target, agent.display_name) == ("gpu", "Ann")
        assert agent.metadata == {"profile_name": "clerk", "one": 1, "two": 2}


def wait_for_a_waiter(target: Target) -> None:
    """Until some connection of the database waits for a lock."""
    with psycopg.connect(target.conninfo or "", autocommit=True, prepare_threshold=None) as connection:
        waiting = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        until(lambda: connection.execute(waiting).fetchall())


class TestTheRowsOfAnotherProgram:
    """An agent as the deployments of the interop facts write it."""

    @pytest.fixture(autouse=True)
    def theirs(self, database: Database, clerk: ProfileEntry) -> None:
        database.connection.execute(
            "INSERT INTO resource.project_agents (project_id, agent_id, profile_box_id, worker_target, tags,"
            " display_name, owner_agent_id, status, metadata) VALUES ('p', 'a', %s, 'worker_generic',"
            " '[\"x\"]', 'Ann', 'boss', 'inactive', '{\"spawned_by\": \"boss\", \"is_ui_agent\": true}')",
            [clerk.profile_box_id],
        )

    def test_a_foreign_agent_is_unchanged_and_gets_its_missing_head(self, database: Database) -> None:
        assert make(database).action == "unchanged"
        entry = AgentStore(database, PROJECT).entry("a")
        assert entry.head is not None
        assert (entry.metadata, entry.status) == ({"spawned_by": "boss", "is_ui_agent": True}, "inactive")
        assert edges(database) == []

    def test_an_update_merges_metadata_and_keeps_name_owner_and_status(self, database: Database) -> None:
        agent = make(database, worker_target="desk", update=True).agent
        assert (agent.display_name, agent.owner_agent_id, agent.status) == ("Ann", "boss", "inactive")
        assert agent.metadata == {"spawned_by": "boss", "is_ui_agent": True, "profile_name": "clerk"}
        assert (agent.worker_target, agent.tags) == ("desk", ["x"])

    def test_an_older_profile_box_of_a_foreign_agent_is_a_conflict(self, database: Database) -> None:
        imported(database, tags=["newer"])
        with pytest.raises(Conflict, match="agent 'a' exists with profile '"):
            make(database)
