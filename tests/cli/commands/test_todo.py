"""`cbx todo`: the list of a box, kept by appending to it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

Feed = Callable[[str | bytes], None]


@pytest.fixture
def box(box_of: Callable[..., str]) -> str:
    return box_of()


def state(cbx: Cbx, box: str, *options: str) -> list[str]:
    """The list in short: number and text, with a mark on what is done."""
    items = cbx("todo", "list", box, *options, "-o", "json").json()
    return [f"{item['number']} {item['text']}{'!' if item['done'] else ''}" for item in items]


def test_items_are_added_from_arguments_files_and_standard_input(
    cbx: Cbx, box: str, feed: Feed, tmp_path: Path
) -> None:
    assert len(lines(cbx("todo", "add", box, "Call", "Write\nand send", "-o", "id"))) == 2
    (tmp_path / "more.txt").write_text("Wait\n\n  Look \r\n")
    added = cbx("todo", "add", box, "--file", str(tmp_path / "more.txt"), "-o", "json").json()
    assert [item["number"] for item in added] == [3, 4]
    feed("Last")
    [header, row] = lines(cbx("todo", "add", box, "-f", "-"))
    assert header.split() == ["#", "ID", "STATE", "TEXT"]
    assert (row.split()[0], row.split()[2:]) == ("5", ["open", "Last"])
    assert state(cbx, box) == ["1 Call", "2 Write\nand send", "3 Wait", "4 Look", "5 Last"]
    card = cbx("card", "show", "@last", "-o", "json").json()
    assert (card["type"], card["role"], card["author_id"]) == ("todo.item", "system", "sys.operator")
    assert card["content"] == {"__type__": "JsonContent", "data": {"text": "Last", "done": False}}


def test_a_new_card_marks_an_item_done_or_open(cbx: Cbx, box: str) -> None:
    first, second = lines(cbx("todo", "add", box, "Call", "Write", "-o", "id"))
    [settled] = cbx("todo", "done", box, "2", second, "-o", "json").json()
    assert (settled["done"], settled["first_card_id"]) == (True, second)
    new = settled["card_id"]
    assert cbx("card", "show", new, "-o", "json").json()["metadata"]["edited_from"] == second
    assert state(cbx, box) == ["1 Call", "2 Write!"]
    assert (state(cbx, box, "--open"), state(cbx, box, "--done")) == (["1 Call"], ["2 Write!"])
    again = cbx("todo", "done", box, new[-8:], "1", "-o", "id")
    assert (lines(again), again.err) == ([first, second], "unchanged: 2\n")
    length = len(cbx("box", "show", box, "-o", "json").json()["card_ids"])
    assert cbx("todo", "done", box, "1", "2").err == "unchanged: 1\nunchanged: 2\n"
    assert len(cbx("box", "show", box, "-o", "json").json()["card_ids"]) == length == 4
    succeed(cbx("todo", "reopen", box, "1"))
    assert state(cbx, box) == ["1 Call", "2 Write!"]
    assert cbx("box", "verify", box).code == 0


def test_an_edited_item_keeps_its_position(cbx: Cbx, box: str) -> None:
    first, _ = lines(cbx("todo", "add", box, "Call", "Write", "-o", "id"))
    text = json.dumps({"__type__": "JsonContent", "data": {"text": "Call Ann", "done": True}})
    [edited] = lines(cbx("card", "edit", first, "--text", text, "-o", "id"))
    succeed(cbx("box", "append", box, edited))
    assert state(cbx, box) == ["1 Call Ann!", "2 Write"]


def test_an_empty_list_prints_a_note(cbx: Cbx, box: str, add: Callable[..., str]) -> None:
    succeed(cbx("box", "append", box, add()))
    assert cbx("todo", "list", box).err == f"no todo items in box {box}\n"
    assert cbx("todo", "list", box, "--done").err == f"no done todo items in box {box}\n"
    assert cbx("todo", "list", box, "-o", "json").out == "[]\n"


def test_cards_of_other_programs_are_shown(cbx: Cbx, box: str, add: Callable[..., str]) -> None:
    odd = add("Just text", type="todo.item")
    listed = add("x", "--metadata", '{"edited_from": ["odd"]}', type="todo.item")
    succeed(cbx("box", "append", box, odd, listed, odd))
    succeed(cbx("todo", "done", box, "1"))
    assert state(cbx, box) == ["1 Just text!", "2 x"]


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (("add", "BOX"), 2, "error: no items to add\nhint: pass a TEXT for each item, or --file\n"),
        (
            ("add", "BOX", "Call", " "),
            4,
            "error: the todo item ' ' is blank\nhint: describe the task in a few words\n",
        ),
        (
            ("list", "BOX", "--open", "--done"),
            2,
            "error: --open and --done cannot be combined\nhint: remove both to list all items\n",
        ),
        (
            ("done", "BOX", "2"),
            3,
            "error: no todo item '2' in box BOX\nhint: `cbx todo list BOX` shows the numbers and ids\n",
        ),
        (
            ("list", "00000000-0000-7000-8000-00000000cafe"),
            3,
            "error: no box '00000000-0000-7000-8000-00000000cafe' in project 'p'\nhint: `cbx box list` shows the newest boxes\n",
        ),
    ],
)
def test_invalid_commands_are_refused(
    cbx: Cbx, box: str, command: tuple[str, ...], code: int, error: str
) -> None:
    result = cbx("todo", *(word.replace("BOX", box) for word in command))
    assert (result.code, result.out, result.err) == (code, "", error.replace("BOX", box))
    assert cbx("todo", "list", box, "-o", "json").json() == []


def test_a_box_of_another_project_is_not_found(cbx: Cbx, box: str) -> None:
    succeed(cbx("todo", "add", box, "Call"))
    for command in (("add", box, "x"), ("done", box, "1"), ("list", box)):
        assert cbx("-p", "other", "todo", *command).code == 3
    assert state(cbx, box) == ["1 Call"]
