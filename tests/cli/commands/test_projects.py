"""Two projects in one database, alike in everything that can be alike: no command ever mixes them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx, Result

CHAT = [
    {"role": "user", "content": "How much was order 118?"},
    {"role": "assistant", "content": "It was 1.10 EUR."},
]


@dataclass(frozen=True)
class Tenant:
    """A project with a conversation, a profile, a packed context, and a card and a box with known endings."""

    cbx: Cbx
    name: str
    conversation: str
    profile: str
    packed: str

    @property
    def card(self) -> str:
        return f"{self.name}-4711"

    def __call__(self, *command: str) -> Result:
        return self.cbx("-p", self.name, *command)

    def ids(self, *command: str) -> list[str]:
        return lines(self("-o", "id", *command))

    def json(self, *command: str) -> Any:
        return json.loads(succeed(self("-o", "json", *command)))


def settle(cbx: Cbx, name: str) -> Tenant:
    """Fill a project."""
    here = ("-p", name, "-o", "id")
    [conversation] = lines(cbx(*here, "card", "import", "chat.json"))
    Path("clerk.yaml").write_text(
        f"name: clerk\nworker_target: {name}\nsystem_prompt: You work for {name}.\n"
    )
    [profile] = lines(cbx(*here, "profile", "import", "clerk.yaml"))
    succeed(cbx(*here, "card", "add", "--type", "task.instruction", "--text", "same", "--id", f"{name}-4711"))
    packing = ("-a", "profile_name=clerk", "-a", "instruction=Go", "-a", f"input_box_ids={conversation}")
    [packed] = lines(cbx(*here, "pack", "-H", "delegate", *packing))
    return Tenant(cbx, name, conversation, profile, packed)


@pytest.fixture
def tenants(cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Tenant, Tenant]:
    monkeypatch.chdir(tmp_path)
    Path("chat.json").write_text(json.dumps({"id": "chat-1", "title": "Order 118", "messages": CHAT}))
    return settle(cbx, "ours"), settle(cbx, "theirs")


def test_the_same_import_creates_different_cards_and_boxes_in_each_project(
    tenants: tuple[Tenant, Tenant],
) -> None:
    ours, theirs = tenants
    assert ours.conversation != theirs.conversation
    cards = [set(one.json("box", "show", one.conversation)["card_ids"]) for one in tenants]
    assert cards[0].isdisjoint(cards[1])
    for one in tenants:
        [again] = one.json("card", "import", "chat.json")["boxes"]
        assert (again["box_id"], again["new_cards"]) == (one.conversation, 0)


def test_lists_and_searches_show_only_their_project(tenants: tuple[Tenant, Tenant]) -> None:
    for one in tenants:
        assert {card["project_id"] for card in one.json("card", "list")} == {one.name}
        assert {box["project_id"] for box in one.json("box", "list")} == {one.name}
        assert set(one.ids("box", "list")) == {one.conversation, one.packed}
        assert one.ids("box", "list", "--kind", "profile") == [one.profile]
        assert one.ids("profile", "list") == [one.profile]
        assert one.json("profile", "list")[0]["worker_target"] == one.name
        assert one.ids("card", "search", "same") == [one.card]
        assert len(one.ids("card", "search", "eur")) == 1
        assert len(one.ids("card", "list", "--limit", "0", "--deleted")) == 2 + 1 + 1 + 2


def test_a_short_id_or_name_refers_to_the_own_project(tenants: tuple[Tenant, Tenant]) -> None:
    for one in tenants:
        assert one.json("card", "show", "4711")["card_id"] == one.card
        assert one.json("profile", "show", "CLERK")["system_prompt"] == f"You work for {one.name}."
        assert one.json("box", "create", "4711")["card_ids"] == [one.card]
        assert one.json("box", "show", one.packed)["parent_ids"] == [one.conversation]


def test_items_of_the_other_project_are_not_found(tenants: tuple[Tenant, Tenant]) -> None:
    ours, theirs = tenants
    box, card = theirs.conversation, theirs.card
    before = theirs.json("box", "show", box), theirs.json("card", "list"), theirs.json("box", "list")
    packing = ("pack", "-H", "delegate", "-a", "profile_name=clerk", "-a", "instruction=Go")
    for command in (
        ("card", "show", card),
        ("card", "show", card, "--deleted"),
        ("card", "show", "theirs-4"),
        ("card", "delete", card, "--yes"),
        ("card", "export", "--box", box),
        ("box", "show", box),
        ("box", "show", box[-8:]),
        ("box", "create", card),
        ("box", "create", "--parent", box),
        ("box", "append", box, ours.card),
        ("box", "append", ours.packed, card),
        ("box", "replace", box, ours.card),
        ("box", "fork", box),
        ("box", "verify", box),
        ("box", "delete", box, "--yes"),
        ("render", "--box", box),
        ("render", "--box", ours.packed, "--box", box),
        (*packing, "-a", f"input_box_ids={box}"),
    ):
        result = ours(*command)
        assert (result.code, result.out) == (3, ""), command
        assert "in project 'ours'" in result.err
    several = ours.json("card", "show", ours.card, card)
    assert ([found["card_id"] for found in several["cards"]], several["missing_card_ids"]) == (
        [ours.card],
        [card],
    )
    several = ours.json("box", "show", ours.packed, box)
    assert (several["boxes"][0]["box_id"], several["missing_box_ids"]) == (ours.packed, [box])
    assert before == (
        theirs.json("box", "show", box),
        theirs.json("card", "list"),
        theirs.json("box", "list"),
    )


def test_a_card_of_the_other_project_is_dangling_in_a_box(tenants: tuple[Tenant, Tenant]) -> None:
    ours, theirs = tenants
    box = ours.json("box", "create", theirs.card, "--allow-dangling")["box_id"]
    shown = ours.json("box", "show", box)
    assert (shown["cards"], shown["missing_card_ids"]) == ([], [theirs.card])
    assert "same" not in ours("box", "show", box, "--full").out
    assert ours.json("render", "--box", box)["messages"] == []
    assert ours.json("card", "export", "--box", box) == {"messages": []}


def test_changes_in_one_project_never_affect_the_other(tenants: tuple[Tenant, Tenant]) -> None:
    ours, theirs = tenants
    before = theirs.json("card", "list"), theirs.json("box", "list"), theirs.json("profile", "list")
    succeed(ours("card", "delete", "4711", "--yes"))
    succeed(ours("profile", "import", "clerk.yaml"))
    succeed(ours("box", "replace", ours.packed))
    succeed(ours("box", "delete", ours.conversation, "--yes"))
    succeed(ours("card", "import", "chat.json"))
    assert before == (theirs.json("card", "list"), theirs.json("box", "list"), theirs.json("profile", "list"))


def test_the_same_box_id_is_a_separate_box_in_each_project(
    tenants: tuple[Tenant, Tenant], database: Database
) -> None:
    box = "018f2b64-0000-7000-8000-00000000cafe"
    for one in tenants:
        BoxStore(database, one.name).create([one.card], box_id=box, title=f"of {one.name}")
    for one in tenants:
        for typed in (box, "cafe", "018f2b64"):
            shown = one.json("box", "show", typed)
            assert (shown["title"], shown["card_ids"]) == (f"of {one.name}", [one.card])
    ours, theirs = tenants
    before = theirs.json("box", "show", box)
    succeed(ours("box", "append", "cafe", ours.card))
    succeed(ours("box", "replace", "cafe"))
    succeed(ours("box", "delete", "cafe", "--yes"))
    assert theirs.json("box", "show", box) == before
    assert ours("box", "show", box).code == 3


def test_an_id_of_the_other_project_is_taken_and_nothing_is_disclosed(tenants: tuple[Tenant, Tenant]) -> None:
    ours, theirs = tenants
    result = ours(
        "card", "add", "--type", "task.instruction", "--text", "secret", "--id", theirs.card, "--repair"
    )
    assert (result.code, result.out) == (5, "")
    assert result.err == (
        f"error: the card id '{theirs.card}' is taken\n"
        "hint: use another id, or pass --repair to overwrite a card of this project\n"
    )


def test_the_project_comes_from_the_option_then_the_variable_then_default(
    cbx: Cbx, monkeypatch: pytest.MonkeyPatch
) -> None:
    def project_of(*options: str) -> str:
        made = cbx(*options, "box", "create", "-o", "json")
        return str(made.json()["project_id"])

    monkeypatch.setenv("CBX_PROJECT", "from-variable")
    assert project_of("--project", "from-option") == "from-option"
    assert project_of() == "from-variable"
    monkeypatch.setenv("CBX_PROJECT", "")
    assert project_of() == "default"
    monkeypatch.delenv("CBX_PROJECT")
    assert project_of() == "default"


def test_any_printable_name_is_a_valid_project(cbx: Cbx) -> None:
    for name in ("проект 1", "p'; DROP TABLE cards; --", "100%", "_", "*", "x" * 255):
        made = cbx("-p", name, "card", "add", "--type", "x", "--text", "t", "-o", "json").json()
        assert made["project_id"] == name
        assert len(cbx("-p", name, "card", "list", "-o", "json").json()) == 1
    for name in ("", " ", "x" * 256, "a\nb"):
        assert cbx("-p", name, "card", "list").code == 2


@pytest.mark.parametrize("name", ["@me", "-x", "a\ufe0fb"])
def test_no_command_creates_a_project_with_an_invalid_name(
    cbx: Cbx, database: Database, tmp_path: Path, name: str
) -> None:
    """Names of projects are checked where a row of one is written first, whatever writes it."""
    clerk = tmp_path / "clerk.yaml"
    clerk.write_text("name: clerk")
    said = tmp_path / "said.json"
    said.write_text('[{"role": "user", "content": "hi"}]')
    writes = (
        ("project", "create"),
        ("profile", "import", str(clerk)),
        ("tool", "add", "look"),
        ("card", "add", "--type", "note", "--text", "x"),
        ("card", "import", str(said)),
        ("box", "create"),
    )
    for write in writes:
        result = cbx(f"--project={name}", *write)
        assert (result.code, result.err.splitlines()[0][:15]) == (4, "error: project:"), (write, result.err)
    held = (
        "SELECT project_id FROM public.projects UNION ALL SELECT tenant_id FROM public.cards "
        "UNION ALL SELECT tenant_id FROM public.card_boxes UNION ALL SELECT project_id FROM resource.tools "
        "UNION ALL SELECT project_id FROM resource.profiles UNION ALL SELECT project_id FROM cbx.audit"
    )
    assert database.connection.execute(held).fetchall() == []


def test_an_existing_project_with_an_invalid_name_can_be_written_to(cbx: Cbx, database: Database) -> None:
    database.connection.execute(
        "INSERT INTO public.cards (card_id, tenant_id, metadata) VALUES ('c', '@me', '{}')"
    )
    succeed(cbx("--project=@me", "card", "add", "--type", "note", "--text", "x"))
    succeed(cbx("--project=@me", "tool", "add", "look"))
    assert "@me" in succeed(cbx("project", "list"))
