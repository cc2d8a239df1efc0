"""`cbx project`, `agent` and `tool`: what they print, what they refuse and how, and whose rows they touch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Offered, lines, succeed
from tests.conftest import PROJECT, Cbx

Feed = Callable[[str | bytes], None]
RowCounts = Callable[[], dict[str, int]]

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}}'
PROVISION = ("agent", "provision", "a-1", "--profile", "clerk")
EXISTS = "hint: `cbx project list` shows the projects\n"


@pytest.fixture
def clerk(cbx: Cbx, tmp_path: Path) -> str:
    """The file of a profile that has been imported."""
    path = tmp_path / "clerk.yaml"
    path.write_text("name: clerk\nworker_target: desk\ntags: [office]\n")
    succeed(cbx("profile", "import", str(path)))
    return str(path)


class TestProject:
    def test_a_project_is_created_updated_and_shown(self, cbx: Cbx) -> None:
        assert succeed(cbx("project", "create", "shop", "--title", "The shop")) == "created project shop\n"
        assert succeed(cbx("-p", "shop", "project", "update", "--owner", "ann")) == "updated project shop\n"
        assert succeed(cbx("project", "update", "shop", "--owner", "ann")) == "unchanged: project shop\n"
        shown = json.loads(succeed(cbx("project", "show", "shop", "-o", "json")))
        assert set(shown) == {
            "project_id",
            "title",
            "status",
            "owner_id",
            "created_at",
            "updated_at",
            "enable_share_context",
            "reproducible_layers",
            "allow_incomplete_context",
            "knowledge_scope",
        }
        assert (shown["title"], shown["status"], shown["owner_id"]) == ("The shop", "active", "ann")
        facts = dict(line.split(maxsplit=1) for line in lines(cbx("project", "show", "shop")))
        assert (facts["project"], facts["title"], facts["owner"]) == ("shop", "The shop", "ann")
        assert list(facts) == [
            "project",
            "title",
            "status",
            "owner",
            "created",
            "updated",
            "share",
            "reproducible",
            "incomplete",
            "knowledge",
        ]

    def test_the_settings_of_a_project_are_stored(self, cbx: Cbx) -> None:
        def settings(*options: str) -> tuple[str, object, object]:
            said = succeed(cbx("project", "update", *options)).split(":")[0].strip()
            shown = cbx("project", "show", "-o", "json").json()
            return said, shown["enable_share_context"], shown["reproducible_layers"]

        succeed(cbx("project", "create"))
        succeed(cbx("project", "create", "other"))
        layers = "todo__context, plan__context,,todo__context"
        updated, unchanged, both = "updated project p", "unchanged", ["todo__context", "plan__context"]
        assert settings("--title", "Shop") == (updated, None, [])
        assert settings("--no-share") == (updated, False, [])
        assert settings("--no-share") == (unchanged, False, [])
        assert settings("--reproducible-layers", layers) == (updated, False, both)
        assert settings("--share", "--title", "Shop") == (updated, True, both)
        facts = lines(cbx("project", "show"))[-4:-2]
        assert [fact.split("  ")[-1].strip() for fact in facts] == ["yes", ", ".join(both)]
        assert settings("--share-default", "--reproducible-layers", "") == (updated, None, [])
        assert cbx("project", "show", "other", "-o", "json").json()["enable_share_context"] is None

    def test_incomplete_contexts_and_knowledge_scope_are_project_settings(self, cbx: Cbx) -> None:
        def rules(*options: str) -> tuple[str, object, object]:
            said = succeed(cbx("project", "update", *options)).split(":")[0].strip()
            shown = cbx("project", "show", "-o", "json").json()
            return said, shown["allow_incomplete_context"], shown["knowledge_scope"]

        succeed(cbx("project", "create"))
        assert rules("--title", "Shop") == ("updated project p", False, "project")
        assert rules("--allow-incomplete-context") == ("updated project p", True, "project")
        assert rules("--knowledge-scope", "boxes") == ("updated project p", True, "boxes")
        assert rules("--knowledge-scope", "boxes") == ("unchanged", True, "boxes")
        facts = lines(cbx("project", "show"))[-2:]
        assert [fact.split("  ")[-1].strip() for fact in facts] == ["are run", "boxes"]
        assert rules("--no-allow-incomplete-context", "--knowledge-scope", "none")[1:] == (False, "none")
        assert cbx("project", "update", "--knowledge-scope", "all").code == 2

    def test_the_framework_layer_is_never_stored(self, cbx: Cbx, database: Database) -> None:
        succeed(cbx("project", "create"))
        refused = cbx("project", "update", "--reproducible-layers", "todo__context,framework__context")
        assert (refused.code, "'framework__context' is never stored" in refused.err) == (4, True)
        database.connection.execute(
            "INSERT INTO cbx.project_settings (project_id, reproducible_layers)"
            """ VALUES ('p', '["framework__context", "todo__context"]')"""
        )
        shown = cbx("project", "show")
        assert shown.err == (
            "warning: reproducible layer framework__context has no effect, because it is never stored; "
            "set the layers again with `cbx project update --reproducible-layers NAMES`\n"
        )
        assert lines(shown)[-3].split("  ")[-1].strip() == "todo__context"

    def test_settings_are_the_defaults_if_their_table_is_missing(self, cbx: Cbx, database: Database) -> None:
        succeed(cbx("project", "create"))
        database.script("DROP TABLE cbx.project_settings")
        shown = cbx("project", "show", "-o", "json").json()
        assert (shown["enable_share_context"], shown["knowledge_scope"]) == (None, "project")
        refused = cbx("project", "update", "--knowledge-scope", "none")
        assert (refused.code, "no table cbx.project_settings" in refused.err) == (7, True)

    def test_projects_are_listed_by_id(self, cbx: Cbx) -> None:
        for name in ("two", "one", "three"):
            assert lines(cbx("-p", name, "project", "create", "-o", "id")) == [name]
        assert lines(cbx("project", "list", "-o", "id")) == ["one", "three", "two"]
        listed = cbx("project", "list", "--limit", "2", "--columns", "project,title")
        assert (lines(listed)[1:], listed.err) == (
            ["one      one", "three    three"],
            "1 more; --limit 0 shows all\n",
        )

    @pytest.mark.parametrize("write", ["profile", "tool", "agent"])
    def test_the_first_write_creates_the_project(self, cbx: Cbx, clerk: str, write: str) -> None:
        new = ("-p", "new") if write != "agent" else ("-p", PROJECT)
        command = {
            "profile": ("profile", "import", clerk),
            "tool": ("tool", "add", "weather"),
            "agent": PROVISION,
        }[write]
        succeed(cbx(*new, *command))
        shown = cbx(*new, "project", "show", "-o", "json").json()
        assert (shown["title"], shown["status"], shown["owner_id"]) == (new[1], "active", "sys.operator")


class TestAgent:
    def test_an_agent_is_provisioned_listed_and_shown(self, cbx: Cbx, clerk: str) -> None:
        said = "a-1 (profile clerk, worker target desk)\n"
        assert succeed(cbx(*PROVISION)) == f"provisioned {said}"
        assert succeed(cbx(*PROVISION)) == f"unchanged: {said}"
        assert lines(cbx("agent", "list"))[1].split()[:5] == ["a-1", "idle", "clerk", "desk", "office"]
        shown = cbx("agent", "show", "a-1", "-o", "json").json()
        assert set(shown) == {
            "agent_id", "profile_box_id", "worker_target", "tags", "display_name", "owner_agent_id", "status",
            "metadata", "created_at", "head",
        }  # fmt: skip
        assert (shown["head"]["status"], shown["head"]["turn_epoch"]) == ("idle", 0)
        assert cbx("agent", "list", "-o", "json").json() == [shown]
        assert lines(cbx("agent", "list", "-o", "id")) == ["a-1"]

    def test_provision_prints_the_agent_and_the_action(self, cbx: Cbx, clerk: str) -> None:
        options = ("--worker-target", "gpu", "--tag", "x", "--tag", "y", "--display-name", "Ann")
        made = cbx(*PROVISION, *options, "--owner", "sys.me", "-o", "json").json()
        assert (made["action"], made["outdated"]) == ("provision", False)
        assert (made["worker_target"], made["tags"], made["display_name"]) == ("gpu", ["x", "y"], "Ann")
        assert made["owner_agent_id"] == "sys.me"
        assert lines(cbx(*PROVISION, "-o", "id")) == ["a-1"]
        shown = succeed(cbx("agent", "show", "a-1"))
        assert "display name   Ann\n" in shown
        assert "\nstatus  idle, since " in shown

    def test_an_agent_keeps_its_profile_version_until_an_update(self, cbx: Cbx, clerk: str) -> None:
        old = cbx(*PROVISION, "-o", "json").json()["profile_box_id"]
        Path(clerk).write_text(Path(clerk).read_text() + "description: newer\n")
        [new] = lines(cbx("profile", "import", clerk, "-o", "id"))
        kept = cbx(*PROVISION)
        assert succeed(kept).startswith("unchanged: a-1 ")
        assert (
            kept.err
            == "note: agent a-1 uses an older version of its profile; --update switches to the newest\n"
        )
        assert cbx("agent", "show", "a-1", "-o", "json").json()["profile_box_id"] == old
        assert succeed(cbx(*PROVISION, "--update")).startswith("updated a-1 ")
        assert cbx("agent", "show", "a-1", "-o", "json").json()["profile_box_id"] == new

    def test_a_list_is_filtered_and_counts_the_omitted_agents(self, cbx: Cbx, clerk: str) -> None:
        for name, target in (("a", "gpu"), ("b", "desk"), ("c", "gpu")):
            succeed(cbx("agent", "provision", name, "--profile", "clerk", "--worker-target", target))
        listed = cbx("agent", "list", "--limit", "1")
        assert (len(lines(listed)), listed.err) == (2, "2 more; --limit 0 shows all\n")
        assert lines(cbx("agent", "list", "--worker-target", "gpu", "-o", "id")) == ["a", "c"]
        assert cbx("agent", "list", "--worker-target", "gpu", "-n", "1").err.startswith("1 more")
        assert lines(cbx("agent", "list", "--tag", "nope", "-o", "id")) == []
        one = lines(cbx("agent", "list", "-n", "1", "--columns", "agent,epoch,turn,roster,profile-box"))
        assert one[1].split()[:4] == ["a", "0", "-", "active"]

    def test_an_agent_without_a_head_is_shown(self, cbx: Cbx, clerk: str, database: Any) -> None:
        succeed(cbx(*PROVISION))
        database.script("DELETE FROM state.agent_state_head")
        shown = succeed(cbx("agent", "show", "a-1"))
        assert shown.endswith("\nno state row: the agent never had a turn, or the row was lost\n")
        assert lines(cbx("agent", "list"))[1].split()[1] == "-"


class TestTool:
    def test_a_tool_is_added_shown_replaced_and_removed(self, cbx: Cbx, tmp_path: Path) -> None:
        (tmp_path / "s.json").write_text(SCHEMA)
        add = ("tool", "add", "weather", "--description", "Rain?", "--exec", "cat", "--timeout", "2.5")
        assert succeed(cbx(*add, "--schema", str(tmp_path / "s.json"))) == "added weather\n"
        assert succeed(cbx(*add, "--schema", SCHEMA)) == "unchanged: weather\n"
        shown = cbx("tool", "show", "weather", "-o", "json").json()
        assert shown == {
            "tool_name": "weather",
            "description": "Rain?",
            "parameters": json.loads(SCHEMA),
            "target_subject": None,
            "after_execution": "suspend",
            "options": {"exec": "cat", "timeout_seconds": 2.5},
        }
        assert cbx("tool", "list", "-o", "json").json() == [shown]
        assert lines(cbx("tool", "list"))[1].split() == ["weather", "cat", "2.5s", "suspend", "Rain?"]
        replaced = cbx(
            "tool", "add", "weather", "--after-execution", "terminate", "--replace", "-o", "json"
        ).json()
        assert (replaced["action"], replaced["options"], replaced["after_execution"]) == (
            "replaced",
            {},
            "terminate",
        )
        assert "command          none: a call waits for a report\n" in succeed(cbx("tool", "show", "weather"))
        assert succeed(cbx("tool", "remove", "weather", "--yes")) == "removed weather\n"
        assert lines(cbx("tool", "list", "-o", "id")) == []

    def test_a_schema_is_read_from_standard_input(self, cbx: Cbx, feed: Feed) -> None:
        feed(SCHEMA)
        made = cbx("tool", "add", "weather", "--schema", "-", "-o", "json").json()
        assert made["parameters"] == json.loads(SCHEMA)


class TestProfileImport:
    def test_an_import_creates_a_box_only_for_a_changed_profile(
        self, cbx: Cbx, clerk: str, tmp_path: Path, database: Database
    ) -> None:
        def imported(*files: str) -> Any:
            return cbx("profile", "import", *files, "-o", "json").json()

        first = imported(clerk)
        assert (list(first), first["action"]) == (["profile_box_id", "name", "action"], "unchanged")
        boxes = lines(cbx("box", "list", "--kind", "profile", "-o", "id"))
        assert "  unchanged\n" in succeed(cbx("profile", "import", clerk))
        assert (
            lines(cbx("box", "list", "--kind", "profile", "-o", "id")) == boxes == [first["profile_box_id"]]
        )

        (tmp_path / "other.yaml").write_text("name: other\ntemperature: 0.20\n")
        other = str(tmp_path / "other.yaml")
        assert [each["action"] for each in imported(clerk, other, other)] == [
            "unchanged",
            "import",
            "unchanged",
        ]
        for changed in (
            "name: Clerk\nworker_target: desk\ntags: [office]\n",
            "name: Clerk\nworker_target: gpu\ntags: [office]\n",
            "name: Clerk\nworker_target: gpu\ntags: []\n",
            "name: Clerk\nworker_target: gpu\ntags: []\nsystem_prompt: Be brief.\n",
        ):
            Path(clerk).write_text(changed)
            assert imported(clerk)["action"] == "update"
            assert imported(clerk)["action"] == "unchanged"

        # What somebody has done to what is stored since is put right.
        for spoiled in (
            "UPDATE resource.profiles SET worker_target = 'elsewhere'",
            "UPDATE public.cards SET content = jsonb_set(content, '{data,name}', '\"x\"')",
            "UPDATE public.cards SET deleted_at = now()",
            "UPDATE public.card_boxes SET card_ids = '[]'",
            "DELETE FROM public.card_boxes",
        ):
            database.connection.execute(spoiled.encode())
            assert imported(clerk)["action"] == "update"
        assert imported(clerk)["action"] == "unchanged"


class TestNothingToShow:
    def test_lists_of_an_unknown_project_report_that_it_is_unknown(self, cbx: Cbx) -> None:
        for noun in ("agent", "tool", "profile"):
            listed = cbx("-p", "nope", noun, "list")
            assert (listed.code, listed.out) == (0, "")
            assert listed.err == (
                f"no {noun}s: unknown project 'nope'; list the projects with `cbx project list`\n"
            )
            assert cbx("-p", "nope", noun, "list", "-o", "json").out == "[]\n"

    @pytest.mark.parametrize("known_by", ["card", "project"])
    def test_empty_lists_of_a_known_project_have_a_hint(
        self, cbx: Cbx, known_by: str, add: Callable[..., str]
    ) -> None:
        if known_by == "card":
            add()
        else:
            succeed(cbx("project", "create"))
        for noun, hint in (
            ("agent", "create one with `cbx agent provision AGENT --profile NAME`"),
            ("tool", "add one with `cbx tool add`"),
            ("profile", "import one with `cbx profile import FILE.yaml`"),
        ):
            assert cbx(noun, "list").err == f"no {noun}s in project 'p'; {hint}\n"

    def test_an_empty_list_of_projects_has_a_hint(self, cbx: Cbx) -> None:
        hint = "create one with `cbx project create ID`"
        assert cbx("project", "list").err == f"no projects; {hint}\n"


REFUSED = [
    (("project", "show", "nope"), 3, f"error: no project 'nope'\n{EXISTS}"),
    (("project", "update", "nope", "--title", "x"), 3, f"error: no project 'nope'\n{EXISTS}"),
    (
        ("project", "create", "p"),
        5,
        "error: project 'p' already exists\nhint: change its title, status or owner with `cbx project update`\n",
    ),
    (
        ("project", "create", "x", "--title", " "),
        4,
        "error: the title ' ' must have 1 to 255 printable characters on one line\n"
        "hint: omit the value, or pass a text\n",
    ),
    (
        ("project", "create", ""),
        2,
        "error: the project '' must have 1 to 255 printable characters\n"
        "hint: set the project with --project or CBX_PROJECT\n",
    ),
    (
        ("project", "update", "p", "--status", "asleep"),
        2,
        "error: --status: unknown state 'asleep'\nhint: states are active, inactive, archived\n",
    ),
    (
        ("project", "update"),
        2,
        "error: no change given\nhint: pass at least one option; see `cbx project update --help`\n",
    ),
    (
        ("project", "update", "--no-share", "--share-default"),
        2,
        "error: --no-share and --share-default cannot be combined\nhint: remove one of them\n",
    ),
    (
        ("project", "update", "--reproducible-layers", "todo__context,notes"),
        4,
        "error: 'notes' is not a layer: names of layers end in '__context'\nhint: use "
        "framework__context, persona__context, memory__context, experience__context, knowledge__context, todo__context, compression__context, "
        "or your own name\n",
    ),
    (
        ("agent", "show", "nobody"),
        3,
        "error: no agent 'nobody' in project 'p'\nhint: `cbx agent list` shows the agents\n",
    ),
    (
        ("agent", "provision", "b", "--profile", "nope"),
        3,
        "error: no profile 'nope' in project 'p'\nhint: `cbx profile list` shows the names\n",
    ),
    (
        ("agent", "provision", "b.c", "--profile", "clerk"),
        4,
        "error: the agent id 'b.c' must be one word without '.', '*' and '>'\n"
        "hint: for example researcher-1; agents cannot have ids such as sys.operator\n",
    ),
    (
        ("agent", "provision", "b", "--profile", "clerk", "--worker-target", " "),
        4,
        "error: the worker target ' ' must be one word without '.', '*' and '>'\n"
        "hint: for example worker_generic; the default is that of the profile\n",
    ),
    (
        (*PROVISION, "--worker-target", "gpu"),
        5,
        "error: agent 'a-1' exists with worker target 'desk'\nhint: add --update to change the agent\n",
    ),
    (
        ("tool", "show", "nope"),
        3,
        "error: no tool 'nope' in project 'p'\nhint: `cbx tool list` shows the names\n",
    ),
    (
        ("tool", "add", "weather", "--exec", "true"),
        5,
        "error: a different tool 'weather' exists in project 'p'\nhint: pass --replace to replace the tool\n",
    ),
    (
        ("tool", "add", "t", "--schema", "nowhere.json"),
        3,
        "error: no file 'nowhere.json'\nhint: check the path, or pass - for standard input\n",
    ),
    (
        ("tool", "add", "t", "--schema", "{"),
        4,
        "error: --schema: not JSON at line 1 column 2: Expecting property name enclosed in double quotes\n"
        'hint: quote it for the shell, for example \'{"key": "value"}\', or pass @FILE\n',
    ),
    (
        ("tool", "add", "t", "--schema", "{}"),
        4,
        'error: the schema must be a JSON object with "type": "object", found an object without it\n'
        'hint: for example {"type": "object", "properties": {"city": {"type": "string"}}}\n',
    ),
    (
        ("tool", "add", "t", "--exec", ""),
        4,
        "error: the command of a tool must not be blank\nhint: omit it, and the tool waits for a report\n",
    ),
    (("tool", "add", "t", "--timeout", "nan"), 4, "error: the timeout of a tool must be a number of seconds"),
    (
        ("tool", "add", "t", "--after-execution", "x"),
        2,
        "error: --after-execution: unknown value 'x'\nhint: values are suspend, terminate\n",
    ),
    (
        ("tool", "remove", "weather"),
        2,
        "error: Remove the tool weather? Cannot ask for confirmation without a terminal\nhint: pass --yes\n",
    ),
]


@pytest.mark.parametrize(("command", "code", "said"), REFUSED, ids=[" ".join(words) for words, *_ in REFUSED])
def test_a_refused_command_writes_nothing(
    cbx: Cbx, clerk: str, row_counts: RowCounts, command: tuple[str, ...], code: int, said: str
) -> None:
    succeed(cbx(*PROVISION))
    succeed(cbx("tool", "add", "weather"))
    before = row_counts()
    result = cbx(*command)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(said)
    assert row_counts() == before


def test_commands_in_one_project_never_change_another(cbx: Cbx, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / "p.yaml").write_text(f"name: clerk\nworker_target: {name}\n")
        here = ("-p", name)
        succeed(cbx(*here, "profile", "import", str(tmp_path / "p.yaml")))
        succeed(cbx(*here, *PROVISION))
        succeed(cbx(*here, "tool", "add", "weather", "--exec", name))
    succeed(cbx("-p", "theirs", "agent", "provision", "only-theirs", "--profile", "clerk"))
    before = [cbx("-p", "theirs", noun, "list", "-o", "json").out for noun in ("agent", "tool", "profile")]
    for command in (
        ("agent", "show", "only-theirs"),
        ("agent", "provision", "b", "--profile", "clerk", "--owner", "only-theirs"),
    ):
        refused = cbx("-p", "ours", *command)
        assert (refused.code, "in project 'ours'" in refused.err) == (3, True)
    assert cbx("-p", "ours", "agent", "show", "a-1", "-o", "json").json()["worker_target"] == "ours"
    assert cbx("-p", "ours", "tool", "show", "weather", "-o", "json").json()["options"] == {"exec": "ours"}
    succeed(cbx("-p", "ours", *PROVISION, "--worker-target", "gpu", "--update"))
    succeed(cbx("-p", "ours", "tool", "remove", "weather", "--yes"))
    succeed(cbx("-p", "ours", "project", "update", "--title", "Ours"))
    after = [cbx("-p", "theirs", noun, "list", "-o", "json").out for noun in ("agent", "tool", "profile")]
    assert after == before
    assert cbx("project", "show", "theirs", "-o", "json").json()["title"] == "theirs"


def test_agents_and_tools_are_completed(cbx: Cbx, clerk: str, offered: Offered) -> None:
    succeed(cbx(*PROVISION))
    succeed(cbx("tool", "add", "weather", "--description", "Rain?"))
    succeed(cbx("tool", "add", "approve", "--exec", "ask me"))
    assert offered("cbx agent show ") == {"a-1": "desk"}
    assert offered("cbx agent show b") == {}
    assert offered("cbx tool show ") == {"approve": "ask me", "weather": "Rain?"}
    assert offered("cbx agent provision x --profile c") == {"clerk": "desk"}


def test_a_profile_that_can_never_end_a_turn_causes_a_warning(cbx: Cbx, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"

    def warned(*keys: str) -> list[str]:
        path.write_text("\n".join(("name: a", *keys)))
        return cbx("profile", "import", str(path)).err.splitlines()

    ends = "must_end_with: [submit, hand_in]"
    before = "warning: profile 'a': must_end_with names"
    denied = "but allowed_tools does not: no turn can end with its call"
    absent = "register it with `cbx tool add`"
    assert warned(ends) == [f"{before} 'submit', {denied}", f"{before} 'hand_in', {denied}"]
    assert warned(ends, "allowed_tools: [submit]") == [
        f"{before} an unknown tool 'submit'; {absent}",
        f"{before} 'hand_in', {denied}",
    ]
    succeed(cbx("tool", "add", "submit"))
    assert warned(ends, "allowed_tools: null") == [f"{before} an unknown tool 'hand_in'; {absent}"]
    assert warned(ends, "allowed_tools: [submit]", "allowed_internal_tools: [hand_in]") == [
        "warning: profile 'a': no handler 'hand_in' is installed here"
    ]
    assert warned("allowed_tools: [none]", "require_result_fields: true") == []
    result = warned("require_result_fields: maybe")
    assert "require_result_fields: expected true or false, found the string 'maybe'" in result[0]


class TestProfileValidate:
    def test_valid_profiles_have_no_problems(self, offline: Cbx, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nextra: kept\n")
        files = [str(tmp_path / f"{name}.yaml") for name in ("one", "two")]
        found = offline("profile", "validate", *files, "-o", "json")
        assert (found.code, found.json()) == (0, {"valid": files, "problems": []})
        assert "warning:" in found.err
        assert "cbx ignores the unknown key 'extra'" in found.err

    def test_every_problem_in_every_file_is_reported(self, offline: Cbx, tmp_path: Path) -> None:
        for file, text in (
            ("a", "name: One\n"),
            ("b", "name: one\n"),
            ("c", "name: c\nlayout: bad\ntags: 3\n"),
        ):
            (tmp_path / f"{file}.yaml").write_text(text)
        files = [str(tmp_path / f"{file}.yaml") for file in ("a", "b", "c", "none")]
        refused = offline("profile", "validate", *files)
        assert (refused.code, refused.out) == (4, "")
        for part in (
            f"b.yaml: profile 'one' is also defined in {files[0]}\n",
            "c.yaml:2",
            "c.yaml:3",
            "no file",
        ):
            assert part in refused.err
        assert offline("profile", "validate", files[-1]).code == 3


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("agent", "show", "wirter-1"), "agent"),
        (("agent", "provision", "b", "--profile", "clrek"), "profile"),
        (("profile", "show", "Clerks"), "profile"),
        (("tool", "show", "lokup"), "tool"),
        (("tool", "remove", "lookupp", "--yes"), "tool"),
        (("render", "--agent", "writer-2"), "agent"),
        (("cost", "--agent", "writer1"), "agent"),
        (("why", "--agent", "writer-"), "agent"),
        (("dispatch", "--agent", "write-1", "-c", "{box}"), "agent"),
        (("dispatch", "--agent", "write-1", "-c", "{box}", "--dry-run"), "agent"),
        (("delegate", "--strategy", "reuse", "--ref", "writer-l", "--instruction", "Go"), "agent"),
        (("delegate", "--strategy", "new", "--ref", "clekr", "--instruction", "Go"), "profile"),
    ],
)
def test_a_mistyped_name_gets_a_suggestion_from_the_same_project(
    cbx: Cbx, clerk: str, box_of: Callable[..., str], arguments: tuple[str, ...], kind: str
) -> None:
    names = {"agent": "writer-1", "profile": "clerk", "tool": "lookup"}
    succeed(cbx("agent", "provision", names["agent"], "--profile", "clerk"))
    succeed(cbx("tool", "add", names["tool"], "--exec", "cat"))
    given = [word.format(box=box_of()) for word in arguments]
    result = cbx(*given)
    assert result.code in (3, 6)
    assert result.err.splitlines()[0].endswith(f"in project 'p'; did you mean {names[kind]!r}?")
    # Names of another project are nobody's business.
    foreign = cbx("-p", "q", *given)
    assert foreign.code in (3, 6)
    assert "did you mean" not in foreign.err
