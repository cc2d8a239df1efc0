"""Boxes that turns and agents use are not changed under them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cardbox_cli.errors import BoxConflict, CardConflict, StaleEpoch
from cardbox_cli.execution.queue.claims import ack
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.recovery.fixes import reclaim, stop
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.boxes import BoxTurn
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT, Cbx
from tests.execution import by_hand
from tests.execution.fixtures import Asked

GOOD = ToolResultContent(status="success", after_execution="suspend", result="42")


@pytest.fixture
def card(runtime: Runtime) -> str:
    return runtime.cards.add(draft_card("task.instruction", "And the cause of that.")).card.card_id


def refused(change: Callable[[], object], saying: str) -> None:
    with pytest.raises(BoxConflict) as raised:
        change()
    assert saying in raised.value.message, raised.value.message


class TestContext:
    def test_the_context_box_of_an_active_turn_cannot_be_changed(
        self, runtime: Runtime, ask: Asked, context_box: str, card: str
    ) -> None:
        boxes = runtime.boxes
        turn = ask().agent_turn_id or ""
        ask("scribe", context_box_id=boxes.fork(context_box).box_id)

        def is_kept(state: str) -> None:
            use = f"box {context_box} is the context box of turn {turn} of agent 'clerk', which {state}"
            refused(lambda: boxes.append(context_box, [card]), use)
            refused(lambda: boxes.replace(context_box, [card]), use)
            refused(lambda: boxes.delete(context_box), use)
            refused(lambda: boxes.check_replaceable(context_box), use)

        is_kept("is active")
        stop(runtime, turn, actor="me", reason=None)
        boxes.append(context_box, [card])
        assert boxes.replace(context_box, [card]).card_ids == [card]

    def test_the_context_box_of_a_queued_turn_cannot_be_changed(
        self, runtime: Runtime, ask: Asked, card: str
    ) -> None:
        ask()
        box = runtime.boxes.create([card]).box_id
        queued = ask(context_box_id=box).agent_turn_id
        use = f"box {box} is the context box of turn {queued} of agent 'clerk', which waits to run"
        refused(lambda: runtime.boxes.append(box, [card]), use)
        stop(runtime, queued or "", actor="me", reason=None)
        runtime.boxes.append(box, [card])

    def test_the_context_box_of_a_suspended_turn_cannot_be_changed(
        self, runtime: Runtime, ask: Asked, context_box: str, card: str
    ) -> None:
        ask()
        fence = by_hand.take(runtime).fence
        by_hand.suspend(runtime, fence, by_hand.enter(runtime, fence), {"call-1": "add"})
        refused(lambda: runtime.boxes.append(context_box, [card]), "which is active")

    def test_a_box_of_another_project_can_be_changed(self, runtime: Runtime, ask: Asked, card: str) -> None:
        ask()
        theirs = BoxStore(runtime.database, "other")
        box = theirs.create([]).box_id
        theirs.append(box, [card], allow_dangling=True)

    def test_an_append_during_a_dispatch_waits_and_is_refused(
        self, runtime: Runtime, ask: Asked, target: Target, context_box: str, card: str
    ) -> None:
        with Database.open_target(target) as other:
            theirs = BoxStore(other, PROJECT)
            with runtime.transaction():
                ask()
                # It cannot be changed while the turn is being asked for …
                other.connection.execute("SET lock_timeout = '50ms'")
                with pytest.raises(
                    Exception,
                    match="conflict with another transaction: canceling statement due to lock timeout",
                ):
                    theirs.append(context_box, [card])
                other.connection.execute("SET lock_timeout = 0")
            # … nor then.
            refused(lambda: theirs.append(context_box, [card]), "which is active")


class TestOutput:
    def test_only_the_turn_can_write_to_its_output_box(self, runtime: Runtime, ask: Asked, card: str) -> None:
        boxes = runtime.boxes
        asked = ask()
        output = asked.output_box_id or ""
        task = by_hand.take(runtime)
        by_hand.enter(runtime, task.fence)
        use = (
            f"box {output} is the output box of turn {asked.agent_turn_id} of agent 'clerk', which is active"
        )
        refused(lambda: boxes.append(output, [card]), use)
        assert boxes.append(output, [card], fence=task.fence) == 1
        ack(runtime, task.row.inbox_id, owner=by_hand.OWNER)
        assert boxes.append(output, [card]) == 3
        with pytest.raises(StaleEpoch):
            boxes.append(output, [card], fence=task.fence)

    def test_the_fence_of_a_lost_lease_cannot_write_to_the_output_box(
        self, runtime: Runtime, ask: Asked, card: str
    ) -> None:
        asked = ask()
        old = by_hand.take(runtime).fence
        reclaim(runtime, old.agent_turn_id, expect_epoch=1, actor="me", reason="it hangs")
        with pytest.raises(StaleEpoch, match="reclaim by me: it hangs"):
            runtime.boxes.append(asked.output_box_id or "", [card], fence=old)
        assert runtime.boxes.get(asked.output_box_id or "").card_ids == []

    def test_a_fence_allows_writing_only_to_the_output_box(
        self, runtime: Runtime, ask: Asked, context_box: str, card: str
    ) -> None:
        asked = ask()
        fence = by_hand.take(runtime).fence
        with pytest.raises(BoxConflict) as raised:
            runtime.boxes.append(context_box, [card], fence=fence)
        assert (
            raised.value.message == f"box {context_box} is not the output box of turn {asked.agent_turn_id}"
        )
        assert raised.value.hint == f"its output box is {asked.output_box_id}"

    def test_an_output_box_can_be_the_context_of_the_next_turn(
        self, runtime: Runtime, ask: Asked, card: str
    ) -> None:
        output = ask().output_box_id or ""
        ask(context_box_id=output)
        fence = by_hand.take(runtime).fence
        assert runtime.boxes.append(output, [card], fence=fence) == 1
        refused(lambda: runtime.boxes.append(output, [card]), "box")


class TestDeletion:
    def test_the_output_box_of_an_agent_cannot_be_deleted(self, runtime: Runtime, ask: Asked) -> None:
        output = ask().output_box_id or ""
        task = by_hand.take(runtime)
        refused(lambda: runtime.boxes.delete(output), "is the output box of turn")
        by_hand.enter(runtime, task.fence)
        ack(runtime, task.row.inbox_id, owner=by_hand.OWNER)
        refused(lambda: runtime.boxes.delete(output), f"box {output} is the last output box of agent 'clerk'")

    def test_a_profile_box_that_only_an_agent_names_cannot_be_deleted(self, runtime: Runtime) -> None:
        agent = runtime.roster.find("clerk")
        assert agent is not None
        runtime.database.connection.execute("DELETE FROM resource.profiles")
        refused(lambda: runtime.boxes.delete(agent.profile_box_id), "is the profile of agent")

    def test_the_context_box_of_an_ended_turn_can_be_deleted(
        self, runtime: Runtime, ask: Asked, context_box: str
    ) -> None:
        stop(runtime, ask().agent_turn_id or "", actor="me", reason=None)
        runtime.boxes.delete(context_box)


def test_no_box_is_in_use_without_the_agent_tables(
    runtime: Runtime, ask: Asked, context_box: str, card: str
) -> None:
    ask()
    runtime.database.connection.execute("DROP SCHEMA state CASCADE")
    runtime.database.clear_table_cache()
    assert runtime.boxes.append(context_box, [card]) == 2
    assert [reference.turns for reference in runtime.boxes.refs(card)] == [[]]
    runtime.boxes.delete(context_box)


def test_references_name_the_turns_of_a_box(runtime: Runtime, ask: Asked, context_box: str) -> None:
    ended = ask("scribe").agent_turn_id or ""
    stop(runtime, ended, actor="me", reason=None)
    asked = ask()
    [card] = runtime.boxes.get(context_box).card_ids
    [reference] = runtime.boxes.refs(card)
    turn = asked.agent_turn_id or ""
    assert reference.turns == [BoxTurn(turn, "clerk", "context"), BoxTurn(ended, "scribe", "context")]
    fence = by_hand.take(runtime).fence
    by_hand.enter(runtime, fence)
    [wrote] = runtime.boxes.refs(by_hand.write(runtime, fence, "a thought"))
    assert wrote.turns == [BoxTurn(turn, "clerk", "output")]


class TestCards:
    def test_cards_that_a_turn_sees_cannot_be_changed(
        self, runtime: Runtime, ask: Asked, context_box: str, card: str
    ) -> None:
        """In its context, its profile and its output, while it waits, runs or is suspended."""
        cards = runtime.cards
        [given] = runtime.boxes.get(context_box).card_ids
        agent = runtime.roster.get("clerk")
        [prompt] = runtime.boxes.get(agent.profile_box_id).card_ids
        later = runtime.boxes.create([card]).box_id
        turn, queued = ask(), ask(context_box_id=later)
        fence = by_hand.take(runtime).fence
        step = by_hand.enter(runtime, fence)
        wrote = by_hand.write(runtime, fence, "a thought")

        def is_kept(card_id: str, saying: str) -> None:
            other = draft_card("task.instruction", "Other.", card_id=card_id)
            for change in (lambda: cards.delete([card_id]), lambda: cards.add(other, repair=True)):
                with pytest.raises(CardConflict) as raised:
                    change()
                assert saying in raised.value.message
                assert "--force" in (raised.value.hint or "")
            assert cards.get(card_id).deleted_at is None

        active = f"of turn {turn.agent_turn_id} of agent 'clerk', which is active"
        boxes = {given: f"context box {context_box}", wrote: f"output box {turn.output_box_id}"}
        boxes[prompt] = f"profile box {agent.profile_box_id}"
        for card_id, box in boxes.items():
            is_kept(card_id, f"card {card_id!r} is in the {box} {active}")
        waits = f"context box {later} of turn {queued.agent_turn_id} of agent 'clerk', which waits to run"
        is_kept(card, waits)
        refused(lambda: runtime.boxes.append(agent.profile_box_id, [card]), "is the profile box of turn")
        by_hand.suspend(runtime, fence, step, {"call-1": "add"})
        is_kept(given, active)
        reported = report_result(runtime, fence.agent_turn_id, "call-1", GOOD, source_agent_id="tool.add")
        is_kept(reported.tool_result_card_id, f"the reported result of a call {active}")
        # Others may be changed, and these when the turn has ended.
        free = draft_card("task.instruction", "Free.")
        assert cards.delete([cards.add(free).card.card_id]) == [free.card_id]
        assert cards.add(free, repair=True).outcome == "repaired"
        stop(runtime, queued.agent_turn_id or "", actor="me", reason=None)
        assert cards.delete([card]) == [card]

    def test_a_person_can_change_cards_in_use_with_force(
        self, cbx: Cbx, runtime: Runtime, ask: Asked, context_box: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turn = ask().agent_turn_id or ""
        [card] = runtime.boxes.get(context_box).card_ids
        repair = ("card", "add", "--type", "task.instruction", "--text", "Other.", "--id", card, "--repair")
        delete = ("card", "delete", card, "--yes")
        for command in (delete, (*delete, "--dry-run"), repair):
            told = cbx(*command)
            assert (told.code, f"context box {context_box} of turn {turn}" in told.err) == (5, True)
        monkeypatch.setenv("CBX_TURN_ID", turn)
        for command in (delete, (*delete, "--force"), repair, (*repair, "--force")):
            told = cbx(*command)
            assert (told.code, f"a command of a turn (CBX_TURN_ID={turn}) may not" in told.err) == (5, True)
        monkeypatch.delenv("CBX_TURN_ID")
        assert runtime.audit.list_by_turn(turn) == []
        assert cbx(*repair[:-1], "--force").code == 2
        assert cbx(*repair, "--force").code == 0
        assert cbx(*delete, "--force").code == 0
        # What was deleted comes back as it was: nothing changes under the turn.
        assert cbx(*repair).code == 0
        audited = runtime.audit.list_by_turn(turn)
        assert [(entry.action, entry.agent_id) for entry in audited] == [
            ("card repair", "clerk"),
            ("card delete", "clerk"),
        ]
        assert audited[0].detail == {"cards": [{"card_id": card, "box_id": context_box, "use": "context"}]}

    def test_an_import_does_not_change_cards_in_use(self, cbx: Cbx, ask: Asked, tmp_path: Path) -> None:
        file = tmp_path / "chat.json"
        file.write_text(json.dumps({"id": "one", "messages": [{"role": "user", "content": "hello"}]}))
        box = cbx("card", "import", str(file), "-o", "id").out.strip()
        ask(context_box_id=box)
        assert cbx("card", "import", str(file), "-o", "id").out.strip() == box
        file.write_text(json.dumps({"id": "one", "messages": [{"role": "user", "content": "bye"}]}))
        assert cbx("card", "import", str(file), "-o", "id").out.strip() != box
        assert "hello" in cbx("box", "show", box, "--full").out


class TestTheCommands:
    def test_box_commands_name_the_turn_that_uses_the_box(
        self, cbx: Cbx, ask: Asked, context_box: str, card: str
    ) -> None:
        turn = ask().agent_turn_id
        for command in (
            ("append", context_box, card),
            ("replace", context_box, card),
            ("delete", context_box, "--yes"),
        ):
            result = cbx("box", *command)
            assert result.code == 5
            assert result.err == (
                f"error: box {context_box} is the context box of turn {turn} of agent 'clerk', which is active\n"
                f"hint: wait for the turn to end, or change a copy: `cbx box fork {context_box}`\n"
            )
        assert cbx("box", "edit", context_box, "--in-place", "--file", "/dev/null").code == 5
        refs = cbx("card", "refs", cbx("box", "show", context_box, "-o", "json").json()["card_ids"][0]).out
        assert f"context of {(turn or '')[-8:]}" in refs

    def test_an_import_does_not_grow_a_box_in_use(
        self, cbx: Cbx, runtime: Runtime, ask: Asked, tmp_path: Path, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        chat = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
        file = tmp_path / "chat.json"
        file.write_text(json.dumps({"id": "one", "messages": chat[:1]}))
        box = cbx("card", "import", str(file), "-o", "id").out.strip()
        ask(context_box_id=box)
        before = row_counts()
        file.write_text(json.dumps({"id": "one", "messages": chat}))
        grown = cbx("card", "import", str(file))
        assert (grown.code, "is the context box of turn" in grown.err) == (5, True)
        assert row_counts() == before

    def test_a_workers_command_writes_to_its_turns_output(
        self, cbx: Cbx, runtime: Runtime, ask: Asked, card: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = ask()
        output = asked.output_box_id or ""
        fence = by_hand.take(runtime).fence
        assert cbx("box", "append", output, card).code == 5
        monkeypatch.setenv("CBX_OUTPUT_BOX", output)
        incomplete = cbx("box", "append", output, card)
        assert incomplete.code == 2
        assert "CBX_AGENT, CBX_TURN_ID and CBX_TURN_EPOCH do not name a turn" in incomplete.err
        monkeypatch.setenv("CBX_AGENT", "clerk")
        monkeypatch.setenv("CBX_TURN_ID", fence.agent_turn_id)
        monkeypatch.setenv("CBX_TURN_EPOCH", "9" * 5000)
        assert cbx("box", "append", output, card).code == 2
        monkeypatch.setenv("CBX_TURN_EPOCH", "1")
        assert cbx("box", "append", output[-8:], card).code == 0
        reclaim(runtime, fence.agent_turn_id, expect_epoch=1, actor="me", reason="it hangs")
        late = cbx("box", "append", output, card, "-o", "json")
        assert (late.code, late.error["code"]) == (5, "stale-epoch")
        assert runtime.boxes.get(output).card_ids == [card]

    def test_a_workers_command_completes_todo_items_of_its_context(
        self, cbx: Cbx, runtime: Runtime, ask: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        context = runtime.boxes.create([]).box_id
        assert cbx("todo", "add", context, "Look", "Call").code == 0
        asked = ask(context_box_id=context)
        output = asked.output_box_id or ""
        fence = by_hand.take(runtime).fence
        assert [cbx("todo", "add", box, "x").code for box in (context, output)] == [5, 5]
        for name, value in {
            "CBX_CONTEXT_BOX": context,
            "CBX_OUTPUT_BOX": output,
            "CBX_AGENT": "clerk",
            "CBX_TURN_ID": fence.agent_turn_id,
            "CBX_TURN_EPOCH": "1",
        }.items():
            monkeypatch.setenv(name, value)
        assert cbx("todo", "add", output, "Write").code == 0
        assert cbx("todo", "done", output, "2").code == 0
        listed = cbx("todo", "list", output, "-o", "json").json()
        assert [(item["text"], item["done"]) for item in listed] == [
            ("Look", False),
            ("Call", True),
            ("Write", False),
        ]
        card = cbx("card", "show", listed[1]["card_id"], "-o", "json").json()
        assert card["author_id"] == "clerk"
        assert card["metadata"]["agent_turn_id"] == fence.agent_turn_id
        assert len(runtime.boxes.get(context).card_ids) == 2
        reclaim(runtime, fence.agent_turn_id, expect_epoch=1, actor="me", reason="it hangs")
        assert cbx("todo", "done", output, "1", "-o", "json").error["code"] == "stale-epoch"
