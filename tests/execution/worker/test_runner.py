"""One claimed turn, run by real commands to where it rests."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.execution.queue.claims import begin, claim
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.recovery.fixes import reclaim, stop
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import CancellationToken, Run, RunOutcome
from cardbox_cli.execution.worker.turn_ledger import TurnLedger
from cardbox_cli.execution.worker.worker_program import Program
from cardbox_cli.model.cards import Card, card_text, draft_card
from cardbox_cli.model.content import JsonContent, ToolResultContent
from cardbox_cli.model.identity import Tool
from cardbox_cli.store.in_use import ForcedBy
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.tools import ToolStore
from tests.conftest import PROJECT
from tests.execution.fixtures import Asked
from tests.execution.worker.conftest import WORKER
from tests.round_trips import counted

# A model in one line: it calls the tool `look` until there is a result, which then is its answer.
LOOKS = f"""{shlex.quote(sys.executable)} -c '
import json, sys
said = json.load(sys.stdin)["messages"]
results = [m["content"] for m in said if m["role"] == "tool"]
call = {{"id": "c1", "type": "function", "function": {{"name": "look", "arguments": sys.argv[1]}}}}
print(json.dumps({{"role": "assistant", "content": results[-1]}} if results else
                 {{"role": "assistant", "content": None, "tool_calls": [call]}}))
' '{{"at": "sky"}}'"""


@pytest.fixture
def look(runtime: Runtime) -> Callable[..., None]:
    """Register the tool `look`, and allow it to the clerk."""

    def register(command: str | None = None, **options: Any) -> None:
        profile = {"name": "clerk", "worker_target": "worker_generic", "tags": [], "allowed_tools": ["look"]}
        entry = ProfileStore(runtime.database, runtime.project_id).save(profile, author_id="t")
        runtime.database.connection.execute(
            "UPDATE resource.project_agents SET profile_box_id = %s", [entry.profile_box_id]
        )
        after = options.pop("after_execution", None)
        tool = Tool(
            tool_name="look",
            description="Looks.",
            parameters={"type": "object", "properties": {}},
            target_subject=None,
            after_execution=after,
            options={**({"exec": command} if command else {}), **options},
        )
        ToolStore(runtime.database, runtime.project_id).add(tool, actor="t")

    return register


@contextmanager
def once(path: Path, action: Callable[[], None]) -> Iterator[None]:
    """Do `action` in another thread as soon as this file is there."""

    def watch() -> None:
        while not path.exists():
            time.sleep(0.01)
        action()

    thread = Thread(target=watch)
    thread.start()
    yield
    thread.join()


def written(runtime: Runtime, box_id: str | None) -> list[tuple[str, Any]]:
    """The types of an output box's cards, and what they say."""
    assert box_id is not None
    return [(card.type, card_text(card.content)) for card in cards(runtime, box_id)]


def cards(runtime: Runtime, box_id: str | None) -> list[Card]:
    assert box_id is not None
    return [slot.card for slot in runtime.boxes.slots(box_id) if slot.card is not None]


def fallback(runtime: Runtime, box_id: str | None) -> Any:
    last = cards(runtime, box_id)[-1]
    assert isinstance(last.content, JsonContent)
    return last.content.data


def test_a_plain_answer_is_the_deliverable(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome]
) -> None:
    turn = ask()
    rest = run("printf done")
    assert (rest.kind, rest.message, rest.steps) == ("ended", "success", 1)
    assert written(runtime, turn.output_box_id) == [("agent.thought", "done"), ("task.deliverable", "done")]
    assert rest.end is not None
    assert rest.end.deliverable_card_id == cards(runtime, turn.output_box_id)[-1].card_id
    [step] = runtime.turns.steps(rest.agent_turn_id)
    assert (step.status, step.ended_at is not None) == ("completed", True)


def test_the_request_of_a_step_is_stored(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], context_box: str, tmp_path: Path
) -> None:
    turn = ask()
    run(f"tee {tmp_path}/request; env | grep ^CBX_ > {tmp_path}/env; printf done")
    request = json.loads((tmp_path / "request").read_text())
    assert request["messages"] == [
        {"role": "system", "content": "You are a clerk."},
        {"role": "user", "content": "Find the cause."},
    ]
    [step] = runtime.turns.steps(turn.agent_turn_id or "")
    assert [text for _, text in written(runtime, step.request_box_id)] == [
        "You are a clerk.",
        "Find the cause.",
    ]
    environment = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert {
        "CBX_PROJECT": "p",
        "CBX_AGENT": "clerk",
        "CBX_TURN_ID": turn.agent_turn_id,
        "CBX_TURN_EPOCH": "1",
        "CBX_STEP": step.step_id,
        "CBX_CONTEXT_BOX": context_box,
        "CBX_OUTPUT_BOX": turn.output_box_id,
    }.items() <= environment.items()


def test_a_registered_command_answers_a_call(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: Callable[..., None]
) -> None:
    look("cat")
    turn = ask()
    rest = run(LOOKS)
    assert (rest.kind, rest.message, rest.steps) == ("ended", "success", 2)
    assert written(runtime, turn.output_box_id) == [
        ("agent.thought", ""),
        ("tool.call", '{"tool_name":"look","arguments":{"at":"sky"},"status":"called"}'),
        ("tool.result", '{"at":"sky"}'),
        ("agent.thought", '{"at":"sky"}'),
        ("task.deliverable", '{"at":"sky"}'),
    ]
    steps = runtime.turns.steps(rest.agent_turn_id)
    assert [(step.status, step.tool_call_ids) for step in steps] == [
        ("completed", ["c1"]),
        ("completed", None),
    ]


def test_a_call_id_that_another_turn_used_gets_a_new_one(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: Callable[..., None]
) -> None:
    look("cat")
    ask()
    run(LOOKS)
    turn = ask()
    assert run(LOOKS).message == "success"
    thought, call, result, *_ = cards(runtime, turn.output_box_id)
    assert call.tool_call_id is not None
    assert call.tool_call_id.startswith("tc_")
    assert thought.tool_calls[0]["id"] == result.tool_call_id == call.tool_call_id


@pytest.mark.parametrize(
    ("command", "options", "code", "message"),
    [
        ("echo why >&2; exit 3", {}, "tool_failed", "the tool 'look' ended with exit code 3\nwhy"),
        (
            "sleep 100",
            {"timeout_seconds": 0.2},
            "tool_timeout",
            "the tool 'look' took longer than 0.2 seconds",
        ),
        ("printf '\\377'", {}, "invalid_result", "the output of tool 'look' cannot be stored: …"),
    ],
)
def test_a_failing_tool_gives_a_failed_result(
    runtime: Runtime,
    ask: Asked,
    run: Callable[..., RunOutcome],
    look: Callable[..., None],
    command: str,
    options: dict[str, Any],
    code: str,
    message: str,
) -> None:
    look(command, **options)
    turn = ask()
    assert run(LOOKS).message == "success"
    result = cards(runtime, turn.output_box_id)[2].content
    assert isinstance(result, ToolResultContent)
    assert result.error["code"] == code
    assert result.error["message"].startswith(message.rstrip("…"))
    assert result.status == ("timeout" if code == "tool_timeout" else "failed")


def test_an_invalid_call_gives_a_failed_result(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: Callable[..., None]
) -> None:
    turn = ask()
    run(LOOKS)
    assert "this agent has no tool 'look'" in written(runtime, turn.output_box_id)[2][1]
    look("cat")
    turn = ask()
    run(LOOKS.replace('{"at": "sky"}', "{half"))
    assert "the arguments are not a JSON object: '{half'" in written(runtime, turn.output_box_id)[2][1]
    turn = ask()
    run(LOOKS.replace('"sky"', "1e5000"))
    assert "the arguments.at: is a number" in written(runtime, turn.output_box_id)[2][1]


def test_a_tool_can_end_the_turn(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: Callable[..., None]
) -> None:
    look("cat", after_execution="terminate")
    turn = ask()
    rest = run(LOOKS)
    assert (rest.kind, rest.message, rest.steps) == ("ended", "success", 1)
    assert fallback(runtime, turn.output_box_id)["message"] == "a tool's result ended the turn"


def test_a_call_without_a_command_waits_for_its_report(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: Callable[..., None]
) -> None:
    look()
    turn = ask()
    rest = run(LOOKS)
    assert (rest.kind, rest.message, rest.waiting) == ("suspended", "waits for c1", ["c1"])
    head = runtime.heads.get("clerk")
    assert head is not None
    assert (head.status, head.waiting_tool_count, head.resume_deadline is not None) == ("suspended", 1, True)
    assert [row.status for row in runtime.inbox.list_by_turn(rest.agent_turn_id)] == ["consumed"]
    content = ToolResultContent("success", "suspend", result="blue")
    report_result(runtime, rest.agent_turn_id, "c1", content, source_agent_id="tool.look")
    rest = run(LOOKS)
    assert (rest.kind, rest.message) == ("ended", "success")
    assert written(runtime, turn.output_box_id)[-1] == ("task.deliverable", "blue")
    assert [step.status for step in runtime.turns.steps(rest.agent_turn_id)] == ["completed", "completed"]


@pytest.mark.parametrize(
    ("command", "limits", "code", "message"),
    [
        ("cat >/dev/null; echo why >&2; exit 7", {}, "command_failed", "the command ended with exit code 7"),
        ("true", {}, "empty_answer", "the command printed nothing"),
        ("printf '\\377'", {}, "invalid_answer", "the output is not UTF-8: byte 0 is 0xff"),
        (LOOKS, {"max_steps": 1}, "max_steps_reached", "the model did not finish within 1 step"),
    ],
)
def test_a_command_that_fails_fails_the_turn(
    runtime: Runtime,
    ask: Asked,
    run: Callable[..., RunOutcome],
    command: str,
    limits: dict[str, Any],
    code: str,
    message: str,
) -> None:
    turn = ask()
    rest = run(command, **limits)
    assert (rest.kind, rest.error_code, rest.message) == ("ended", code, message)
    assert rest.end is not None
    assert rest.end.end_status == "failed"
    left = fallback(runtime, turn.output_box_id)
    assert (left["kind"], left["message"]) == ("fallback_deliverable", message)
    if "echo why" in command:
        assert left["diagnostics"]["stderr_tail"] == "why\n"


def test_cards_without_a_deliverable_get_one(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome]
) -> None:
    turn = ask()
    card = {"type": "agent.thought", "content": {"__type__": "TextContent", "text": "hm"}}
    assert run(f"echo {shlex.quote(json.dumps(card))}", answers="cards").message == "success"
    assert fallback(runtime, turn.output_box_id)["kind"] == "fallback_deliverable"


def test_a_turn_that_is_lost_during_a_command_stores_nothing(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], tmp_path: Path
) -> None:
    turn = ask()
    cancellation = CancellationToken()
    with once(tmp_path / "begun", lambda: cancellation.cancel(lost=True)):
        rest = run(f"touch {tmp_path}/begun; sleep 100; printf done", cancellation=cancellation)
    assert (rest.kind, written(runtime, turn.output_box_id)) == ("lost", [])


def test_a_turn_that_ended_meanwhile_is_not_written_to(
    runtime: Runtime, ask: Asked, context_box: str
) -> None:
    turn = ask()
    [claimed] = claim(runtime, target=None, owner=WORKER)
    task = begin(runtime, claimed.row, owner=WORKER)
    stop(runtime, turn.agent_turn_id or "", actor="ops", reason="enough")
    run = Run(
        lambda action: action(runtime),
        TurnLedger(task, owner=WORKER),
        Program(command="printf done"),
        CancellationToken(),
    )
    rest = run.run()
    assert rest.kind == "lost"
    assert "it ended (canceled)" in rest.message
    assert [name for name, _ in written(runtime, turn.output_box_id)] == ["task.deliverable"]


def test_a_worker_that_shuts_down_hands_its_turn_back(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], tmp_path: Path
) -> None:
    turn = ask()
    cancellation = CancellationToken()
    with once(tmp_path / "begun", cancellation.cancel):
        assert run(f"touch {tmp_path}/begun; sleep 100", cancellation=cancellation).kind == "handed_back"
    [row] = runtime.inbox.list_by_turn(turn.agent_turn_id or "")
    assert (row.status, row.turn_epoch, row.retry_count) == ("pending", 2, 0)
    assert run("printf done").message == "success"
    assert written(runtime, turn.output_box_id) == [("agent.thought", "done"), ("task.deliverable", "done")]
    assert [step.status for step in runtime.turns.steps(row.turn_id)] == ["failed", "completed"]


def test_another_worker_continues_with_the_existing_calls(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: Callable[..., None], tmp_path: Path
) -> None:
    look(f"test -e {tmp_path}/ready && echo blue || {{ touch {tmp_path}/begun; sleep 100; }}")
    turn = ask()
    cancellation = CancellationToken()
    with once(tmp_path / "begun", lambda: cancellation.cancel(lost=True)):
        assert run(LOOKS, cancellation=cancellation).kind == "lost"
    reclaim(runtime, turn.agent_turn_id or "", expect_epoch=1, actor="ops", reason="it hangs")
    (tmp_path / "ready").touch()
    rest = run(LOOKS)
    assert (rest.message, rest.steps) == ("success", 2)
    assert [name for name, _ in written(runtime, turn.output_box_id)] == [
        "agent.thought",
        "tool.call",
        "tool.result",
        "agent.thought",
        "task.deliverable",
    ]


def test_a_missing_box_fails_the_turn(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], context_box: str
) -> None:
    ask()
    runtime.database.connection.execute("DELETE FROM public.card_boxes WHERE box_id = %s", [context_box])
    rest = run("printf done")
    assert (rest.kind, rest.error_code) == ("ended", "context_incomplete")
    assert f"no box '{context_box}'" in rest.message


def test_a_turn_with_missing_cards_is_not_run(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], tmp_path: Path
) -> None:
    """Its model is not asked, unless the project allows it; what it had written before does not matter."""
    projects, connection = ProjectsStore(runtime.database), runtime.database.connection
    profile_box = runtime.roster.get("clerk").profile_box_id
    [profile] = runtime.boxes.get(profile_box).card_ids

    def asked() -> tuple[str | None, str]:
        drafts = [
            draft_card("task.instruction", "Go."),
            draft_card("task.instruction", "On.", ttl_seconds=3600),
        ]
        ids = [runtime.cards.add(draft).card.card_id for draft in drafts]
        context = runtime.boxes.create([*ids, "nowhere"], allow_dangling=True)
        before = runtime.boxes.create(["gone"], allow_dangling=True)
        turn = ask(context_box_id=context.box_id, output_box_id=before.box_id).agent_turn_id
        runtime.cards.delete(ids[:1], force=ForcedBy(actor="me"))
        connection.execute("UPDATE cards SET expires_at = now() WHERE card_id = %s", [ids[1]])
        rest = run(f"cat > {tmp_path}/request; printf done")
        lacking = [
            f"{ids[0]} of the context box",
            f"{ids[1]} of the context box",
            "nowhere of the context box",
        ]
        assert all(card in rest.message for card in lacking) is (rest.error_code is not None)
        assert runtime.turns.steps(turn or "") != [] or rest.error_code is not None
        return rest.error_code, rest.message

    assert asked()[0] == "context_incomplete"
    assert not (tmp_path / "request").exists()
    projects.configure(PROJECT, allow_incomplete_context=True)
    assert asked() == (None, "success")

    def prompt_is(card_ids: list[str]) -> None:
        sql = "UPDATE card_boxes SET card_ids = %s WHERE box_id = %s"
        connection.execute(sql, [Jsonb(card_ids), profile_box])

    ask()
    prompt_is([])
    assert run("printf done").message == "success"
    projects.configure(PROJECT, allow_incomplete_context=False)
    prompt_is([profile])
    ask()
    prompt_is([])
    rest = run("printf done")
    assert rest.error_code == "context_incomplete"
    assert f"profile box {profile_box} has no profile" in rest.message
    prompt_is([profile])
    ask()
    assert run("printf done").message == "success"


def test_the_dispatch_can_set_the_model_and_the_limits(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], tmp_path: Path
) -> None:
    ask(runtime_config={"model": "small", "max_steps": 3, "colour": "red"})
    run(f"cat > {tmp_path}/request; printf done", options=ComposeOptions(model="large"))
    assert json.loads((tmp_path / "request").read_text())["model"] == "small"
    slow = ask(runtime_config={"timeout": 0.1})
    failure = run("sleep 100").failure
    assert failure is not None
    assert failure.error_code == "command_timeout"
    stop(runtime, slow.agent_turn_id or "", actor="ops", reason="enough")
    ask(runtime_config={"timeout": "soon"})
    rest = run("printf done")
    assert rest.error_code == "invalid_runtime_config"
    assert (
        rest.message
        == "the turn's runtime_config is invalid: Expected `float | null`, got `str` - at `$.timeout`"
    )


def test_earlier_output_is_history_and_not_an_answer(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], tmp_path: Path
) -> None:
    first = ask()
    run("printf one")
    second = ask(output_box_id=first.output_box_id)
    assert run(f"cat > {tmp_path}/request; printf two").message == "success"
    said = [message["content"] for message in json.loads((tmp_path / "request").read_text())["messages"]]
    assert said == ["You are a clerk.", "one", "one", "Find the cause."]
    assert written(runtime, second.output_box_id)[2:] == [
        ("agent.thought", "two"),
        ("task.deliverable", "two"),
    ]


def test_a_turn_with_one_tool_takes_thirty_round_trips(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: Callable[..., None]
) -> None:
    """From its claim to its end, BEGIN and COMMIT among them; not the first turn of its agent."""
    look("cat")
    ask()
    run(LOOKS)
    ask()
    with counted(runtime.database) as trips:
        assert run(LOOKS).steps == 2
    assert trips.count == 30
