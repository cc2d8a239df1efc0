"""Boxes of turns that are mended: a stuck one taken to a good end by what is printed, and a suspended one."""

import json
import re
import shlex

from cardbox_cli.execution.worker.ledger import read_turn
from cardbox_cli.model.cards import draft_card
from tests.conftest import Cbx
from tests.diagnosis.conftest import ASKED, CALLED, World, world
from tests.execution.desk import Desk
from tests.execution.fixtures import Asked

__all__ = ["world"]


def printed(text: str) -> list[list[str]]:
    """The commands in a text, as a shell reads them."""
    return [shlex.split(line)[1:] for line in re.findall(r"`(cbx [^`]+)`", text)]


def test_the_printed_commands_finish_a_stuck_turn(world: World) -> None:
    # A call of the context has no result: the provider would refuse what the turn is about to ask.
    turn = world.ask(context_box_id=world.box(ASKED, CALLED))
    found = world.why(turn)
    assert (found["verdict"], found["rule"]) == ("stuck", "history-refused")

    # `why` prints what shows it, and what mends a copy of the context.
    show, repair, *_ = printed(found["next_actor"])
    assert world.cbx(*show).code == 8
    repaired = world.cbx(*repair)
    assert repaired.code == 0, repaired.err

    # The repair prints what gives the turn the new box.
    [rebox] = printed(repaired.err)
    assert world.cbx(*rebox).code == 0

    # Nothing is left to be refused, and the turn runs to its end.
    assert world.cbx(*show).code == 0
    assert world.why(turn)["rule"] == "dispatched"
    world.drain()
    assert (world.why(turn)["verdict"], world.cbx("turn", "wait", turn).out) == ("ended", "done\n")


def test_leftovers_of_an_earlier_turn_are_repaired_in_the_output_box(world: World) -> None:
    turn = world.ask(output_box_id=world.box(ASKED, CALLED))
    _, repair, *_ = printed(world.why(turn)["next_actor"])
    [rebox] = printed(world.cbx(*repair).err)
    assert "--output-box" in rebox
    assert world.cbx(*rebox).code == 0
    world.drain()
    assert world.why(turn)["verdict"] == "ended"


def test_the_output_box_of_a_suspended_turn_can_be_compressed(ask: Asked, desk: Desk, cbx: Cbx) -> None:
    """The instruction still comes before what the turn itself has done."""
    runtime = desk.runtime
    earlier = [draft_card("agent.thought", "Well."), draft_card("chat.message", "Before.")]
    for draft in earlier:
        runtime.cards.add(draft)
    before = runtime.boxes.create([draft.card_id for draft in earlier])
    asked = ask(output_box_id=before.box_id)
    turn, old = asked.agent_turn_id or "", asked.output_box_id or ""
    task = desk.enter()
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    own = {"agent_turn_id": turn}
    cards = [
        draft_card("agent.thought", "", tool_calls=[call], metadata=own),
        draft_card("tool.result", "seen", tool_call_id="c1", metadata=own),
        draft_card("agent.thought", "", tool_calls=[{**call, "id": "c2"}], metadata=own),
    ]
    for draft in cards:
        runtime.cards.add(draft)
    runtime.boxes.append(old, [draft.card_id for draft in cards], fence=task.fence)
    desk.suspend(task, "c2")

    made = cbx("box", "compress", old, "--summary", "It was seen.", "--keep", "0")
    assert made.code == 0, made.err
    [rebox] = printed(made.err)
    assert cbx(*rebox).code == 0
    desk.report(turn, "c2")
    sees = read_turn(runtime, desk.take().fence).boxes.history
    kinds = [entry.slot.card.type for entry in sees if entry.slot.card is not None]
    assert kinds == [
        "context.compression",
        "chat.message",
        "task.instruction",
        "agent.thought",
        "tool.result",
    ]


def test_repair_keeps_an_open_call_of_a_suspended_turn(world: World) -> None:
    world.ask()
    turn = world.suspend()
    output = json.loads(world.cbx("turn", "show", turn, "-o", "json").out)["output_box_id"]
    context = json.loads(world.cbx("turn", "show", turn, "-o", "json").out)["context_box_id"]
    words = ("box", "repair", output, "--after", context, "--drop-orphans", "-o", "id")
    assert world.cbx(*words).out == f"{output}\n"
    assert world.cbx("box", "compress", output, "--summary", "s", "--keep", "0").code == 4
