"""What needs tables of cbx's own says so on a database that has none, and does nothing."""

import pytest

from tests.conftest import Cbx
from tests.foreign.scenes import suspended
from tests.foreign.tables import rows
from tests.foreign.writer import Deployment

TOLD = ("--expect-epoch", "1", "--reason", "test")
COMMANDS = [
    ("turn", "nudge", "TURN"),
    ("turn", "reclaim", "TURN", *TOLD),
    ("turn", "requeue", "TURN", *TOLD),
    ("turn", "fail", "TURN", *TOLD),
    ("turn", "rebox", "TURN", *TOLD, "--context-box", "BOX"),
    ("turn", "stop", "TURN"),
    ("turn", "retry", "TURN"),
    ("turn", "logs", "TURN"),
    ("turn", "report", "TURN", "--tool-call-id", "CALL", "--result", "done"),
    ("turn", "rebuild", "clerk-1"),
    ("reap",),
    ("worker", "run", "--exec", "true", "--once"),
    ("inbox", "claim"),
    ("inbox", "ack", "TURN"),
    ("inbox", "fail", "TURN", "--error", "test"),
    ("inbox", "defer", "TURN", "--reason", "test"),
    ("inbox", "retry", "TURN"),
    ("inbox", "cancel", "QUEUED"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_command_without_its_table_exits_with_7_and_a_hint(
    command: tuple[str, ...], deployment: Deployment, cbx: Cbx
) -> None:
    turn = suspended(deployment)
    call_id = deployment.waiting_call(turn)
    queued = deployment.enqueue(turn.agent_id, turn.context_box_id)
    values = {
        "TURN": turn.agent_turn_id,
        "QUEUED": queued.agent_turn_id,
        "BOX": turn.context_box_id,
        "CALL": call_id,
    }
    before = rows(deployment.connection)
    result = cbx(*(values.get(word, word) for word in command))
    assert (result.code, result.out) == (7, "")
    message, hint = result.err.splitlines()[-2:]
    assert message.startswith("error: the database has no table cbx.")
    assert hint == "hint: add it with `cbx db init --yes`"
    assert rows(deployment.connection) == before
