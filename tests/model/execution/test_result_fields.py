"""Which fields a deliverable lacks, as a table."""

import pytest

from cardbox_cli.model.content import (
    FieldSchema,
    FieldsSchemaContent,
    JsonContent,
    StoredContent,
    TextContent,
)
from cardbox_cli.model.execution.result_fields import missing_fields, missing_fields_message, required_fields
from tests.context.test_request import card

ASKED = ["total", "Due date"]


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (None, ASKED),
        (TextContent("All is well."), ASKED),
        (TextContent("The total: 118"), ASKED),
        (TextContent("totals: 118\nDue dates: none"), ASKED),
        (TextContent("total: 118"), ["Due date"]),
        (TextContent("Here it is:\n\n- **Total**: 118\n2. `due date` = May"), []),
        (TextContent("## Total\n118\n\n## Due Date ##\nMay"), []),
        (TextContent("| total | 118 |\n| due date | May |"), []),
        (TextContent('{"total": 118, "Due date": null}'), []),
        (TextContent('{"total": 118, "due date": "May"}'), ["Due date"]),
        (TextContent('```json\n{"total": 118}\n```\n'), ["Due date"]),
        (TextContent('"total: 118"'), ["Due date"]),
        (JsonContent({"total": 118}), ["Due date"]),
        (JsonContent({"answer": {"total": 118, "Due date": "May"}}), ASKED),
        (JsonContent({"fields": [{"name": "total", "value": 1}, {"name": "Due date"}, 7]}), []),
        (JsonContent([{"name": "total", "value": 118}]), ["Due date"]),
        (JsonContent({"fields": {"total": 1}}), ASKED),
        ({"__type__": "Of another program", "total": 1}, ["Due date"]),
    ],
)
def test_missing_fields_of_a_deliverable_are_found(content: StoredContent, missing: list[str]) -> None:
    assert missing_fields(ASKED, content) == missing
    assert missing_fields([], content) == []


def test_a_field_required_by_several_cards_counts_once() -> None:
    asks = [
        card("task.result_fields", FieldsSchemaContent([FieldSchema("a"), FieldSchema("b", "the b")])),
        card("task.instruction", FieldsSchemaContent([FieldSchema("c")])),
        card("task.result_fields", TextContent("as another program may say it")),
        card("task.result_fields", FieldsSchemaContent([FieldSchema("b"), FieldSchema("d")])),
    ]
    assert required_fields(asks) == ["a", "b", "d"]


def test_the_message_names_the_missing_fields() -> None:
    assert missing_fields_message(["a"]) == "the deliverable lacks the field 'a'"
    assert missing_fields_message(["a", "it's"]) == "the deliverable lacks the fields 'a', \"it's\""


def test_long_texts_are_checked_quickly() -> None:
    for text in ("\n" * 200_000, "- " * 200_000, "```a\n" + "\n``` " * 50_000, " \n" * 200_000):
        assert missing_fields(ASKED, TextContent(text)) == ASKED
