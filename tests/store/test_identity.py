"""Projects, the roster and tools in Postgres: lists page by page, tenants apart, and what other programs keep."""

from typing import Any

import pytest
from msgspec.structs import replace

from cardbox_cli.errors import Conflict, InvalidInput, NotFound
from cardbox_cli.model.identity import NO_PARAMETERS, Agent, Tool
from cardbox_cli.store.connection import project_store
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import ProjectsStore, ensure_project, is_known
from cardbox_cli.store.roster import AgentFilter, AgentStore
from cardbox_cli.store.tools import ToolStore
from tests.conftest import PROJECT

BOX = "018f2b64-0000-7000-8000-00000000cafe"
TOOL = Tool(
    tool_name="weather",
    description="The weather",
    parameters=NO_PARAMETERS,
    target_subject=None,
    after_execution="suspend",
    options={"exec": "cat", "timeout_seconds": 1.5},
)


def agent(agent_id: str, **given: Any) -> Agent:
    standard: dict[str, Any] = {
        "profile_box_id": BOX,
        "worker_target": "w",
        "tags": ["a"],
        "display_name": None,
        "owner_agent_id": None,
        "status": "active",
        "metadata": {},
        "created_at": None,
    }
    return Agent(agent_id=agent_id, **{**standard, **given})


class TestProjects:
    def test_only_the_first_writer_creates_the_project(self, database: Database) -> None:
        assert not is_known(database, PROJECT)
        ensure_project(database, PROJECT, "sys.one")
        ensure_project(database, PROJECT, "sys.two")
        made = ProjectsStore(database).get(PROJECT)
        assert (made.title, made.status, made.owner_id) == (PROJECT, "active", "sys.one")
        assert is_known(database, PROJECT)

    def test_a_database_without_the_table_stores_no_project(self, database: Database) -> None:
        database.script("DROP TABLE public.projects")
        database.clear_table_cache()
        ensure_project(database, PROJECT, "sys.one")
        assert not is_known(database, PROJECT)

    def test_an_update_sets_the_given_fields_and_reports_changes(self, database: Database) -> None:
        projects = ProjectsStore(database)
        made = projects.create(PROJECT, title="One", owner_id="me")
        database.connection.execute("SELECT set_config('cbx.clock_offset', '1 hour', false)")
        updated, changed = projects.update(PROJECT, title="Two")
        assert (updated.title, updated.status, updated.owner_id, changed) == ("Two", "active", "me", True)
        assert updated.updated_at > made.updated_at
        assert projects.update(PROJECT, title="Two", status="active") == (updated, False)
        with pytest.raises(NotFound):
            projects.update("other", title="Two")

    def test_projects_are_read_page_by_page(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(project_store, "PAGE_SIZE", 2)
        projects = ProjectsStore(database)
        for name in "edcba":
            projects.create(name, title=name, owner_id="me")
        listed = list(projects.list())
        assert [each.project_id for each in listed] == list("abcde")
        assert [each.project_id for each in projects.list(limit=3)] == list("abc")
        assert projects.further(listed[1]).count == 3


class TestRoster:
    def test_agents_of_one_project_are_read_page_by_page(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(project_store, "PAGE_SIZE", 2)
        ours, theirs = AgentStore(database, PROJECT), AgentStore(database, "other")
        for name in "edcba":
            ours.add(agent(name, worker_target="gpu" if name in "bd" else "w", tags=["x", name]))
            theirs.add(agent(name, worker_target="theirs"))
        listed = list(ours.list(AgentFilter()))
        assert [each.agent_id for each in listed] == list("abcde")
        assert {each.worker_target for each in listed} == {"gpu", "w"}
        assert [each.agent_id for each in ours.list(AgentFilter(worker_target="gpu"))] == ["b", "d"]
        assert [each.agent_id for each in ours.list(AgentFilter(tag="c"))] == ["c"]
        assert ours.further(AgentFilter(), listed[1]).count == 3
        assert ours.further(AgentFilter(worker_target="gpu"), listed[1]).count == 1

    def test_an_existing_agent_is_not_added_again(self, database: Database) -> None:
        roster = AgentStore(database, PROJECT)
        assert roster.add(agent("one")) is not None
        assert roster.add(agent("one", worker_target="gpu")) is None
        assert roster.get("one").worker_target == "w"
        assert AgentStore(database, "other").find("one") is None

    def test_a_change_merges_metadata_and_leaves_the_status(self, database: Database) -> None:
        roster = AgentStore(database, PROJECT)
        made = roster.add(agent("one", metadata={"spawned_by": "x", "depth": 1}))
        assert made is not None
        database.script("UPDATE resource.project_agents SET status = 'inactive'")
        changed = roster.change(replace(made, metadata={"depth": 2}, display_name="One"))
        assert changed == roster.get("one")
        assert (changed.metadata, changed.status) == ({"spawned_by": "x", "depth": 2}, "inactive")

    def test_rows_with_unexpected_json_are_readable(self, database: Database) -> None:
        roster = AgentStore(database, PROJECT)
        roster.add(agent("one"))
        database.script(
            "UPDATE resource.project_agents SET tags = '\"a,b\"', metadata = '[1]', created_at = NULL"
        )
        read = roster.entry("one")
        assert (read.tags, read.metadata, read.created_at, read.head) == ([], {}, None, None)

    @pytest.mark.parametrize(
        ("history", "made"),
        [
            ("SELECT", True),
            ("INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, status)"
             " VALUES ('p', 'i', 'one', 'turn', 'queued')", False),
            ("INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, status)"
             " VALUES ('other', 'i', 'one', 'turn', 'queued')", True),
            ("INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status)"
             " VALUES ('p', 'one', 's', 't', 'completed')", False),
        ],
        ids=["nothing", "queued", "queued of another project", "a step"],
    )  # fmt: skip
    def test_only_an_agent_without_history_gets_a_new_head(
        self, database: Database, history: str, made: bool
    ) -> None:
        roster = AgentStore(database, PROJECT)
        roster.add(agent("one"))
        database.script(history)
        roster.begin_head(agent("one"))
        head = roster.entry("one").head
        assert (head is not None) == made
        if head is not None:
            assert (head.status, head.turn_epoch, head.profile_box_id) == ("idle", 0, BOX)

    def test_an_existing_head_stays_unchanged(self, database: Database) -> None:
        roster = AgentStore(database, PROJECT)
        roster.add(agent("one"))
        roster.begin_head(agent("one"))
        database.script("UPDATE state.agent_state_head SET turn_epoch = 7, status = 'running'")
        roster.begin_head(agent("one"))
        head = roster.entry("one").head
        assert head is not None
        assert (head.turn_epoch, head.status) == (7, "running")


class TestTools:
    def test_a_different_tool_with_the_same_name_requires_replace(self, database: Database) -> None:
        tools = ToolStore(database, PROJECT)
        assert tools.add(TOOL, actor="me") == (TOOL, "added", None)
        assert tools.add(TOOL, actor="me") == (TOOL, "unchanged", None)
        other = replace(TOOL, options={}, description="Other")
        with pytest.raises(Conflict, match="a different tool 'weather' exists in project 'p'"):
            tools.add(other, actor="me")
        assert tools.add(other, actor="me", replace=True) == (other, "replaced", TOOL)
        assert tools.get("weather") == other
        assert ProjectsStore(database).get(PROJECT).owner_id == "me"

    def test_a_replacement_preserves_the_options_of_other_programs(self, database: Database) -> None:
        database.script(
            "INSERT INTO resource.tools VALUES ('p', 'weather', NULL, '[]', 'cg.{project_id}.cmd.tool.x', NULL,"
            ' \'{"args.fixed": {"a": 1.10}, "exec": "old", "timeout_seconds": 9}\')'
        )
        tools = ToolStore(database, PROJECT)
        assert tools.get("weather").parameters == {}
        replaced = tools.add(replace(TOOL, options={"exec": "cat"}), actor="me", replace=True).tool
        assert replaced.target_subject == "cg.{project_id}.cmd.tool.x"
        assert {name: str(value) for name, value in replaced.options.items()} == {
            "args.fixed": "{'a': Decimal('1.10')}",
            "exec": "cat",
        }

    def test_each_project_has_its_own_tools(self, database: Database) -> None:
        ours, theirs = ToolStore(database, PROJECT), ToolStore(database, "other")
        ours.add(TOOL, actor="me")
        theirs.add(replace(TOOL, description="Theirs"), actor="me")
        ours.add(replace(TOOL, tool_name="approve"), actor="me")
        assert [each.tool_name for each in ours.all()] == ["approve", "weather"]
        assert [each.description for each in theirs.all()] == ["Theirs"]
        assert [each.tool_name for each in ours.get_many(["weather", "nope"])] == ["weather"]
        ours.remove("weather")
        assert theirs.find("weather") is not None
        with pytest.raises(NotFound, match="no tool 'weather' in project 'p'"):
            ours.remove("weather")

    def test_a_refused_tool_leaves_no_row(self, database: Database) -> None:
        with pytest.raises(InvalidInput):
            ToolStore(database, PROJECT).add(replace(TOOL, parameters={}), actor="me")
        assert ToolStore(database, PROJECT).all() == []
        assert not is_known(database, PROJECT)
