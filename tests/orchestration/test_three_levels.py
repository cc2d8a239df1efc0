"""A principal forks, its children ask experts: three levels of scripted models, run by `cbx worker run`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import MAX_DEPTH
from cardbox_cli.orchestration.batch_manager import catch_up
from tests.conftest import Cbx
from tests.orchestration.conftest import AddProfile, says

EVERYBODY = {"target_profiles": None, "target_tags": []}


def forks(*profiles: str) -> dict[str, Any]:
    """The call of a model that hands a task to each of these."""
    tasks = [
        {"target_strategy": "new", "target_ref": name, "instruction": f"Part {index}."}
        for index, name in enumerate(profiles)
    ]
    return {"fork_join": {"tasks": tasks}}


CHIEF = says(forks("manager", "manager"), "All is done.")
MANAGER = says(
    {"ask_expert": {"expert_profile": "expert", "question": "Is it so?", "await": True}}, "It is so."
)


@pytest.fixture
def firm(add_profile: AddProfile) -> None:
    """Profiles of three levels, each with workers of its own."""
    for name, handlers in (("chief", ["fork_join"]), ("manager", ["ask_expert"]), ("expert", [])):
        add_profile(name, worker_target=name, allowed_internal_tools=handlers, delegation_policy=EVERYBODY)


def work(cbx: Cbx, target: str, command: str) -> None:
    done = cbx("worker", "run", "--target", target, "--exec", command, "--answers", "auto", "--drain")
    assert done.code == 0, done.err


def children(runtime: Runtime, turn_id: str) -> list[str]:
    """The turns that a turn asked for, in order."""
    found = [edge for edge in runtime.turns.edges(turn_id) if edge.source_agent_turn_id == turn_id]
    return [edge.target_agent_turn_id for edge in found if edge.target_agent_turn_id is not None]


def depth(runtime: Runtime, turn_id: str) -> int:
    row = runtime.inbox.turn_row(turn_id)
    assert row is not None
    return row.lineage.depth


def test_a_tree_of_three_levels_can_be_run_explained_and_drawn(
    cbx: Cbx, firm: None, runtime: Runtime
) -> None:
    root = cbx("launch", "chief", "See to it.", "-o", "id").out.strip()
    work(cbx, "chief", CHIEF)
    work(cbx, "manager", MANAGER)
    managers = children(runtime, root)
    experts = [children(runtime, each)[0] for each in managers]
    assert [depth(runtime, each) for each in (root, *managers, *experts)] == [0, 1, 1, 2, 2]

    name = runtime.database.connection.info.dbname
    runtime.database.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '31 seconds'".encode())
    stalled = cbx("why", root, "-o", "json")
    found = json.loads(stalled.out)
    assert (stalled.code, found["rule"]) == (8, "awaited-stuck")
    assert any(f"its cause is turn {experts[0]}" in each["shows"] for each in found["evidence"])
    assert experts[0] in cbx("why", root).out

    work(cbx, "expert", "echo Yes.")
    work(cbx, "manager", MANAGER)
    work(cbx, "chief", CHIEF)
    assert cbx("turn", "wait", root).out == "All is done.\n"
    [batch] = runtime.batches.newest()
    drawn = cbx("turn", "trace", root).out
    lines = [re.sub(r"  (chief|manager|expert)_\w+", "", line) for line in drawn.splitlines()]
    assert lines[1:] == [
        f"{root}  ended success",
        f"└─ {batch.batch_id}  success, 2 of 2 ended",
        f"   ├─ 0: {managers[0]}  ended success",
        f"   │  └─ {experts[0]}  ended success",
        f"   └─ 1: {managers[1]}  ended success",
        f"      └─ {experts[1]}  ended success",
    ]


def test_nested_forks_end_at_the_depth_limit_and_all_return(
    cbx: Cbx, add_profile: AddProfile, runtime: Runtime, tmp_path: Path
) -> None:
    add_profile(
        "deep", worker_target="deep", allowed_internal_tools=["fork_join"], delegation_policy=EVERYBODY
    )
    call = {"name": "fork_join", "arguments": json.dumps(forks("deep")["fork_join"])}
    made = {"id": "call_0", "type": "function", "function": call}
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"role": "assistant", "content": None, "tool_calls": [made]}))
    root = cbx("launch", "deep", "Go down.", "-o", "id").out.strip()
    work(cbx, "deep", f"""case $(cat) in *'"role":"tool"'*) echo Up. ;; *) cat {answer} ;; esac""")
    assert cbx("turn", "wait", root).out == "Up.\n"
    turn_id, depths = root, [depth(runtime, root)]
    while below := children(runtime, turn_id):
        [turn_id] = below
        depths.append(depth(runtime, turn_id))
    assert depths == list(range(MAX_DEPTH))
    [(refused,)] = runtime.database.connection.execute(
        "SELECT content #>> '{error,message}' FROM cards"
        " WHERE metadata ->> 'type' = 'tool.result' AND content #>> '{status}' = 'failed'"
    ).fetchall()
    assert "recursion_depth_exceeded: delegation depth 20 exceeds the limit of 19" in refused
    assert len(list(runtime.batches.newest())) == MAX_DEPTH - 1
    assert catch_up(runtime).ended == []
