"""Claude Code sessions: every line comes back, sidechains are boxes of their own, and growth appends."""

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardbox_cli.context.request import ComposeOptions, RequestEntry, request_of
from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.conversations.importing import ConversationImport, import_conversations
from cardbox_cli.errors import InvalidCard, InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.pairing import pair_calls
from cardbox_cli.providers.registry import provider_named
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database
from tests import jsonb_values
from tests.anthropic_types import check_body
from tests.conversations.anthropic_messages import RESULT, TEXT, THINKING, USE, contents
from tests.conversations.conftest import Export, ImportText
from tests.conversations.reading import documents_in

SESSION = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"


def line(uuid: str, role: str, content: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    """A line that bears a message; `more` may hold keys of the message under `message`."""
    message = {"role": role, "content": content, **more.pop("message", {})}
    around = {"uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "isSidechain": False, "type": role}
    return {**around, "timestamp": "2025-09-24T10:00:00.000Z", **more, "message": message}


def side(uuid: str, role: str, content: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    return line(uuid, role, content, parent, isSidechain=True, **more)


ANSWER = {"message": {"id": "msg_1", "type": "message", "model": "m", "usage": {"output_tokens": 3}}}

LINES: list[dict[str, Any]] = [
    {"type": "summary", "summary": "Updating the docs", "leafUuid": "u9"},
    {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"trackedFileBackups": {}}},
    line("u1", "user", "Update the docs"),
    line("u2", "user", [{"type": "text", "text": "Caveat: be brief."}], "u1", isMeta=True),
    line("u3", "assistant", [THINKING], "u2", **ANSWER),
    line("u4", "assistant", [TEXT], "u3", **ANSWER),
    line("u5", "assistant", [USE], "u4", **ANSWER),
    {"type": "progress", "uuid": "u6", "sessionId": SESSION, "isSidechain": False, "data": {"hook": "ready"}},
    line("u7", "assistant", [{**USE, "id": "toolu_2"}], "u5", **ANSWER),
    side("s1", "user", "Look into the code"),
    side("t1", "user", "Look into the tests"),
    line("u8", "user", [{**RESULT, "is_error": True}], "u7", toolUseResult="Error: no such file"),
    side("s2", "assistant", [TEXT, USE], "s1", message={"id": "msg_2"}),
    line("u9", "user", [{**RESULT, "tool_use_id": "toolu_2"}, TEXT], "u8", toolUseResult={"stdout": "ok"}),
    side("s3", "user", [RESULT], "s2"),
    {"type": "system", "subtype": "local_command", "content": "compacted", "sessionId": SESSION, "uuid": "u10"},
    {"type": "queue-operation", "operation": "enqueue", "content": "and lint", "sessionId": SESSION},
    side("t2", "assistant", "None found", "t1"),
    {"type": "assistant", "message": {"role": "assistant"}, "sessionId": SESSION},
    {"type": "user", "message": "not a message", "sessionId": SESSION},
    {"type": "of tomorrow", "sessionId": SESSION, "n": 1.10},
]  # fmt: skip


SYSTEM = {"type": "system", "uuid": "e1", "parentUuid": None, "sessionId": SESSION, "content": "compacted"}
SAID = {"type": "user", "message": {"role": "user", "content": "Hi"}}


def bears_message(line: dict[str, Any]) -> bool:
    message = line.get("message")
    return (
        line["type"] in ("user", "assistant")
        and isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), str | list)
    )


def text_of_lines(lines: list[Any]) -> str:
    return "".join(exact_json.encode(each).decode() + "\n" for each in lines)


def lines_in(text: str) -> list[Any]:
    return [exact_json.read(each) for each in text.split("\n") if each]


def canonical(value: Any) -> str:
    return exact_json.canonical_text(value)


@pytest.fixture
def take(import_text: ImportText) -> Any:
    return lambda lines, **options: import_text("claude-code", text_of_lines(lines), **options)


class TestRoundTrip:
    def test_a_session_and_each_sidechain_get_their_own_boxes(
        self, take: Any, export: Export, boxes: BoxStore
    ) -> None:
        main, code, tests = take(LINES)
        side_lines = [each for each in LINES if each.get("isSidechain")]
        assert lines_in(export(main.box_id, "claude-code")) == [
            each for each in LINES if each not in side_lines
        ]
        assert lines_in(export(code.box_id, "claude-code")) == [side_lines[n] for n in (0, 2, 3)]
        assert lines_in(export(tests.box_id, "claude-code")) == [side_lines[n] for n in (1, 4)]
        assert [boxes.get(box.box_id).parent_ids for box in (main, code, tests)] == [
            [],
            [main.box_id],
            [main.box_id],
        ]
        assert [box.title for box in (main, code, tests)] == [
            "Update the docs",
            "Look into the code",
            "Look into the tests",
        ]

    def test_a_json_list_of_lines_is_imported(self, import_text: ImportText, export: Export) -> None:
        main, *_ = import_text("claude-code", json.dumps(LINES))
        assert len(lines_in(export(main.box_id, "claude-code"))) == 16

    any_line = st.builds(
        lambda around, kind, message, side: {**around, "type": kind, **message, **side},
        st.dictionaries(jsonb_values.texts, jsonb_values.values, max_size=2),
        st.sampled_from(["user", "assistant", "system", "summary", ""]),
        st.just({})
        | st.fixed_dictionaries(
            {
                "message": st.fixed_dictionaries(
                    {"role": st.sampled_from(["user", "assistant", "system"]), "content": contents},
                    optional={"id": st.sampled_from(["", "msg_1", "msg_2"]) | jsonb_values.values},
                )
                | jsonb_values.values
            }
        ),
        st.fixed_dictionaries(
            {},
            optional={
                "isSidechain": st.booleans() | jsonb_values.values,
                "uuid": st.sampled_from(["a", "b", "c"]) | jsonb_values.values,
                "parentUuid": st.sampled_from(["a", "b", "c"]) | jsonb_values.values,
                "sessionId": st.sampled_from(["s", "t"]) | jsonb_values.values,
                "agentId": st.sampled_from(["x", ""]),
            },
        ),
    )

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(lines=st.lists(any_line, min_size=1, max_size=6))
    def test_any_session_lines_survive_a_round_trip(
        self, take: Any, export: Export, lines: list[Any]
    ) -> None:
        session = uuid.uuid4().hex
        for each in lines:
            if isinstance(each.get("sessionId"), str):
                each["sessionId"] += session
        # Each session has a message. So need not a sidechain.
        names = {each["sessionId"] for each in lines if isinstance(each.get("sessionId"), str)}
        lines += [{**SAID, "sessionId": name} for name in sorted(names)] or [SAID]
        imported = take(lines)
        back = [each for box in imported for each in lines_in(export(box.box_id, "claude-code"))]
        assert Counter(map(canonical, back)) == Counter(map(canonical, lines))
        again = take([exact_json.read(canonical(each)) for each in lines])
        assert [(box.box_id, box.new_cards) for box in again] == [(box.box_id, 0) for box in imported]
        for box in imported:
            for name in ("openai", "anthropic"):
                assert json.loads(export(box.box_id, name))

    def test_a_session_without_messages_makes_no_box(
        self, database: Database, cards: CardStore, export: Export
    ) -> None:
        def take(lines: list[Any]) -> ConversationImport:
            read = find_format("claude-code").read(documents_in(text_of_lines(lines)))
            return import_conversations(database, "p", read)

        events = [{**each, "leafUuid": None} for each in LINES if not bears_message(each)]
        nothing = take(events)
        assert (nothing.boxes, nothing.left_out.number, nothing.last_card_id) == ([], 1, None)
        assert list(cards.newest()) == []
        # A session that goes on to say something is one box with all of its lines.
        grown = take([*events, LINES[2]])
        assert (len(grown.boxes), grown.left_out.number) == (1, 0)
        assert lines_in(export(grown.boxes[0].box_id, "claude-code")) == [*events, LINES[2]]

    @pytest.mark.parametrize(
        ("lines", "sizes"),
        [
            pytest.param([SYSTEM, side("s1", "user", "Look")], [1, 1], id="a sidechain speaks"),
            pytest.param([LINES[2], {**SYSTEM, "isSidechain": True}], [1, 1], id="the session speaks"),
            pytest.param([{**SYSTEM, "isSidechain": True}], [1], id="the session is in another file"),
            pytest.param([{**SYSTEM, "parentUuid": "u7"}], [1], id="it goes on from another file"),
            pytest.param([{**SYSTEM, "logicalParentUuid": "u7"}], [1], id="it was compacted in another file"),
            pytest.param([LINES[0], LINES[1]], [2], id="it sums another file up"),
            pytest.param([SYSTEM, {**SYSTEM, "uuid": "e2", "parentUuid": "e1"}], [], id="it stands alone"),
        ],
    )
    def test_lines_that_continue_another_file_are_in_a_box(
        self, take: Any, export: Export, lines: list[Any], sizes: list[int]
    ) -> None:
        imported = take(lines)
        back = [lines_in(export(box.box_id, "claude-code")) for box in imported]
        assert [len(each) for each in back] == sizes
        held = Counter(canonical(each) for lines_of_box in back for each in lines_of_box)
        assert held == (Counter(map(canonical, lines)) if sizes else Counter())


class TestCards:
    def test_cards_get_types_and_groups_of_their_lines(self, take: Any, boxes: BoxStore) -> None:
        main, *_ = take(LINES)
        rows = [(card.type, card.role) for card in boxes.view(main.box_id).cards]
        thought, event = ("agent.thought", "assistant"), ("session.event", "system")
        said, answered = ("task.instruction", "user"), ("tool.result", "tool")
        assert rows == [
            event, event, said, said, ("agent.reasoning", "assistant"), thought, thought, event, thought,
            answered, answered, said, event, event, event, event, event,
        ]  # fmt: skip
        cards = boxes.view(main.box_id).cards
        assert {cards[n].metadata["source_group"] for n in (4, 5, 6, 8)} == {"msg_1"}
        assert pair_calls(cards).unanswered == []

    def test_session_events_are_searchable_but_never_sent(
        self, take: Any, boxes: BoxStore, cards: CardStore
    ) -> None:
        main, *_ = take(LINES)
        for word in ("compacted", "Updating", "lint", "ready"):
            [found] = cards.newest(CardFilter(text=word))
            assert found.type == "session.event"
        request = request_of(entries_of(boxes, main.box_id), encode=provider_named("openai").encode)
        reasons = Counter(left.reason for left in request.left_out)
        assert reasons == {
            "an event of a session, not a message": 8,
            "thinking, sent only in formats that support it": 1,
        }

    def test_the_lines_of_an_answer_form_one_openai_message(self, take: Any, export: Export) -> None:
        main, *_ = take(LINES)
        messages = json.loads(export(main.box_id, "openai"))["messages"]
        assert [message["role"] for message in messages] == [
            "user",
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
        ]
        assert messages[2]["content"] == "Let me look."
        assert [call["id"] for call in messages[2]["tool_calls"]] == ["toolu_1", "toolu_2"]

    def test_the_parts_of_an_answer_are_one_message_for_anthropic(self, take: Any, export: Export) -> None:
        main, *_ = take(LINES)
        messages = json.loads(export(main.box_id, "anthropic"))["messages"]
        assert messages[2:] == [
            {"role": "assistant", "content": [THINKING, TEXT, USE, {**USE, "id": "toolu_2"}]},
            {"role": "user", "content": [{**RESULT, "is_error": True}]},
            {"role": "user", "content": [{**RESULT, "tool_use_id": "toolu_2"}, TEXT]},
        ]


class TestRepeatedImport:
    def test_a_repeated_import_adds_no_cards(self, take: Any) -> None:
        first = take(LINES)
        again = take(LINES)
        assert [box.new_cards for box in again] == [0, 0, 0]
        assert [box.box_id for box in again] == [box.box_id for box in first]

    @pytest.mark.parametrize("length", range(3, len(LINES)))
    def test_a_longer_session_appends_only_the_new_lines(
        self, take: Any, export: Export, length: int
    ) -> None:
        before = take(LINES[:length])
        after = take(LINES)
        assert {box.box_id for box in before} <= {box.box_id for box in after}
        assert sum(box.new_cards for box in (*before, *after)) == sum(box.cards for box in after)
        back = [each for box in after for each in lines_in(export(box.box_id, "claude-code"))]
        assert Counter(map(canonical, back)) == Counter(map(canonical, LINES))

    def test_a_sidechain_in_a_separate_file_gets_its_session_as_parent(
        self, take: Any, boxes: BoxStore
    ) -> None:
        main, *_ = take(LINES)
        [agent] = take(
            [side("a1", "user", "Go", agentId="f00d"), side("a2", "assistant", "Done", "a1", agentId="f00d")]
        )
        assert boxes.get(agent.box_id).parent_ids == [main.box_id]
        [alone] = take([{**side("b1", "user", "Go"), "sessionId": "another"}])
        assert boxes.get(alone.box_id).parent_ids == []

    def test_a_changed_sidechain_keeps_its_session_as_a_parent(self, take: Any, boxes: BoxStore) -> None:
        main, code, _ = take(LINES)
        [changed] = take([side("s1", "user", "Look into the docs")])
        assert boxes.get(changed.box_id).parent_ids == [code.box_id, main.box_id]

    def test_two_sessions_in_one_file_make_two_boxes(self, take: Any, export: Export) -> None:
        other = {**line("o1", "user", "Elsewhere"), "sessionId": "other"}
        one, two = take([LINES[2], other, {"type": "summary", "summary": "x", "leafUuid": "o1"}, LINES[3]])
        assert lines_in(export(one.box_id, "claude-code")) == [LINES[2], LINES[3]]
        assert len(lines_in(export(two.box_id, "claude-code"))) == 2


class TestRemappedIds:
    def test_a_line_without_its_first_card_contains_only_the_other_cards(
        self, take: Any, boxes: BoxStore, export: Export
    ) -> None:
        main, *_ = take([LINES[2], LINES[13]])
        ids = boxes.get(main.box_id).card_ids
        rest = boxes.create(ids[2:])
        assert lines_in(export(rest.box_id, "claude-code")) == [
            {"type": "user", "message": {"role": "user", "content": "Let me look."}}
        ]

    def test_remapped_ids_are_exported_unchanged(self, take: Any, export: Export) -> None:
        imported = take(LINES, remap_tool_ids=True)
        back = [each for box in imported for each in lines_in(export(box.box_id, "claude-code"))]
        assert Counter(map(canonical, back)) == Counter(map(canonical, LINES))


@pytest.mark.parametrize(
    ("text", "error", "message", "hint"),
    [
        (
            text_of_lines(LINES[:2]) + "{oops}\n",
            InvalidConversation,
            "f:3:2: not JSON: Expecting property name enclosed in double quotes",
            "give a JSON or JSONL file of messages",
        ),
        (
            text_of_lines(LINES[:2]) + "[1]\n",
            InvalidConversation,
            "f:3: a line of a session must be an object, not a list",
            None,
        ),
        (
            text_of_lines(LINES[:2]) + '{"role": "user", "content": "x"}\n',
            InvalidConversation,
            "f:3: a line of a Claude Code session must have a type",
            "check --from",
        ),
        (
            text_of_lines(LINES[:2]) + json.dumps(line("u", "user", "a\x00")) + "\n",
            InvalidCard,
            "f:3: message.content: holds a NUL character at offset 1",
            "pass --on-bad-text replace, which writes U+FFFD instead",
        ),
    ],
)
def test_a_malformed_line_is_reported_and_stops_the_import(
    import_text: ImportText,
    cards: CardStore,
    text: str,
    error: type[Exception],
    message: str,
    hint: str | None,
) -> None:
    with pytest.raises(error) as raised:
        import_text("claude-code", text)
    assert (str(raised.value), raised.value.hint) == (message, hint)
    assert list(cards.newest()) == []


def entries_of(boxes: BoxStore, box_id: str) -> list[RequestEntry]:
    return [RequestEntry(slot=slot, box_id=box_id) for slot in boxes.view(box_id).slots]


class TestRealSession:
    @pytest.fixture
    def file(self, real_data: Path) -> Path:
        return real_data / "claude-code_session_5c0375b4.jsonl"

    def test_every_line_is_exported_in_its_order(
        self, file: Path, import_text: ImportText, export: Export
    ) -> None:
        text = file.read_text(encoding="utf-8")
        lines = lines_in(text)
        imported = import_text("claude-code", text)
        assert len(imported) == 3
        back = [lines_in(export(box.box_id, "claude-code")) for box in imported]
        assert sorted((each for box in back for each in box), key=lines.index) == lines
        for box in back:
            assert [lines.index(each) for each in box] == sorted(lines.index(each) for each in box)
        again = import_text("claude-code", text)
        assert [box.new_cards for box in again] == [0, 0, 0]

    def test_a_real_session_is_a_valid_anthropic_request(
        self, file: Path, import_text: ImportText, boxes: BoxStore
    ) -> None:
        for box in import_text("claude-code", file.read_text(encoding="utf-8")):
            pairing = pair_calls(boxes.view(box.box_id).cards)
            assert (pairing.unanswered, pairing.orphans) == ([], [])
            dialect = provider_named("anthropic")
            request = request_of(
                entries_of(boxes, box.box_id), ComposeOptions(model="m"), encode=dialect.encode
            )
            body = dialect.body(request)
            check_body(body)
            roles = [message["role"] for message in body["messages"]]
            assert roles == ["user", "assistant"] * (len(roles) // 2)
            assert request.left_out == []
