"""What a newcomer looked for in the pages: failed turns, axes, calls, and the numbers of the command line."""

import json
from collections.abc import Callable
from pathlib import Path

from fastapi.testclient import TestClient

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from tests.cli.commands.test_worker import Dispatch, dispatch, later, work
from tests.cli.conftest import add, succeed
from tests.conftest import Cbx
from tests.serve.page.conftest import START
from tests.serve.page.reader import Reader

__all__ = ["add", "dispatch", "later"]

CALLS = [
    {"role": "user", "content": "Cancel it."},
    {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "cancel_reservation", "arguments": '{"id": 7}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "assistant", "content": "It is cancelled."},
    {"role": "user", "content": "Thanks."},
]


def test_failed_turns_are_filtered_without_those_that_a_retry_replaced(
    cbx: Cbx, dispatch: Dispatch, api: TestClient
) -> None:
    first, second = dispatch(), dispatch("Another.", "other")
    work(cbx, "cat >/dev/null; exit 3")
    page = api.get(f"{START}?end=failed").text
    assert first in page
    assert second in page
    assert f'href="{START}?end=failed" aria-current="true"' in page
    succeed(cbx("turn", "retry", first))
    page = api.get(f"{START}?end=failed").text
    assert first not in page
    assert second in page
    assert "replaced by" in api.get(f"{START}?status=ended").text


def test_boxes_leave_internal_ones_out(cbx: Cbx, dispatch: Dispatch, api: TestClient) -> None:
    dispatch()
    work(cbx, "echo done")
    for row in cbx("box", "list", "-o", "json").json():
        shown = row["box_id"] in api.get(f"{START}/boxes").text
        assert shown == (row["kind"] not in ("profile", "request"))


def test_sizes_are_those_of_the_command_line(runtime: Runtime, api: TestClient) -> None:
    draft = draft_card("task.instruction", "x" * 56)
    runtime.cards.add(draft)
    box = runtime.boxes.create([draft.card_id]).box_id
    assert '<span class="size">56B</span>' in api.get(f"{START}/boxes/{box}").text


def test_calls_are_shown_as_calls_and_the_history_by_tool(cbx: Cbx, tmp_path: Path, api: TestClient) -> None:
    (tmp_path / "c.json").write_text(json.dumps(CALLS))
    box = succeed(cbx("card", "import", str(tmp_path / "c.json"), "-o", "id")).strip()
    request = api.get(f"{START}/request?box={box}").text
    text = Reader(request).text
    assert '[{"id"' not in text
    assert "cancel_reservation(" in text
    assert "history: tool.result cancel_reservation" in text
    cost = Reader(api.get(f"{START}/cost?box={box}").text).text
    assert "history: tool.result cancel_reservation" in cost
    assert "request 1" in cost
    assert " tokens" in cost


def test_charts_have_axes(cbx: Cbx, tmp_path: Path, api: TestClient) -> None:
    (tmp_path / "c.json").write_text(json.dumps(CALLS))
    box = succeed(cbx("card", "import", str(tmp_path / "c.json"), "-o", "id")).strip()
    page = api.get(f"{START}/cost?box={box}").text
    assert page.count('class="axis-y"') == page.count('class="axis-x"') == 2


def test_a_stuck_turn_is_marked_in_the_list(
    cbx: Cbx, dispatch: Dispatch, api: TestClient, later: Callable[[str], None]
) -> None:
    dispatch()
    later("120 seconds")
    rows = api.get(START).text.rpartition('id="turns"')[2]
    assert '<span class="state bad">stuck</span>' in rows
