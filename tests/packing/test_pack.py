"""Packing on real servers: each rule, each refusal in its exact words, one transaction, one digest.

The tests of one server share a database and a connection, since packing only ever adds to it. What a test
breaks it mends, mostly by a transaction that is rolled back.
"""

import copy
import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from itertools import chain, permutations
from typing import Any, TypeAlias

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from cardbox_cli.errors import BadRequest, CbxError, InvalidRecipe, NotFound, SchemaMissing
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Provenance, ProvenanceRule, verify
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.content import JsonContent, TextContent
from cardbox_cli.model.pairing import preview
from cardbox_cli.packing.pack import Packing, PackResult, pack_context
from cardbox_cli.packing.plan import ExcludedCard
from cardbox_cli.packing.recipe_files import recipe_from_mapping
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT, TABLES
from tests.databases import Databases

TOOL = "tool.delegate"
AGENT = "agent-1"
OTHER_PROJECT = "q"

HISTORY = "0190aaaa-0000-7000-8000-00000000000a"  # holds h1, h2, h3
NOTES = "0190bbbb-0000-7000-8000-00000000000b"  # holds n1, h2, n2
DIGITS = "12345678-1234-1234-1234-123456789012"  # holds d1; an integer can spell it
FOREIGN = "0190ffff-0000-7000-8000-00000000000f"  # of OTHER_PROJECT, holds f1
UNKNOWN = "0190eeee-0000-7000-8000-00000000000e"
ANOTHER_UNKNOWN = "0190dddd-0000-7000-8000-00000000000d"

CARDS_OF = {HISTORY: ["h1", "h2", "h3"], NOTES: ["n1", "h2", "n2"], DIGITS: ["d1"]}

Recipe: TypeAlias = dict[str, Any]
RowCounts: TypeAlias = Callable[[], dict[str, int]]
Refusal: TypeAlias = Callable[[Recipe, Mapping[str, Any]], CbxError]


@pytest.fixture(scope="module")
def target(databases: Databases) -> Iterator[Target]:
    name = databases.make()
    yield databases.target(name)
    databases.drop(name)


@pytest.fixture(scope="module")
def database(target: Target) -> Iterator[Database]:
    """Two projects: PROJECT with two profiles and three boxes, OTHER_PROJECT with one of each."""
    with Database.open_target(target) as opened:
        furnish(opened, PROJECT)
        ProfileStore(opened, OTHER_PROJECT).save(profile("outsider"), author_id="test")
        CardStore(opened, OTHER_PROJECT).add(text_card("f1"))
        BoxStore(opened, OTHER_PROJECT).create(["f1"], box_id=FOREIGN)
        yield opened


@contextmanager
def passing(database: Database) -> Iterator[None]:
    """Nothing that is done inside lasts."""
    with database.connection.transaction(force_rollback=True):
        yield


def furnish(database: Database, project_id: str) -> None:
    for name in ("researcher", "writer"):
        ProfileStore(database, project_id).save(profile(name), author_id="test")
    for card_id in sorted(set(chain(*CARDS_OF.values()))):
        CardStore(database, project_id).add(text_card(card_id))
    for box_id, card_ids in CARDS_OF.items():
        BoxStore(database, project_id).create(card_ids, box_id=box_id)


def profile(name: str) -> dict[str, Any]:
    return {"name": name, "worker_target": "worker_generic", "tags": []}


def text_card(card_id: str, **parts: Any) -> CardDraft:
    return draft_card("chat.message", f"text of {card_id}", card_id=card_id, author_id="a", **parts)


def recipe(*, allowed: list[str] | None = None, **packing: Any) -> Recipe:
    """A recipe for the profile `researcher`, with this `context_packing_config`."""
    written: Recipe = {
        "target_profile_config": {"profile_name": "researcher"},
        "context_packing_config": packing,
    }
    return written if allowed is None else {**written, "authorized_inherit_box_ids": allowed}


def packing(*arg_keys: str, **rule: Any) -> Recipe:
    """A recipe that makes a card of each of these arguments, all with the same rule."""
    return recipe(pack_arguments=[{"arg_key": arg_key, **rule} for arg_key in arg_keys])


def inheriting(*arg_keys: str, allowed: list[str] | None = None, **more: Any) -> Recipe:
    """A recipe that inherits the boxes of these arguments."""
    return recipe(inherit_context={"include_boxes_from_args": list(arg_keys), **more}, allowed=allowed)


RESULT_FIELDS = packing("result_fields", as_card_type="task.result_fields")
EVERYTHING = recipe(
    pack_arguments=[{"arg_key": "instruction"}],
    inherit_context={"include_boxes_from_args": ["boxes"], "include_parent": True},
)
EVERY_ARGUMENT = {"instruction": "Find it", "boxes": [HISTORY, NOTES]}


def packed_by(
    database: Database,
    written: Recipe,
    arguments: Mapping[str, Any],
    *,
    project_id: str = PROJECT,
    **more: Any,
) -> PackResult:
    options = {"tool_suffix": TOOL, "source_agent_id": AGENT}
    options |= {name: more.pop(name) for name in Packing.__struct_fields__ if name in more}
    packing = Packing(database, project_id, recipe_from_mapping(written), "the recipe", arguments, **options)
    return packing.pack(**more)


def box_of(packed: PackResult) -> str:
    assert packed.context_box_id is not None
    return packed.context_box_id


def new_cards(database: Database, packed: PackResult) -> list[Card]:
    """The cards that the pack made, as they are stored."""
    return CardStore(database, PROJECT).get_many([draft.card_id for draft in packed.plan.drafts]).cards


def only_new_card(database: Database, packed: PackResult) -> Card:
    (card,) = new_cards(database, packed)
    return card


def stored_content(database: Database, card: Card) -> str:
    """The content in the card's row, as JSONB prints it."""
    query = "SELECT content::text FROM public.cards WHERE card_id = %s"
    row = database.connection.execute(query, [card.card_id]).fetchone()
    assert row is not None
    return str(row[0])


# Rule 1: the target profile.


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        pytest.param({}, "researcher", id="the recipe's"),
        pytest.param({"profile_name": "writer"}, "writer", id="the argument wins"),
        pytest.param({"profile_name": " writer\n"}, "writer", id="trimmed"),
        pytest.param({"profile_name": "Writer"}, "writer", id="in any case"),
    ],
)
def test_a_pack_returns_the_box_of_the_target_profile(
    database: Database, profiles: ProfileStore, arguments: dict[str, Any], name: str
) -> None:
    packed = packed_by(database, recipe(inherit_context={"include_parent": True}), arguments)
    assert (packed.profile_name, packed.profile_box_id) == (name, profiles.get(name).profile_box_id)


# Rule 2: the card of an argument.


def text(said: str) -> str:
    return f'{{"text": {json.dumps(said, ensure_ascii=False)}, "__type__": "TextContent"}}'


def data(spelled: str) -> str:
    return f'{{"data": {spelled}, "__type__": "JsonContent"}}'


@pytest.mark.parametrize(
    ("value", "content"),
    [
        pytest.param("Find it", text("Find it"), id="string"),
        pytest.param("", text(""), id="empty string"),
        pytest.param("  two\n lines ", text("  two\n lines "), id="string not trimmed"),
        pytest.param('{"a": 1}', text('{"a": 1}'), id="string of json stays text"),
        pytest.param("查一下 🙂", text("查一下 🙂"), id="string beyond ascii"),
        pytest.param({"b": 1, "a": [None]}, data('{"a": [null], "b": 1}'), id="dict"),
        pytest.param({}, data("{}"), id="empty dict"),
        pytest.param([1, "x", True], data('[1, "x", true]'), id="list"),
        pytest.param([], data("[]"), id="empty list"),
        pytest.param(True, text("true"), id="true"),
        pytest.param(False, text("false"), id="false"),
        pytest.param(None, text("null"), id="null"),
        pytest.param(3.5, text("3.5"), id="float"),
        pytest.param(-0.0, text("-0.0"), id="negative zero"),
        pytest.param(0, text("0"), id="zero"),
        pytest.param(-7, text("-7"), id="integer"),
        pytest.param(10**30, text("1" + "0" * 30), id="integer beyond 64 bits"),
        pytest.param(Decimal("1.10"), text("1.10"), id="1.10"),
        pytest.param(Decimal("1e400"), text("1E+400"), id="1e400"),
        pytest.param({"n": Decimal("1.10")}, data('{"n": 1.10}'), id="1.10 in a dict"),
        pytest.param([Decimal("1e400")], data(f"[1{'0' * 400}]"), id="1e400 in a list"),
        pytest.param([-(10**30)], data(f"[-1{'0' * 30}]"), id="integer beyond 64 bits in a list"),
    ],
)
def test_an_argument_becomes_text_or_json_content(database: Database, value: object, content: str) -> None:
    card = only_new_card(database, packed_by(database, packing("a"), {"a": value}))
    assert stored_content(database, card) == content


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        pytest.param(
            [{"name": "cause", "description": "Why"}, {"name": "fix", "description": ""}],
            '[{"name": "cause", "description": "Why"}, {"name": "fix", "description": ""}]',
            id="fields in order",
        ),
        pytest.param([], "[]", id="none"),
        pytest.param(
            [{"name": "n", "description": "d", "type": "string"}],
            '[{"name": "n", "description": "d"}]',
            id="more than name and description",
        ),
    ],
)
def test_result_fields_become_a_fields_schema(database: Database, value: object, fields: str) -> None:
    card = only_new_card(database, packed_by(database, RESULT_FIELDS, {"result_fields": value}))
    assert card.type == "task.result_fields"
    assert stored_content(database, card) == f'{{"fields": {fields}, "__type__": "FieldsSchemaContent"}}'


def test_a_packed_argument_is_a_user_instruction_by_default(database: Database) -> None:
    card = only_new_card(database, packed_by(database, packing("a"), {"a": "x"}))
    assert (card.type, card.role) == ("task.instruction", "user")


def test_the_default_role_is_user_for_every_card_type(database: Database) -> None:
    card = only_new_card(database, packed_by(database, packing("a", as_card_type="todo.item"), {"a": "x"}))
    assert (card.type, card.role) == ("todo.item", "user")


def test_the_metadata_of_the_rule_cannot_override_author_and_project(database: Database) -> None:
    metadata = {"role": "system", "tags": ["a", {"b": None}], "author_id": "forged", "project_id": "forged"}
    card = only_new_card(database, packed_by(database, packing("a", card_metadata=metadata), {"a": "x"}))
    created_at = card.metadata["created_at"]
    assert card.metadata == {
        "type": "task.instruction",
        "role": "system",
        "tags": ["a", {"b": None}],
        "author_id": TOOL,
        "project_id": PROJECT,
        "created_at": created_at,
    }
    assert created_at == card.created_at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def test_a_new_card_id_is_a_uuid7_in_hex(database: Database) -> None:
    card = only_new_card(database, packed_by(database, packing("a"), {"a": "x"}))
    assert (uuid.UUID(card.card_id).version, uuid.UUID(card.card_id).hex) == (7, card.card_id)


def test_a_missing_argument_adds_no_card(database: Database, row_counts: RowCounts) -> None:
    before = row_counts()["public.cards"]
    packed = packed_by(database, packing("a", "b"), {"a": "x"})
    assert len(packed.plan.cards) == 1
    assert row_counts()["public.cards"] == before + 1


def test_arguments_are_packed_in_the_order_of_the_rules(database: Database) -> None:
    packed = packed_by(database, packing("b", "absent", "a"), {"a": "first", "b": "second"})
    contents = [card.content for card in new_cards(database, packed)]
    assert contents == [TextContent("second"), TextContent("first")]


def test_the_recipe_and_arguments_of_the_caller_are_unchanged(database: Database) -> None:
    written = recipe(
        pack_arguments=[{"arg_key": "a", "card_metadata": {"tags": ["x"]}}],
        inherit_context={"include_boxes_from_args": ["boxes"]},
    )
    arguments = {"a": {"deep": ["value"]}, "boxes": [HISTORY.upper()], "profile_name": " writer "}
    written_before, arguments_before = copy.deepcopy((written, arguments))
    pack_context(PROJECT, TOOL, AGENT, arguments, written, conn=database.connection)
    assert (written, arguments) == (written_before, arguments_before)


def test_declared_defaults_are_packed(database: Database) -> None:
    declared = {"arguments": {"a": {"default": {"limit": 3}}, "boxes": {"default": HISTORY}}}
    written = recipe(
        pack_arguments=[{"arg_key": "a"}], inherit_context={"include_boxes_from_args": ["boxes"]}
    )
    packed = packed_by(database, {**written, **declared}, {})
    assert packed.plan.parent_ids == [HISTORY]
    assert only_new_card(database, packed).content == JsonContent({"limit": 3})


# Rule 3: inheriting boxes.


@pytest.mark.parametrize(
    ("arguments", "card_ids", "parent_ids"),
    [
        pytest.param({"b": NOTES}, ["n1", "h2", "n2"], [NOTES], id="absent"),
        pytest.param({"a": [], "b": NOTES}, ["n1", "h2", "n2"], [NOTES], id="no box"),
        pytest.param({"a": HISTORY}, ["h1", "h2", "h3"], [HISTORY], id="one box"),
        pytest.param({"a": [HISTORY]}, ["h1", "h2", "h3"], [HISTORY], id="a list of one"),
        pytest.param(
            {"a": [HISTORY, NOTES]},
            ["h1", "h2", "h3", "n1", "n2"],
            [HISTORY, NOTES],
            id="the first place wins",
        ),
        pytest.param(
            {"a": [NOTES, HISTORY]}, ["n1", "h2", "n2", "h1", "h3"], [NOTES, HISTORY], id="the list's order"
        ),
        pytest.param(
            {"b": HISTORY, "a": NOTES},
            ["n1", "h2", "n2", "h1", "h3"],
            [NOTES, HISTORY],
            id="the recipe's order",
        ),
        pytest.param({"a": [HISTORY, HISTORY]}, ["h1", "h2", "h3"], [HISTORY], id="a box twice"),
        pytest.param(
            {"a": HISTORY, "b": [HISTORY.upper()]}, ["h1", "h2", "h3"], [HISTORY], id="a box spelled twice"
        ),
        pytest.param({"a": HISTORY.replace("-", "")}, ["h1", "h2", "h3"], [HISTORY], id="no dashes"),
        pytest.param({"a": f" {HISTORY} "}, ["h1", "h2", "h3"], [HISTORY], id="space around"),
        pytest.param({"a": int(DIGITS.replace("-", ""))}, ["d1"], [DIGITS], id="an integer"),
        pytest.param({"a": [int(DIGITS.replace("-", ""))]}, ["d1"], [DIGITS], id="a list of an integer"),
    ],
)
def test_cards_and_parents_are_inherited_from_the_named_boxes(
    database: Database,
    boxes: BoxStore,
    arguments: dict[str, Any],
    card_ids: list[str],
    parent_ids: list[str],
) -> None:
    box = boxes.get(box_of(packed_by(database, inheriting("a", "b"), arguments)))
    assert (box.card_ids, box.parent_ids) == (card_ids, parent_ids)


def test_a_repeated_card_in_a_box_is_inherited_once(database: Database, boxes: BoxStore) -> None:
    twice = boxes.create(["h2", "h1", "h2", "h3", "h1"])
    packed = packed_by(database, inheriting("a"), {"a": twice.box_id})
    assert packed.plan.card_ids == ["h2", "h1", "h3"]


def test_an_empty_box_is_a_parent(database: Database, boxes: BoxStore) -> None:
    empty = boxes.create([])
    packed = packed_by(database, inheriting("a"), {"a": [empty.box_id, HISTORY]})
    assert packed.plan.card_ids == ["h1", "h2", "h3"]
    assert packed.plan.parent_ids == [empty.box_id, HISTORY]


@pytest.mark.parametrize("with_digest", [True, False], ids=["digest", "no digest"])
def test_boxes_with_lost_cards_are_inherited_only_if_allowed(
    database: Database, cards: CardStore, boxes: BoxStore, with_digest: bool
) -> None:
    with passing(database):
        cards.add(text_card("brief", ttl_seconds=60))
        lost = {"no-such-card": "no such card", "h2": "the card was deleted", "brief": "the card has expired"}
        made = {
            card_id: boxes.create(["h1", card_id], allow_dangling=True).box_id
            for card_id in ("no-such-card", "brief")
        }
        made["h2"] = boxes.create(["h1", "h2"]).box_id
        cards.delete(["h2"])
        database.connection.execute("SET LOCAL cbx.clock_offset = '1 hour'")
        for card_id, reason in lost.items():
            with pytest.raises(NotFound) as caught:
                packed_by(database, inheriting("a"), {"a": made[card_id]}, with_digest=with_digest)
            rule = f"inherit_context a (box {made[card_id]})"
            assert caught.value.message == f"{rule}: card {card_id!r}: {reason}"
            assert caught.value.details == {"missing_card_ids": [card_id]}
        with pytest.raises(NotFound, match=r"card 'no-such-card': no such card; and 2 more$"):
            packed_by(database, inheriting("a"), {"a": list(made.values())}, with_digest=with_digest)


def test_references_to_missing_cards_are_inherited_and_reported(
    database: Database, cards: CardStore, boxes: BoxStore
) -> None:
    with passing(database):
        cards.add(text_card("brief", ttl_seconds=60))
        box = boxes.create(["h1", "no-such-card", "h2", "brief"], allow_dangling=True)
        cards.delete(["h2"])
        database.connection.execute("SET LOCAL cbx.clock_offset = '1 hour'")
        packed = packed_by(database, inheriting("a"), {"a": box.box_id}, allow_dangling=True)
        view = boxes.view(box_of(packed))
    assert [(slot.card_id, slot.state) for slot in view.slots] == [
        ("h1", "present"),
        ("no-such-card", "dangling"),
        ("h2", "deleted"),
        ("brief", "expired"),
    ]
    assert packed.digest == view.digest


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=10), max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_inherited_ids_are_deduplicated_in_order(
    database: Database, boxes: BoxStore, id_lists: list[list[str]]
) -> None:
    parents = [boxes.create(card_ids, allow_dangling=True).box_id for card_ids in id_lists]
    written = inheriting("a", include_parent=True)
    packed = packed_by(database, written, {"a": parents}, allow_dangling=True)
    assert boxes.get(box_of(packed)).card_ids[:-1] == list(dict.fromkeys(chain(*id_lists)))


@pytest.mark.parametrize(
    "asked", [HISTORY, HISTORY.upper(), HISTORY.replace("-", "")], ids=["same", "upper case", "no dashes"]
)
@pytest.mark.parametrize(
    "allowed", [HISTORY, HISTORY.upper(), HISTORY.replace("-", "")], ids=["same", "upper case", "no dashes"]
)
def test_an_authorized_box_id_matches_in_any_uuid_format(
    database: Database, allowed: str, asked: str
) -> None:
    packed = packed_by(database, inheriting("a", allowed=[NOTES, allowed]), {"a": asked})
    assert packed.plan.parent_ids == [HISTORY]


def test_an_empty_allow_list_accepts_a_context_without_boxes(database: Database) -> None:
    written = inheriting("a", allowed=[], include_parent=True)
    assert packed_by(database, written, {}).plan.parent_ids == []


# Rule 4 and the order of the whole.


def test_the_parent_pointer_names_the_calling_agent(database: Database) -> None:
    card = only_new_card(database, packed_by(database, recipe(inherit_context={"include_parent": True}), {}))
    assert (card.type, card.role) == ("meta.parent_pointer", "system")
    assert stored_content(database, card) == data(f'{{"parent_agent_id": "{AGENT}"}}')


def steps_of(database: Database, packed: PackResult) -> list[str]:
    types = {card.card_id: card.type for card in new_cards(database, packed)}
    return [types.get(card_id, card_id) for card_id in packed.plan.card_ids]


INHERITED = ["h1", "h2", "h3", "n1", "n2"]


def test_arguments_come_first_and_the_parent_pointer_last_by_default(database: Database) -> None:
    packed = packed_by(database, EVERYTHING, EVERY_ARGUMENT)
    assert steps_of(database, packed) == ["task.instruction", *INHERITED, "meta.parent_pointer"]


@pytest.mark.parametrize(
    "order", list(permutations(["pack_arguments", "inherit_context", "include_parent"])), ids="-".join
)
def test_a_recipe_can_change_the_order_of_the_steps(database: Database, order: Sequence[str]) -> None:
    brought = {
        "pack_arguments": ["task.instruction"],
        "inherit_context": INHERITED,
        "include_parent": ["meta.parent_pointer"],
    }
    written = copy.deepcopy(EVERYTHING)
    written["context_packing_config"]["order"] = list(order)
    packed = packed_by(database, written, EVERY_ARGUMENT)
    assert steps_of(database, packed) == [each for step in order for each in brought[step]]


# Rule 5: the box.


def test_a_pack_returns_the_context_box_profile_box_and_card_ids(
    database: Database, boxes: BoxStore, profiles: ProfileStore
) -> None:
    context_box_id, profile_box_id, card_ids = pack_context(
        PROJECT, TOOL, AGENT, EVERY_ARGUMENT, EVERYTHING, conn=database.connection
    )
    box = boxes.get(context_box_id)
    assert box.card_ids == card_ids
    assert card_ids[1:-1] == INHERITED
    assert box.parent_ids == [HISTORY, NOTES]
    assert profile_box_id == profiles.get("researcher").profile_box_id


def test_a_pack_writes_only_its_cards_and_one_box(database: Database, row_counts: RowCounts) -> None:
    before = row_counts()
    packed_by(database, EVERYTHING, EVERY_ARGUMENT)
    made = {table: rows - before[table] for table, rows in row_counts().items()}
    assert {table: rows for table, rows in made.items() if rows} == {
        "public.cards": 2,
        "public.card_boxes": 1,
        "cbx.box_info": 1,
    }


def test_inherited_boxes_are_unchanged(database: Database, boxes: BoxStore) -> None:
    before = [boxes.get(box_id) for box_id in CARDS_OF]
    packed_by(database, EVERYTHING, EVERY_ARGUMENT)
    assert [boxes.get(box_id) for box_id in CARDS_OF] == before


def test_the_box_stores_the_provenance_of_each_card(database: Database, boxes: BoxStore) -> None:
    packed = packed_by(database, EVERYTHING, EVERY_ARGUMENT)
    assert boxes.get(box_of(packed)).title == "the recipe for researcher"
    assert boxes.provenance(box_of(packed)) == Provenance(
        recipe="the recipe",
        recipe_digest=recipe_from_mapping(EVERYTHING).digest(),
        digest=packed.digest,
        rules=[
            ProvenanceRule("pack_arguments[0] instruction", 1),
            ProvenanceRule(f"inherit_context boxes (box {HISTORY})", 3),
            ProvenanceRule(f"inherit_context boxes (box {NOTES})", 2),
            ProvenanceRule("include_parent", 1),
        ],
    )


def test_a_database_without_the_cbx_schema_gets_no_provenance(database: Database) -> None:
    with passing(database):
        database.connection.execute("DROP SCHEMA cbx CASCADE")
        context_box_id, _, card_ids = pack_context(
            PROJECT, TOOL, AGENT, EVERY_ARGUMENT, EVERYTHING, conn=database.connection
        )
        boxes = BoxStore(Database.adopt(database.connection), PROJECT)
        assert boxes.get(context_box_id).card_ids == card_ids
        assert boxes.provenance(context_box_id) is None


# Limits of what is inherited.


@pytest.fixture
def talk(cards: CardStore, boxes: BoxStore) -> str:
    """A box: a request, a call with two results, an answer of some 80 tokens, and thanks."""
    calls = [{"id": call_id, "type": "function"} for call_id in ("c1", "c2")]
    drafts = [
        draft_card("task.instruction", "ask", card_id="ask"),
        draft_card("agent.thought", "", card_id="call", tool_calls=calls),
        draft_card("tool.result", "one", card_id="result1", tool_call_id="c1"),
        draft_card("chat.message", "meanwhile", card_id="aside"),
        draft_card("tool.result", "two", card_id="result2", tool_call_id="c2"),
        draft_card("task.deliverable", "x" * 400, card_id="answer"),
        draft_card("chat.message", "thanks", card_id="thanks"),
    ]
    for draft in drafts:
        cards.add(draft)
    return boxes.create([draft.card_id for draft in drafts]).box_id


EXCHANGE = ["call", "result1", "result2"]


@pytest.mark.parametrize(
    ("limits", "kept", "left_out"),
    [
        pytest.param(
            {"include_card_types": ["task.instruction", "task.deliverable"]},
            ["ask", "answer"],
            {
                **dict.fromkeys(EXCHANGE, "type agent.thought is not included (with its tool call)"),
                **dict.fromkeys(["aside", "thanks"], "type chat.message is not included"),
            },
            id="include_card_types",
        ),
        pytest.param(
            {"exclude_card_types": ["chat.message", "tool.result"]},
            ["ask", "answer"],
            {
                **dict.fromkeys(EXCHANGE, "type tool.result is excluded (with its tool call)"),
                **dict.fromkeys(["aside", "thanks"], "type chat.message is excluded"),
            },
            id="exclude_card_types",
        ),
        pytest.param({"max_cards": 7}, ["ask", "call", "result1", "aside", "result2", "answer", "thanks"], {},
                     id="max_cards, all fit"),
        pytest.param(
            {"max_cards": 6},
            ["call", "result1", "aside", "result2", "answer", "thanks"],
            {"ask": "beyond max_cards 6"},
            id="max_cards, the exchange stays",
        ),
        pytest.param(
            {"max_cards": 5},
            ["aside", "answer", "thanks"],
            dict.fromkeys(["ask", *EXCHANGE], "beyond max_cards 5"),
            id="max_cards, the exchange goes",
        ),
        pytest.param(
            {"max_tokens": 80},
            ["thanks"],
            dict.fromkeys(["ask", *EXCHANGE, "aside", "answer"], "beyond max_tokens 80"),
            id="max_tokens",
        ),
        pytest.param(
            {"max_tokens": 81},
            ["answer", "thanks"],
            dict.fromkeys(["ask", *EXCHANGE, "aside"], "beyond max_tokens 81"),
            id="max_tokens, one more",
        ),
    ],
)  # fmt: skip
def test_limits_leave_out_inherited_cards_with_a_reason(
    database: Database,
    boxes: BoxStore,
    talk: str,
    limits: dict[str, Any],
    kept: list[str],
    left_out: dict[str, str],
) -> None:
    packed = packed_by(database, inheriting("a", **limits), {"a": talk})
    box = boxes.get(box_of(packed))
    assert (box.card_ids, box.parent_ids) == (kept, [talk])
    rule = f"inherit_context a (box {talk})"
    assert packed.plan.left_out == [
        ExcludedCard(card_id=card_id, rule=rule, reason=left_out[card_id])
        for card_id in boxes.get(talk).card_ids
        if card_id in left_out
    ]


def test_limits_count_only_inherited_cards(database: Database) -> None:
    written = copy.deepcopy(EVERYTHING)
    written["context_packing_config"]["inherit_context"]["max_cards"] = 1
    packed = packed_by(database, written, EVERY_ARGUMENT)
    assert steps_of(database, packed) == ["task.instruction", "n2", "meta.parent_pointer"]


def test_limits_leave_out_missing_cards(database: Database, cards: CardStore, boxes: BoxStore) -> None:
    box = boxes.create(["h1", "no-such-card", "h2"], allow_dangling=True)
    with passing(database):
        cards.delete(["h1"])
        packed = packed_by(database, inheriting("a", max_cards=9), {"a": box.box_id})
    assert packed.plan.card_ids == ["h2"]
    assert [(each.card_id, each.reason) for each in packed.plan.left_out] == [
        ("h1", "no such card"),
        ("no-such-card", "no such card"),
    ]


# Boxes that only cbx reads.


@pytest.fixture(scope="module")
def internal_boxes(database: Database) -> dict[str, str]:
    """A box of each kind that cbx makes for itself."""
    boxes, cards = BoxStore(database, PROJECT), CardStore(database, PROJECT)
    for card_id, card_type in (
        ("prompt", "sys.rendered_prompt"),
        ("tools", "sys.tools"),
        ("layer", "context.layer"),
    ):
        cards.add(draft_card(card_type, "text", card_id=card_id, author_id="a"))
    profiles = ProfileStore(database, PROJECT)
    earlier = profiles.save(profile("changing"), author_id="test").profile_box_id
    changed = profiles.save({**profile("changing"), "tags": ["new"]}, author_id="test").profile_box_id
    return {
        "profile": changed,
        "earlier version of a profile": earlier,
        "snapshots": boxes.create(["prompt", "tools", "layer"]).box_id,
        "request": boxes.create(["prompt", "h1", "h2"], title="request of step_1").box_id,
    }


INTERNAL = {
    "profile": "is the box of a profile and has no conversation",
    "earlier version of a profile": "is the box of a profile and has no conversation",
    "snapshots": "is a snapshot of the request of a step",
    "request": "is a snapshot of the request of a step",
}


@pytest.mark.parametrize("kind", INTERNAL)
def test_internal_boxes_are_inherited_only_if_the_recipe_allows_it(
    database: Database,
    boxes: BoxStore,
    internal_boxes: dict[str, str],
    kind: str,
) -> None:
    box_id = internal_boxes[kind]
    for arguments in ({"a": box_id}, {"a": [HISTORY, box_id]}, {"a": box_id.upper()}):
        with pytest.raises(BadRequest) as caught:
            packed_by(database, inheriting("a"), arguments)
        assert caught.value.message == f"argument 'a': box {box_id} {INTERNAL[kind]}"
    allowing = {**inheriting("a"), "allow_internal_boxes": True}
    assert packed_by(database, allowing, {"a": box_id}).plan.card_ids == boxes.get(box_id).card_ids


def test_a_database_without_titles_refuses_internal_boxes(
    database: Database, internal_boxes: dict[str, str]
) -> None:
    with passing(database):
        database.connection.execute("DROP SCHEMA cbx CASCADE")
        for kind in ("profile", "snapshots"):
            with pytest.raises(BadRequest, match=INTERNAL[kind]):
                packed_by(Database.adopt(database.connection), inheriting("a"), {"a": internal_boxes[kind]})


def test_an_internal_box_is_refused_for_every_argument_that_is_a_box(
    database: Database, internal_boxes: dict[str, str]
) -> None:
    declared = {"arguments": {"box": {"type": "box_id"}, "boxes": {"type": "box_ids"}, "note": {}}}
    written = {**packing("box", "boxes", "note"), **declared}
    for arguments in ({"box": internal_boxes["profile"]}, {"boxes": [HISTORY, internal_boxes["request"]]}):
        with pytest.raises(BadRequest, match=r"^argument '(box|boxes)': box .* is "):
            packed_by(database, written, arguments)
    named = {"note": internal_boxes["profile"], "box": "00000000-0000-4000-8000-00000000000f"}
    assert len(packed_by(database, written, named).plan.cards) == 2


def test_a_conversation_that_begins_with_internal_cards_is_inherited(
    database: Database, boxes: BoxStore, internal_boxes: dict[str, str]
) -> None:
    begun = boxes.create(["prompt", "tools", "h1"])
    assert packed_by(database, inheriting("a"), {"a": begun.box_id}).plan.card_ids == [
        "prompt",
        "tools",
        "h1",
    ]


# Contexts that would lack what was asked for.


def test_a_pack_without_a_card_is_refused(database: Database, boxes: BoxStore, refusal: Refusal) -> None:
    absent = refusal(packing("a", "b"), {"unused": "x"})
    assert absent.message.endswith("packs no card: no value for 'a', 'b'")
    assert absent.exit_code == 4
    empty = boxes.create([]).box_id
    for written, arguments in (
        (recipe(), {}),
        (inheriting("a"), {"a": []}),
        (inheriting("a"), {"a": empty}),
        (inheriting("a", include_card_types=["tool.result"]), {"a": HISTORY}),
    ):
        assert refusal(written, arguments).message.endswith("packs no card")


@pytest.mark.parametrize(
    ("inherit", "value", "reason"),
    [
        ({}, [], "its boxes are empty"),
        ({}, "empty", "its boxes are empty"),
        ({"include_card_types": ["tool.result"]}, HISTORY, "type chat.message is not included"),
        ({"max_tokens": 1}, HISTORY, "beyond max_tokens 1"),
    ],
    ids=["no box", "an empty box", "types", "tokens"],
)
def test_a_pack_that_drops_a_required_argument_is_refused(
    boxes: BoxStore, refusal: Refusal, inherit: dict[str, Any], value: Any, reason: str
) -> None:
    written = {
        **recipe(
            pack_arguments=[{"arg_key": "note"}],
            inherit_context={"include_boxes_from_args": ["talk"], **inherit},
        ),
        "arguments": {"talk": {"type": "box_ids", "required": True}, "note": {}},
    }
    talk = boxes.create([]).box_id if value == "empty" else value
    error = refusal(written, {"talk": talk, "note": "n"})
    assert (error.exit_code, error.message.partition(": ")[2]) == (4, reason)
    assert error.message.startswith("argument 'talk' is required, but recipe ")


def test_a_required_box_whose_cards_another_argument_brings_is_packed(database: Database) -> None:
    written = {
        **inheriting("first", "second"),
        "arguments": {name: {"type": "box_id", "required": True} for name in ("first", "second")},
    }
    packed = packed_by(database, written, {"first": HISTORY, "second": HISTORY})
    assert packed.plan.card_ids == ["h1", "h2", "h3"]


def test_a_missing_handover_is_a_bad_request(database: Database) -> None:
    with pytest.raises(BadRequest, match=r"^handover is missing$"):
        pack_context(PROJECT, TOOL, AGENT, {}, None, conn=database.connection)  # type: ignore[arg-type]


# Refusals. Each leaves every table as it was, and the connection free for the next.


@pytest.fixture
def refusal(database: Database, row_counts: RowCounts) -> Callable[[Recipe, Mapping[str, Any]], CbxError]:
    def refused(written: Recipe, arguments: Mapping[str, Any]) -> CbxError:
        before = row_counts()
        with pytest.raises(CbxError) as caught:
            pack_context(PROJECT, TOOL, AGENT, arguments, written, conn=database.connection)
        assert row_counts() == before
        assert database.connection.info.transaction_status is TransactionStatus.IDLE
        return caught.value

    return refused


def test_the_row_count_covers_every_table(row_counts: RowCounts) -> None:
    assert list(row_counts()) == sorted(TABLES)


FOR_NOBODY: Recipe = {"context_packing_config": {}}
FOR_UNKNOWN: Recipe = {**FOR_NOBODY, "target_profile_config": {"profile_name": "nobody"}}


@pytest.mark.parametrize(
    ("written", "arguments", "kind", "message"),
    [
        pytest.param(FOR_NOBODY, {}, BadRequest, "handover failed: profile_name is missing", id="missing"),
        pytest.param(FOR_UNKNOWN, {}, NotFound, "no profile 'nobody' in project 'p'", id="unknown in recipe"),
        pytest.param(recipe(), {"profile_name": "nobody"}, NotFound, "no profile 'nobody' in project 'p'",
                     id="unknown in arguments"),
        pytest.param(recipe(), {"profile_name": " nobody "}, NotFound, "no profile 'nobody' in project 'p'",
                     id="unknown after trimming"),
        pytest.param(recipe(), {"profile_name": "outsider"}, NotFound, "no profile 'outsider' in project 'p'",
                     id="of another project"),
        pytest.param(FOR_NOBODY, {"profile_name": " "}, BadRequest, "handover failed: profile_name is missing",
                     id="blank"),
        pytest.param(recipe(), {"profile_name": None}, BadRequest,
                     "argument 'profile_name' must be a string, not null", id="null"),
        pytest.param(recipe(), {"profile_name": True}, BadRequest,
                     "argument 'profile_name' must be a string, not a boolean", id="a boolean"),
        pytest.param(recipe(), {"profile_name": 7}, BadRequest,
                     "argument 'profile_name' must be a string, not a number", id="a number"),
        pytest.param(recipe(), {"profile_name": ["researcher"]}, BadRequest,
                     "argument 'profile_name' must be a string, not a list", id="a list"),
        pytest.param(recipe(), {"profile_name": {"name": "researcher"}}, BadRequest,
                     "argument 'profile_name' must be a string, not an object", id="an object"),
        pytest.param(recipe(), {"profile_name": "res\0earcher"}, BadRequest,
                     "argument 'profile_name': holds a NUL character at offset 3", id="NUL"),
        pytest.param(recipe(), {"profile_name": "\ud800"}, BadRequest,
                     "argument 'profile_name': holds a lone surrogate at offset 0", id="lone surrogate"),
    ],
)  # fmt: skip
def test_an_invalid_or_unknown_profile_is_refused(
    refusal: Refusal, written: Recipe, arguments: dict[str, Any], kind: type[CbxError], message: str
) -> None:
    error = refusal(written, arguments)
    assert (type(error), error.message) == (kind, message)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("cause", "must be a list of objects with name and description, not a string"),
        (None, "must be a list of objects with name and description, not null"),
        (True, "must be a list of objects with name and description, not a boolean"),
        (3, "must be a list of objects with name and description, not a number"),
        ({"name": "n", "description": "d"}, "must be a list of objects with name and description, not an object"),
        (["cause"], "[0] must be an object with name and description, not a string"),
        ([None], "[0] must be an object with name and description, not null"),
        ([[]], "[0] must be an object with name and description, not a list"),
        ([{}], "[0] needs 'name' as a string"),
        ([{"description": "d"}], "[0] needs 'name' as a string"),
        ([{"name": "n"}], "[0] needs 'description' as a string"),
        ([{"name": 5, "description": "d"}], "[0] needs 'name' as a string"),
        ([{"name": "n", "description": None}], "[0] needs 'description' as a string"),
        ([{"name": " ", "description": "d"}], "[0] needs a non-empty 'name'"),
        ([{"name": "n", "description": "d"}, {"name": "m"}], "[1] needs 'description' as a string"),
    ],
)  # fmt: skip
def test_invalid_result_fields_are_refused(refusal: Refusal, value: object, what: str) -> None:
    error = refusal(RESULT_FIELDS, {"result_fields": value})
    assert (type(error), error.message) == (BadRequest, f"argument 'result_fields': {what}")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        pytest.param("nul\0", ": holds a NUL character at offset 3", id="NUL"),
        pytest.param("\ud83d", ": holds a lone surrogate at offset 0", id="lone surrogate"),
        pytest.param({"k": ["\0"]}, ".k[0]: holds a NUL character at offset 0", id="NUL inside"),
        pytest.param({"k\0": 1}, r".'k\x00': holds a NUL character at offset 1", id="NUL in a key"),
        pytest.param(float("nan"), ": is nan, which JSON cannot represent", id="NaN"),
        pytest.param([float("-inf")], "[0]: is -inf, which JSON cannot represent", id="-Infinity"),
        pytest.param(Decimal("Infinity"), ": is Infinity, which JSON cannot represent", id="Decimal infinity"),
        pytest.param(Decimal("1e131072"), ": is a number of more than 1000 digits, written out without an exponent", id="too large a number"),
        pytest.param(Decimal("1e-16384"), ": is a number of more than 1000 digits, written out without an exponent", id="too fine a number"),
        pytest.param({"k": {1: 2}}, ".k: has the key 1, but JSON keys must be strings", id="a key that is no string"),
        pytest.param((1, 2), ": is a tuple, which is not a JSON value", id="a tuple"),
        pytest.param(b"raw", ": is a bytes, which is not a JSON value", id="bytes"),
        pytest.param(uuid.UUID(HISTORY), ": is a UUID, which is not a JSON value", id="a UUID"),
        pytest.param([{1}], "[0]: is a set, which is not a JSON value", id="a set"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_stored_is_refused(refusal: Refusal, value: object, what: str) -> None:
    error = refusal(packing("first", "a"), {"first": "x", "a": value})
    assert (type(error), error.message) == (BadRequest, f"argument 'a'{what}")


def test_the_size_of_expanded_numbers_is_limited_over_all_arguments(refusal: Refusal) -> None:
    half = [Decimal("1e999")] * 600
    error = refusal(packing("first", "a"), {"first": half, "a": half})
    assert type(error) is BadRequest
    assert error.message.startswith("arguments.a[406]: makes the numbers of the value grow by more than")


def test_an_unused_argument_is_not_validated(database: Database) -> None:
    assert len(packed_by(database, packing("a"), {"a": 1, "unused": float("nan")}).plan.cards) == 1


def test_a_profile_with_a_missing_box_is_refused(database: Database, profiles: ProfileStore) -> None:
    lost = profiles.get("researcher").profile_box_id
    with database.connection.transaction(force_rollback=True):
        database.connection.execute("DELETE FROM public.card_boxes WHERE box_id = %s", [lost])
        with pytest.raises(NotFound) as caught:
            pack_context(PROJECT, TOOL, AGENT, {}, recipe(), conn=database.connection)
    assert caught.value.message == f"the box {lost!r} of profile 'researcher' is gone"


def test_result_fields_with_a_nul_character_are_refused(refusal: Refusal) -> None:
    error = refusal(RESULT_FIELDS, {"result_fields": [{"name": "n\0", "description": "d"}]})
    assert (type(error), error.message) == (
        BadRequest,
        "argument 'result_fields'[0].name: holds a NUL character at offset 1",
    )


RULES = "handover: context_packing_config.pack_arguments"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        pytest.param(recipe(pack_arguments=["instruction"]),
                     f"{RULES}[0]: expected a mapping, found the string 'instruction'", id="a string"),
        pytest.param(recipe(pack_arguments=[{"arg_key": "a"}, None]),
                     f"{RULES}[1]: expected a mapping, found null", id="null"),
        pytest.param(recipe(pack_arguments=[["arg_key", "a"]]),
                     f"{RULES}[0]: expected a mapping, found a list", id="a list"),
        pytest.param(recipe(pack_arguments=[3]),
                     f"{RULES}[0]: expected a mapping, found the number 3", id="a number"),
        pytest.param(recipe(pack_arguments=[{"arg_kye": "a"}]),
                     f"{RULES}[0].arg_kye: unknown key; did you mean 'arg_key'?", id="a rule's slip"),
        pytest.param({**recipe(), "authorized_inherit_boxes": [HISTORY]},
                     "handover: authorized_inherit_boxes: unknown key; did you mean "
                     "'authorized_inherit_box_ids'?", id="an allow-list that would not hold"),
        pytest.param({**recipe(), "authorized_inherit_box_ids": None},
                     "handover: authorized_inherit_box_ids: is empty; set a value or remove the key",
                     id="an allow-list of nothing"),
        pytest.param(recipe(pack_arguments=[7, {}]),
                     "handover: 2 problems\n"
                     f"{RULES}[0]: expected a mapping, found the number 7\n"
                     f"{RULES}[1]: the key 'arg_key' is missing", id="all at once"),
    ],
)  # fmt: skip
def test_an_invalid_recipe_is_refused(refusal: Refusal, written: Recipe, message: str) -> None:
    error = refusal(written, {"a": "x", "instruction": "x"})
    assert (type(error), error.message) == (InvalidRecipe, message)


DECLARED: Recipe = {
    **packing("a"),
    "arguments": {
        "a": {"required": True, "type": "string"},
        "limit": {"type": "integer"},
        "boxes": {"type": "box_ids"},
    },
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({}, "argument 'a' is missing", id="missing"),
        pytest.param({"a": 5}, "argument 'a': expected a string, found the number 5", id="ill-typed"),
        pytest.param({"a": "x", "limits": 3}, "unknown argument 'limits'; did you mean 'limit'?", id="unknown"),
        pytest.param({"a": "x", "boxes": [HISTORY, None]},
                     "argument 'boxes': expected a box id or a list of box ids, found a list with null",
                     id="ill-typed item"),
        pytest.param({"limits": 3, "limit": "x"},
                     "3 problems with the arguments\nunknown argument 'limits'; did you mean 'limit'?\n"
                     "argument 'a' is missing\nargument 'limit': expected an integer, found the string 'x'",
                     id="all at once"),
    ],
)  # fmt: skip
def test_an_argument_that_violates_its_declaration_is_refused(
    refusal: Refusal, arguments: dict[str, Any], message: str
) -> None:
    error = refusal(DECLARED, arguments)
    assert (type(error), error.message) == (BadRequest, message)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        pytest.param(None, "argument 'b' is null", id="null"),
        pytest.param(True, "argument 'b' is a boolean", id="true"),
        pytest.param(False, "argument 'b' is a boolean", id="false"),
        pytest.param(1.5, "argument 'b' is a number", id="a float"),
        pytest.param("", "argument 'b' is an empty string", id="an empty string"),
        pytest.param(" \t", "argument 'b' is an empty string", id="a blank string"),
        pytest.param({}, "argument 'b' is an object", id="an object"),
        pytest.param({"box_id": HISTORY}, "argument 'b' is an object", id="an object that holds a box id"),
        pytest.param([None], "item 0 of argument 'b' is null", id="null in a list"),
        pytest.param([HISTORY, True], "item 1 of argument 'b' is a boolean", id="a boolean in a list"),
        pytest.param([HISTORY, 1.5], "item 1 of argument 'b' is a number", id="a float in a list"),
        pytest.param(
            [HISTORY, ""], "item 1 of argument 'b' is an empty string", id="an empty string in a list"
        ),
        pytest.param([HISTORY, {}], "item 1 of argument 'b' is an object", id="an object in a list"),
        pytest.param([[HISTORY]], "item 0 of argument 'b' is a list", id="a list in a list"),
        pytest.param([[[HISTORY]]], "item 0 of argument 'b' is a list", id="a list in a list in a list"),
        pytest.param([UNKNOWN, []], "item 1 of argument 'b' is a list", id="an empty list in a list"),
    ],
)
def test_a_malformed_box_argument_is_refused(refusal: Refusal, value: object, place: str) -> None:
    error = refusal(inheriting("a", "b"), {"a": HISTORY, "b": value})
    assert (type(error), error.message) == (
        BadRequest,
        f"inherit_context.b must be a box id or a list of box ids: {place}",
    )


@pytest.mark.parametrize(
    ("value", "box_id"),
    [
        pytest.param(UNKNOWN, UNKNOWN, id="unknown"),
        pytest.param(UNKNOWN.upper(), UNKNOWN, id="unknown, upper case"),
        pytest.param([HISTORY, UNKNOWN], UNKNOWN, id="unknown in a list"),
        pytest.param([UNKNOWN, FOREIGN], UNKNOWN, id="the first of two"),
        pytest.param(FOREIGN, FOREIGN, id="of another project"),
        pytest.param("history", "history", id="no uuid"),
        pytest.param(HISTORY[-8:], HISTORY[-8:], id="a short id"),
        pytest.param(f"{HISTORY},{NOTES}", f"{HISTORY},{NOTES}", id="two in one text"),
        pytest.param("a\0b", r"a\x00b", id="NUL"),
        pytest.param("\ud800", r"\ud800", id="lone surrogate"),
        pytest.param(7, "7", id="an integer"),
        pytest.param(-7, "-7", id="a negative integer"),
    ],
)
def test_an_unknown_box_is_refused(refusal: Refusal, value: object, box_id: str) -> None:
    error = refusal(inheriting("a", "b"), {"a": NOTES, "b": value})
    assert (type(error), error.message) == (NotFound, f"no box '{box_id}' in project 'p' (argument 'b')")


@pytest.mark.parametrize(
    ("allowed", "value", "box_id"),
    [
        pytest.param([NOTES], HISTORY, HISTORY, id="not in the list"),
        pytest.param([], HISTORY, HISTORY, id="an empty list allows none"),
        pytest.param([HISTORY], [HISTORY, NOTES.upper()], NOTES, id="the second of two"),
        pytest.param([HISTORY], UNKNOWN, UNKNOWN, id="unknown"),
        pytest.param([HISTORY], [UNKNOWN, NOTES], UNKNOWN, id="the first of two"),
        pytest.param([HISTORY], FOREIGN, FOREIGN, id="of another project"),
        pytest.param([HISTORY], "history", "history", id="no uuid"),
        pytest.param(["history"], HISTORY, HISTORY, id="a list of what is no uuid"),
    ],
)
def test_an_unauthorized_box_is_refused(
    refusal: Refusal, allowed: list[str], value: object, box_id: str
) -> None:
    error = refusal(inheriting("b", allowed=allowed), {"b": value})
    assert (type(error), error.message) == (
        BadRequest,
        f"inherit_context: unauthorized box_id: '{box_id}' (argument 'b')",
    )


def test_permissions_are_checked_before_any_box_is_read(database: Database) -> None:
    written = inheriting("a", allowed=[HISTORY])
    with passing(database):
        database.connection.execute("ALTER TABLE public.card_boxes RENAME TO out_of_reach")
        with pytest.raises(BadRequest, match="unauthorized box_id"):
            packed_by(database, written, {"a": [HISTORY, NOTES]})
        with pytest.raises(SchemaMissing):
            packed_by(database, written, {"a": HISTORY})


def test_an_authorized_box_that_does_not_exist_is_not_found(refusal: Refusal) -> None:
    error = refusal(inheriting("a", allowed=[UNKNOWN]), {"a": UNKNOWN})
    assert (type(error), error.message) == (NotFound, f"no box '{UNKNOWN}' in project 'p' (argument 'a')")


MISTAKES: dict[str, tuple[Recipe, dict[str, Any], type[CbxError], str]] = {
    "recipe": ({"pack_arguments": ["typo"]}, {}, InvalidRecipe,
               f"{RULES}[0]: expected a mapping, found the string 'typo'"),
    "profile": ({}, {"profile_name": "nobody"}, NotFound, "no profile 'nobody' in project 'p'"),
    "argument": ({}, {"result_fields": [3]}, BadRequest,
                 "argument 'result_fields': [0] must be an object with name and description, not a number"),
    "shape": ({}, {"shape": None}, BadRequest,
              "inherit_context.shape must be a box id or a list of box ids: argument 'shape' is null"),
    "permission": ({}, {"denied": UNKNOWN}, BadRequest,
                   f"inherit_context: unauthorized box_id: '{UNKNOWN}' (argument 'denied')"),
    "box": ({}, {"gone": ANOTHER_UNKNOWN}, NotFound,
            f"no box '{ANOTHER_UNKNOWN}' in project 'p' (argument 'gone')"),
}  # fmt: skip


@pytest.mark.parametrize("first", range(len(MISTAKES)), ids=list(MISTAKES))
def test_the_first_of_several_mistakes_is_reported(refusal: Refusal, first: int) -> None:
    config: dict[str, Any] = {
        "pack_arguments": [{"arg_key": "result_fields", "as_card_type": "task.result_fields"}],
        "inherit_context": {"include_boxes_from_args": ["gone", "denied", "shape"]},
        "order": ["include_parent", "inherit_context", "pack_arguments"],
    }
    arguments: dict[str, Any] = {}
    mistakes = list(MISTAKES.values())[first:]
    for mistaken_config, mistaken_arguments, _, _ in mistakes:
        config.update(mistaken_config)
        arguments.update(mistaken_arguments)
    error = refusal(recipe(**config, allowed=[ANOTHER_UNKNOWN]), arguments)
    assert (type(error), error.message) == mistakes[0][2:]


def test_a_database_without_tables_is_refused(empty_target: Target) -> None:
    with Database.connect(empty_target) as database, pytest.raises(SchemaMissing) as caught:
        pack_context(PROJECT, TOOL, AGENT, {}, recipe(), conn=database.connection)
    assert caught.value.message == "the database has no table resource.profiles"


# One transaction.


@contextmanager
def failing_at_the_end(database: Database) -> Iterator[None]:
    """Packing fails after it wrote its cards and its box."""
    database.connection.execute("""
        CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'the disk is full'; END $$;
        CREATE TRIGGER refuse AFTER INSERT ON cbx.box_info FOR EACH ROW EXECUTE FUNCTION public.refuse();
    """)
    try:
        yield
    finally:
        database.connection.execute("DROP FUNCTION public.refuse CASCADE")


def test_a_failure_at_the_end_leaves_no_card_and_no_box(database: Database, refusal: Refusal) -> None:
    with failing_at_the_end(database):
        error = refusal(EVERYTHING, EVERY_ARGUMENT)
    assert (type(error), error.message) == (CbxError, "the database reported P0001: the disk is full")


CALLERS = ["autocommit, in a block", "in a block", "begun", "not begun"]


class Caller:
    """A program with a connection of its own, whose rows are dicts, and a transaction on it."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]], kind: str) -> None:
        self.connection = connection
        self.kind = kind

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[None]:
        if self.kind.endswith("in a block"):
            with self.connection.transaction(force_rollback=not commit):
                yield
            return
        if self.kind == "begun":
            self.connection.execute("SELECT 1")
        yield
        if commit:
            self.connection.commit()
        else:
            self.connection.rollback()

    def add_project(self) -> None:
        self.connection.execute(
            "INSERT INTO public.projects (project_id, title, owner_id) VALUES (%s, 't', 'o')",
            [uuid.uuid4().hex],
        )

    def pack(self, arguments: Mapping[str, Any], written: Recipe) -> tuple[str, str, list[str]]:
        return pack_context(PROJECT, TOOL, AGENT, arguments, written, conn=self.connection)


@pytest.fixture(params=CALLERS)
def caller(target: Target, request: pytest.FixtureRequest) -> Iterator[Caller]:
    autocommit = request.param.startswith("autocommit")
    with psycopg.connect(target.conninfo or "", autocommit=autocommit, row_factory=dict_row) as connection:
        yield Caller(connection, request.param)


def test_a_pack_is_visible_only_after_the_caller_commits(caller: Caller, boxes: BoxStore) -> None:
    with caller.transaction(commit=True):
        box_id, _, card_ids = caller.pack(EVERY_ARGUMENT, EVERYTHING)
        assert boxes.get_many([box_id]).missing_box_ids == [box_id]
    assert [card.card_id for card in boxes.view(box_id).cards] == card_ids


def test_a_pack_is_rolled_back_with_the_caller(caller: Caller, row_counts: RowCounts) -> None:
    before = row_counts()
    with caller.transaction(commit=False):
        caller.pack(EVERY_ARGUMENT, EVERYTHING)
    assert row_counts() == before


def test_a_pack_sees_uncommitted_writes_of_the_caller(caller: Caller, boxes: BoxStore) -> None:
    with caller.transaction(commit=True):
        theirs = BoxStore(Database.adopt(caller.connection), PROJECT).create(["h3", "h1"])
        box_id, _, _ = caller.pack({"a": theirs.box_id}, inheriting("a"))
    assert boxes.get(box_id).card_ids == ["h3", "h1"]


@pytest.mark.parametrize("when", ["at the beginning", "at the end"])
def test_a_failed_pack_keeps_other_writes_of_the_caller(
    caller: Caller, database: Database, row_counts: RowCounts, when: str
) -> None:
    before = row_counts()
    arguments = {"instruction": "x", "boxes": UNKNOWN if when == "at the beginning" else HISTORY}
    with failing_at_the_end(database), caller.transaction(commit=True):
        caller.add_project()
        with pytest.raises(CbxError):
            caller.pack(arguments, EVERYTHING)
        caller.add_project()
    assert row_counts() == {**before, "public.projects": before["public.projects"] + 2}


def test_the_connection_of_the_caller_is_unchanged(caller: Caller) -> None:
    before = (caller.connection.autocommit, caller.connection.isolation_level, caller.connection.read_only)
    with caller.transaction(commit=True):
        caller.pack(EVERY_ARGUMENT, EVERYTHING)
        assert caller.connection.info.transaction_status is TransactionStatus.INTRANS
        assert caller.connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    after = (caller.connection.autocommit, caller.connection.isolation_level, caller.connection.read_only)
    assert (after, caller.connection.closed) == (before, False)


def test_a_pack_on_an_autocommit_connection_commits_its_own_transaction(
    target: Target, boxes: BoxStore
) -> None:
    with psycopg.connect(target.conninfo or "", autocommit=True, row_factory=dict_row) as connection:
        box_id, _, card_ids = pack_context(PROJECT, TOOL, AGENT, EVERY_ARGUMENT, EVERYTHING, conn=connection)
        assert boxes.get(box_id).card_ids == card_ids
        assert connection.info.transaction_status is TransactionStatus.IDLE


def test_a_pack_without_a_connection_uses_cbx_database_url(
    target: Target, boxes: BoxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBX_DATABASE_URL", target.conninfo or "")
    box_id, _, card_ids = pack_context(PROJECT, TOOL, AGENT, EVERY_ARGUMENT, EVERYTHING)
    assert boxes.get(box_id).card_ids == card_ids


def test_a_loaded_recipe_can_be_passed(database: Database, boxes: BoxStore) -> None:
    loaded = recipe_from_mapping(EVERYTHING)
    box_id, _, card_ids = pack_context(PROJECT, TOOL, AGENT, EVERY_ARGUMENT, loaded, conn=database.connection)
    assert boxes.get(box_id).card_ids == card_ids


# Dry runs.


def test_a_dry_run_writes_nothing(database: Database, row_counts: RowCounts) -> None:
    before = row_counts()
    planned = packed_by(database, EVERYTHING, EVERY_ARGUMENT, dry_run=True)
    assert planned.context_box_id is None
    assert row_counts() == before


def test_a_dry_run_plans_the_same_pack(database: Database) -> None:
    seen: list[list[str | None]] = [[], []]
    looks = [lambda place, card, into=into: into.append(card and preview(card, 60)) for into in seen]
    planned = packed_by(database, EVERYTHING, EVERY_ARGUMENT, dry_run=True, look=looks[0])
    packed = packed_by(database, EVERYTHING, EVERY_ARGUMENT, look=looks[1])
    assert planned.digest == packed.digest
    assert len(seen[0]) == len(planned.plan.cards)
    assert seen[0] == seen[1]
    assert [card.rule for card in planned.plan.cards] == [card.rule for card in packed.plan.cards]
    assert planned.plan.parent_ids == packed.plan.parent_ids
    assert planned.profile_box_id == packed.profile_box_id


def test_a_dry_run_reports_left_out_cards(database: Database) -> None:
    planned = packed_by(database, inheriting("a", max_cards=1), {"a": HISTORY}, dry_run=True)
    assert [(each.card_id, each.reason) for each in planned.plan.left_out] == [
        ("h1", "beyond max_cards 1"),
        ("h2", "beyond max_cards 1"),
    ]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [({"boxes": UNKNOWN}, NotFound), ({"boxes": None}, BadRequest), ({"profile_name": "nobody"}, NotFound)],
)
def test_a_dry_run_refuses_the_same_errors_as_a_pack(
    database: Database, arguments: dict[str, Any], kind: type[CbxError]
) -> None:
    with pytest.raises(kind) as dry:
        packed_by(database, EVERYTHING, arguments, dry_run=True)
    with pytest.raises(kind) as real:
        packed_by(database, EVERYTHING, arguments)
    assert dry.value.message == real.value.message


# The digest.


def line_of(card_type: str, role: str, author_id: str, content: Any, **metadata: Any) -> str:
    parts = [card_type, role, author_id, content, None, None, metadata]
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def test_the_digest_is_the_hash_that_the_spec_defines(database: Database, boxes: BoxStore) -> None:
    box = boxes.create(["h1", "no-such-card"], allow_dangling=True)
    written = recipe(
        pack_arguments=[{"arg_key": "instruction", "card_metadata": {"role": "system", "tags": ["ä"]}}],
        inherit_context={"include_boxes_from_args": ["boxes"], "include_parent": True},
    )
    arguments = {"instruction": {"b": "é", "a": 1}, "boxes": box.box_id}
    packed = packed_by(database, written, arguments, allow_dangling=True)
    pointer = {"__type__": "JsonContent", "data": {"parent_agent_id": AGENT}}
    lines = [
        line_of(
            "task.instruction",
            "system",
            TOOL,
            {"__type__": "JsonContent", "data": {"a": 1, "b": "é"}},
            tags=["ä"],
        ),
        line_of("chat.message", "user", "a", {"__type__": "TextContent", "text": "text of h1"}),
        "null\n",
        line_of("meta.parent_pointer", "system", AGENT, pointer),
    ]
    assert packed.digest == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_packed_digest_equals_the_digest_of_the_stored_box(database: Database, boxes: BoxStore) -> None:
    packed = packed_by(database, EVERYTHING, EVERY_ARGUMENT)
    view = boxes.view(box_of(packed))
    assert packed.digest == view.digest
    assert verify(view, boxes.provenance(view.box.box_id)) == []


def test_a_box_changed_after_packing_fails_verification(database: Database, boxes: BoxStore) -> None:
    packed = packed_by(database, EVERYTHING, EVERY_ARGUMENT)
    boxes.append(box_of(packed), ["d1"])
    view = boxes.view(box_of(packed))
    assert [finding.kind for finding in verify(view, boxes.provenance(view.box.box_id))] == ["digest-differs"]


RICH = {"instruction": {"n": Decimal("1.10"), "big": Decimal("1e400"), "s": "é"}, "boxes": [HISTORY, NOTES]}


@pytest.fixture
def another_database(databases: Databases) -> Iterator[Database]:
    name = databases.make()
    with Database.open_target(databases.target(name)) as opened:
        yield opened
    databases.drop(name)


def test_the_digest_is_the_same_in_another_database_and_project(
    database: Database, another_database: Database
) -> None:
    furnish(another_database, "elsewhere")
    here = packed_by(database, EVERYTHING, RICH)
    there = packed_by(another_database, EVERYTHING, RICH, project_id="elsewhere")
    assert here.digest == there.digest
    assert here.plan.card_ids != there.plan.card_ids


def test_the_digest_is_the_same_on_every_server(database: Database) -> None:
    expected = "2eaf53caf5bcbe97bee437858766e1fbe9c4c28844248f46cdb2fd0b7452e6a1"
    assert packed_by(database, EVERYTHING, RICH).digest == expected


def test_the_digest_is_independent_of_ids_and_times(
    database: Database, cards: CardStore, boxes: BoxStore
) -> None:
    before = packed_by(database, EVERYTHING, {"instruction": "Find it", "boxes": HISTORY})
    with passing(database):
        database.connection.execute("SET LOCAL cbx.clock_offset = '3 days'")
        for card_id in CARDS_OF[HISTORY]:
            copied = draft_card(
                "chat.message", f"text of {card_id}", card_id=f"copy-{card_id}", author_id="a"
            )
            cards.add(copied)
        box = boxes.create([f"copy-{card_id}" for card_id in CARDS_OF[HISTORY]])
        after = packed_by(database, EVERYTHING, {"instruction": "Find it", "boxes": box.box_id})
        times = [only.created_at for only in new_cards(database, after)]
    assert after.digest == before.digest
    assert min(times) > max(only.created_at for only in new_cards(database, before)) + timedelta(days=2)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        pytest.param({"instruction": "Find them"}, {}, id="argument"),
        pytest.param({"instruction": ["Find it"]}, {}, id="kind of argument"),
        pytest.param({"boxes": [NOTES, HISTORY]}, {}, id="order of boxes"),
        pytest.param({"boxes": [HISTORY]}, {}, id="inherited contents"),
        pytest.param({}, {"source_agent_id": "agent-2"}, id="source agent"),
        pytest.param({}, {"tool_suffix": "tool.other"}, id="tool suffix"),
    ],
)
def test_the_digest_depends_on_arguments_and_options(
    database: Database, arguments: dict[str, Any], options: dict[str, Any]
) -> None:
    before = packed_by(database, EVERYTHING, EVERY_ARGUMENT)
    after = packed_by(database, EVERYTHING, {**EVERY_ARGUMENT, **arguments}, **options)
    assert after.digest != before.digest


def test_a_card_of_another_project_has_the_digest_of_a_missing_card(
    database: Database, boxes: BoxStore
) -> None:
    made = [boxes.create([card_id], allow_dangling=True).box_id for card_id in ("f1", "no-such-card")]
    digests = [
        packed_by(database, inheriting("a"), {"a": box_id}, allow_dangling=True).digest for box_id in made
    ]
    assert digests[0] == digests[1]
    for box_id in made:
        with pytest.raises(NotFound, match="no such card"):
            packed_by(database, inheriting("a"), {"a": box_id})


# Two at once.


def test_a_pack_does_not_wait_for_an_identical_open_pack(
    database: Database, target: Target, boxes: BoxStore
) -> None:
    with psycopg.connect(target.conninfo or "") as slow:
        first, _, _ = pack_context(PROJECT, TOOL, AGENT, EVERY_ARGUMENT, EVERYTHING, conn=slow)
        with database.transaction():
            database.connection.execute("SET LOCAL lock_timeout = '2s'")
            second = box_of(packed_by(database, EVERYTHING, EVERY_ARGUMENT))
    assert first != second
    assert boxes.view(first).digest == boxes.view(second).digest


def test_concurrent_packs_all_succeed(target: Target, boxes: BoxStore) -> None:
    together = threading.Barrier(2, timeout=120)

    def pack_some(_: int) -> list[PackResult]:
        with Database.open_target(target) as opened:
            together.wait()
            return [packed_by(opened, EVERYTHING, EVERY_ARGUMENT) for _ in range(10)]

    with ThreadPoolExecutor(2) as pool:
        packed = list(chain(*pool.map(pack_some, range(2))))
    assert len({box_of(each) for each in packed}) == 20
    assert len(set(chain(*(each.plan.card_ids for each in packed)))) == len(INHERITED) + 2 * 20
    assert {boxes.view(box_of(each)).digest for each in packed} == {packed[0].digest}


# Any JSON value.

NUMBERS = st.builds(
    lambda whole, fraction, exponent: exact_json.parse_number(f"{whole}.{fraction}e{exponent}"),
    st.integers(),
    st.integers(min_value=0),
    st.integers(-400, 400),
)
TEXTS = st.text() | st.text(st.characters()) | st.text(st.sampled_from("a\0\ud800\\\"'é🙂"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | NUMBERS | TEXTS
JSON = st.recursive(
    SCALARS,
    lambda items: st.lists(items, max_size=4) | st.dictionaries(TEXTS, items, max_size=4),
    max_leaves=12,
)


def storable(value: Any) -> bool:
    """Whether JSONB can hold the value."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)
    if isinstance(value, dict):
        return all(storable(key) and storable(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(storable, value))
    return not isinstance(value, float | Decimal) or Decimal(value).is_finite()


def exact(value: Any) -> Any:
    """The value with all its numbers exact, so that 1e2, 100 and 100.0 compare as JSON numbers do."""
    return json.loads(exact_json.encode(value), parse_int=Decimal, parse_float=Decimal)


@given(value=JSON)
@example(value=float("nan"))
@example(value={"\ud800": [float("inf")]})
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_value_is_packed_unchanged_or_refused(
    database: Database, boxes: BoxStore, value: Any
) -> None:
    if not storable(value):
        with pytest.raises(BadRequest):
            packed_by(database, packing("a"), {"a": value})
        return
    packed = packed_by(database, packing("a"), {"a": value})
    view = boxes.view(box_of(packed))
    content = view.cards[0].content
    if isinstance(value, dict | list):
        assert isinstance(content, JsonContent)
        assert exact(content.data) == exact(value)
    else:
        assert isinstance(content, TextContent)
        said = content.text if isinstance(value, str) else exact_json.decode(content.text)
        assert exact(said) == exact(value)
    assert view.digest == packed.digest
