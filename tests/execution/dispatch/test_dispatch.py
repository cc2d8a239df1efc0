"""Dispatch: what it writes, each way that it refuses and then writes nothing, idempotency, depth, and races."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from cardbox_cli.errors import CorrelationConflict, SchemaMissing
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchOutcome, DispatchRequest, Handover, Parent
from cardbox_cli.execution.notifications.notifier import wakeup_for
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue.claims import ack, claim
from cardbox_cli.execution.queue.messages import TURN
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.execution.headers import parse_depth, parse_lineage, parse_trace_id
from cardbox_cli.model.execution.turns import MAX_DEPTH, QUEUED, new_id
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.packing.recipe_files import read_recipe
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.execution.inbox_store import NewRow
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.projects import ProjectsStore
from tests.conftest import PROJECT
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked, Heard
from tests.foreign.writer import Deployment

Counts = Callable[[], dict[str, int]]
AtOnce = Callable[[Callable[[], Any]], Future[Any]]
TRACE = "0af7651916cd43dd8448eb211c80319c"

pytestmark = pytest.mark.usefixtures("watched")


class TestAccepted:
    def test_an_idle_agent_is_leased_in_the_same_transaction(
        self, ask: Asked, desk: Desk, context_box: str, heard: Heard
    ) -> None:
        result = ask()
        head, row = desk.head(), desk.row(result.inbox_id or "")
        assert (result.status, result.turn_epoch, result.queue_position) == ("accepted", 1, None)
        assert (head.status, head.active_agent_turn_id, head.turn_epoch) == (
            "dispatched",
            result.agent_turn_id,
            1,
        )
        assert (head.context_box_id, head.output_box_id) == (context_box, result.output_box_id)
        assert (row.status, row.turn_epoch, row.inbox_id) == ("pending", 1, result.agent_turn_id)
        assert row.correlation_id == row.inbox_id
        assert sorted(row.payload) == ["context_box_id", "output_box_id", "profile_box_id", "runtime_config"]
        assert heard.wakeups == [wakeup_for(row, "worker_generic", "dispatch_next")]

    def test_the_edge_matches_the_headers_and_the_head(
        self, ask: Asked, desk: Desk, runtime: Runtime
    ) -> None:
        result = ask(trace_id=TRACE.upper(), channel_id=" desk ")
        [edge] = runtime.turns.edges(result.agent_turn_id or "")
        row, head = desk.row(result.inbox_id or ""), desk.head()
        assert (edge.primitive, edge.edge_phase, edge.correlation_id) == (
            "enqueue",
            "request",
            row.correlation_id,
        )
        assert edge.recursion_depth == parse_depth(row.context_headers) == head.active_recursion_depth == 0
        assert edge.trace_id == parse_trace_id(row.context_headers) == head.trace_id == TRACE
        assert edge.channel_id == row.channel_id == row.context_headers["CG-Channel-Id"] == "desk"
        assert set(edge.metadata["cg_ctx"]) == {
            *(
                "project_id",
                "channel_id",
                "agent_id",
                "agent_turn_id",
                "turn_epoch",
                "step_id",
                "tool_call_id",
            ),
            *("trace_id", "recursion_depth", "parent_agent_id", "parent_agent_turn_id", "parent_step_id"),
        }

    def test_a_busy_agent_queues_in_order(self, ask: Asked, desk: Desk) -> None:
        turns = [ask() for _ in range(3)]
        assert [(turn.turn_epoch, turn.queue_position) for turn in turns] == [(1, None), (None, 1), (None, 2)]
        assert [desk.row(turn.inbox_id or "").status for turn in turns] == ["pending", "queued", "queued"]

    def test_the_oldest_queued_turn_of_an_idle_agent_runs_first(
        self, ask: Asked, desk: Desk, runtime: Runtime
    ) -> None:
        first = ask()
        left = desk.row(first.inbox_id or "")
        with unwatched(runtime.database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL"
            )
            connection.execute("UPDATE state.agent_inbox SET status = 'queued', turn_epoch = 0")
        second = ask()
        assert desk.head().active_agent_turn_id == left.turn_id
        assert (second.turn_epoch, second.queue_position) == (None, 1)

    def test_turns_of_one_agent_can_share_an_output_box(self, ask: Asked) -> None:
        box_id = ask().output_box_id
        assert ask(output_box_id=box_id).output_box_id == box_id

    def test_output_starts_after_the_cards_that_the_box_already_holds(
        self, ask: Asked, runtime: Runtime, context_box: str
    ) -> None:
        box = runtime.boxes.fork(context_box)
        record = runtime.turns.record(ask(output_box_id=box.box_id).agent_turn_id or "")
        assert record is not None
        assert record.output_start == 1

    def test_projects_do_not_see_each_other(
        self, ask: Asked, database: Database, context_box: str, desk: Desk
    ) -> None:
        ProfileStore(database, "q").save({"name": "clerk", "worker_target": "w", "tags": []}, author_id="t")
        provision(database, "q", AgentRequest(agent_id="clerk", profile_name="clerk"))
        other = Runtime(database, "q")
        card = draft_card("task.instruction", "Theirs")
        other.cards.add(card)
        box = other.boxes.create([card.card_id])
        ours = ask(correlation_id="nightly")
        theirs = dispatch(
            other,
            DispatchRequest(target_agent_id="clerk", context_box_id=box.box_id, correlation_id="nightly"),
        ).result
        assert (ours.turn_epoch, theirs.turn_epoch) == (1, 1)
        refused = dispatch(other, DispatchRequest(target_agent_id="clerk", context_box_id=context_box)).result
        assert refused.error_code == "context_box_not_found"
        assert [claimed.row.project_id for claimed in _claims(other)] == ["q"]
        assert desk.take().row.project_id == PROJECT


def _claims(runtime: Runtime) -> list[Any]:
    return claim(runtime, target=None, owner="w", limit=9)


REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no agent": ({"target_agent_id": " "}, "rejected", "missing_agent_id"),
    "an unknown agent": ({"target_agent_id": "nobody"}, "rejected", "agent_not_found"),
    "no context box": ({"context_box_id": None}, "rejected", "missing_context_box_id"),
    "an empty context box id": ({"context_box_id": ""}, "rejected", "missing_context_box_id"),
    "an unknown context box": ({"context_box_id": new_box_id()}, "rejected", "context_box_not_found"),
    "a context box id that is none": ({"context_box_id": "x"}, "rejected", "context_box_not_found"),
    "an output box id that is none": ({"output_box_id": "x"}, "rejected", "output_box_not_found"),
    "an unknown profile box": ({"profile_box_id": new_box_id()}, "rejected", "profile_not_found"),
    "a profile box id that is none": ({"profile_box_id": "x"}, "rejected", "profile_not_found"),
    "an unknown source": ({"source_agent_id": "stranger"}, "rejected", "invalid_source_actor"),
    "an unknown parent": (
        {"parent": Parent(agent_turn_id="turn_x")},
        "rejected",
        "parent_turn_not_found",
    ),
    "a trace id that is none": ({"trace_id": "0" * 32}, "rejected", "protocol_violation"),
}


def test_an_agent_of_another_program_that_never_had_a_head_gets_one(ask: Asked, database: Database) -> None:
    database.connection.execute("DELETE FROM state.agent_state_head")
    result = ask()
    assert (result.status, result.turn_epoch) == ("accepted", 1)


class TestRefused:
    """Nothing is written, and the answer says why."""

    @pytest.fixture(autouse=True)
    def nothing_is_written(self, runtime: Runtime, context_box: str, row_counts: Counts) -> Any:
        before: list[dict[str, int]] = []
        self.begin = lambda: before.append(row_counts())
        yield
        assert before, "the test did not begin"
        assert row_counts() == before[-1]

    def test_an_archived_project_is_refused(self, runtime: Runtime, ask: Asked) -> None:
        made = ask(correlation_id="nightly").agent_turn_id
        projects = ProjectsStore(runtime.database)
        projects.update(PROJECT, status="archived")
        self.begin()
        assert (ask().status, ask().error_code) == ("rejected", "project_archived")
        # What was accepted before is answered as it was.
        assert ask(correlation_id="nightly").agent_turn_id == made

    @pytest.mark.parametrize("case", REFUSALS)
    def test_an_invalid_request_is_refused_with_its_error_code(
        self, case: str, runtime: Runtime, context_box: str
    ) -> None:
        options, status, error_code = REFUSALS[case]
        self.begin()
        request = {"target_agent_id": "clerk", "context_box_id": context_box, **options}
        answer = dispatch(runtime, DispatchRequest(**request))
        assert (answer.result.status, answer.result.error_code) == (status, error_code)
        assert (answer.result.agent_turn_id, answer.result.created) == (None, False)
        assert answer.message

    def test_a_profile_box_without_a_profile_is_refused(self, ask: Asked, context_box: str) -> None:
        self.begin()
        assert ask(profile_box_id=context_box).error_code == "profile_not_found"

    def test_an_agent_without_a_worker_target_is_refused(self, ask: Asked, database: Database) -> None:
        database.connection.execute("UPDATE resource.project_agents SET worker_target = ' '")
        self.begin()
        result = ask()
        assert (result.status, result.error_code) == ("error", "worker_target_missing")

    def test_an_agent_with_a_lost_head_is_refused(self, ask: Asked, database: Database) -> None:
        ask()
        database.connection.execute("DELETE FROM state.agent_state_head")
        self.begin()
        result = ask()
        assert (result.status, result.error_code) == ("error", "head_missing")

    def test_a_busy_agent_is_refused_if_the_turn_may_not_queue(
        self, runtime: Runtime, context_box: str, ask: Asked
    ) -> None:
        active = ask()
        self.begin()
        answer = dispatch(
            runtime, DispatchRequest(target_agent_id="clerk", context_box_id=context_box), queue=False
        )
        assert (answer.result.status, answer.result.error_code) == ("busy", "agent_busy")
        assert answer.message == f"agent 'clerk' is busy with turn {active.agent_turn_id}"

    def test_the_output_box_of_another_agents_active_turn_is_refused(self, ask: Asked) -> None:
        box_id = ask().output_box_id
        self.begin()
        assert ask("scribe", output_box_id=box_id).error_code == "output_box_in_use"

    def test_the_output_box_of_another_agents_queued_turn_is_refused(self, ask: Asked) -> None:
        ask()
        box_id = ask().output_box_id
        self.begin()
        assert ask("scribe", output_box_id=(box_id or "").upper()).error_code == "output_box_in_use"

    def test_a_recipe_for_another_profile_is_refused(self, runtime: Runtime) -> None:
        ProfileStore(runtime.database, PROJECT).save(
            {"name": "judge", "worker_target": "w", "tags": []}, author_id="t"
        )
        self.begin()
        answer = delegate(runtime, profile_name="judge")
        assert (answer.result.status, answer.result.error_code) == ("rejected", "profile_mismatch")

    def test_a_dry_run_writes_nothing(self, runtime: Runtime, context_box: str, heard: Heard) -> None:
        self.begin()
        request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box)
        assert dispatch(runtime, request, dry_run=True).result.turn_epoch == 1
        assert heard.wakeups == []

    def test_a_transaction_that_is_rolled_back_writes_nothing(
        self, ask: Asked, runtime: Runtime, heard: Heard
    ) -> None:
        self.begin()
        with suppress(ZeroDivisionError), runtime.transaction():
            assert ask().status == "accepted"
            raise ZeroDivisionError
        assert heard.wakeups == []


def delegate(
    runtime: Runtime, *, profile_name: str = "clerk", instruction: str = "Go", **options: Any
) -> DispatchOutcome:
    """Dispatch to `clerk` what the recipe `delegate` packs."""
    recipe = read_recipe("delegate", folders=[])
    arguments = {"profile_name": profile_name, "instruction": instruction}
    handover = Handover(recipe=recipe.recipe, recipe_name=recipe.name, arguments=arguments)
    return dispatch(runtime, DispatchRequest(target_agent_id="clerk", handover=handover, **options))


class TestIdempotency:
    def test_a_repeated_request_returns_the_first_turn(
        self, ask: Asked, row_counts: Counts, context_box: str
    ) -> None:
        first = ask(correlation_id="c")
        before = row_counts()
        again = ask(correlation_id="c", context_box_id=context_box.upper(), channel_id=" ")
        assert again.created is False
        assert (again.agent_turn_id, again.turn_epoch, again.output_box_id) == (
            first.agent_turn_id,
            first.turn_epoch,
            first.output_box_id,
        )
        assert row_counts() == before

    def test_a_repeated_request_returns_the_first_turn_after_its_end(self, ask: Asked, desk: Desk) -> None:
        first = ask(correlation_id="c")
        ack(desk.runtime, desk.enter().row.inbox_id, owner="w1")
        assert ask(correlation_id="c").agent_turn_id == first.agent_turn_id

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param({"target_agent_id": "scribe"}, id="another agent"),
            pytest.param({"channel_id": "desk"}, id="another channel"),
            pytest.param({"depth": True}, id="another depth"),
            pytest.param({"context": True}, id="another context"),
            pytest.param({"profile": True}, id="another profile"),
        ],
    )
    def test_a_different_request_with_the_same_correlation_id_is_a_conflict(
        self, other: dict[str, Any], ask: Asked, runtime: Runtime, context_box: str, row_counts: Counts
    ) -> None:
        first = ask(correlation_id="c")
        options = dict(other)
        agent_id = options.pop("target_agent_id", "clerk")
        if options.pop("depth", False):
            options["parent"] = Parent(agent_turn_id=first.agent_turn_id or "")
        if options.pop("context", False):
            options["context_box_id"] = runtime.boxes.fork(context_box).box_id
        if options.pop("profile", False):
            saved = ProfileStore(runtime.database, PROJECT).save(
                {"name": "clerk", "worker_target": "worker_generic", "tags": ["new"]}, author_id="t"
            )
            options["profile_box_id"] = saved.profile_box_id
        before = row_counts()
        with pytest.raises(CorrelationConflict) as failure:
            ask(agent_id, correlation_id="c", **options)
        assert failure.value.message == (
            "correlation id 'c' was already used for a different request "
            f"(turn {first.agent_turn_id} of agent 'clerk')"
        )
        assert row_counts() == before

    def test_an_empty_correlation_id_does_not_identify_a_request(self, ask: Asked) -> None:
        assert ask(correlation_id="").agent_turn_id != ask(correlation_id="").agent_turn_id

    def test_a_repeated_recipe_is_not_packed_again(self, runtime: Runtime, row_counts: Counts) -> None:
        first = delegate(runtime, correlation_id="c")
        before = row_counts()
        again = delegate(runtime, correlation_id="c")
        assert (again.result.agent_turn_id, again.packed) == (first.result.agent_turn_id, None)
        assert row_counts() == before
        with pytest.raises(CorrelationConflict):
            delegate(runtime, correlation_id="c", instruction="Something else")

    def test_a_foreign_row_with_the_same_correlation_id_is_a_conflict(
        self, ask: Asked, runtime: Runtime
    ) -> None:
        foreign = NewRow(
            inbox_id="c",
            agent_id="clerk",
            message_type=TURN.name,
            status=QUEUED,
            payload={},
            context_headers={},
            correlation_id="c",
            agent_turn_id=new_id("turn"),
        )
        runtime.inbox.insert(foreign)
        with pytest.raises(CorrelationConflict):
            ask(correlation_id="c")


class TestLineage:
    def test_depth_grows_with_each_descent_up_to_the_limit(
        self, ask: Asked, runtime: Runtime, desk: Desk
    ) -> None:
        parent, found = None, []
        for _ in range(MAX_DEPTH):
            turn = ask(parent=parent)
            row = desk.row(turn.inbox_id or "")
            [edge] = runtime.turns.edges(row.turn_id)[:1]
            assert turn.recursion_depth == parse_depth(row.context_headers) == edge.recursion_depth
            found.append(turn.recursion_depth)
            parent = Parent(agent_turn_id=row.turn_id)
        assert found == list(range(MAX_DEPTH))
        refused = ask(parent=parent)
        assert (refused.status, refused.error_code) == ("rejected", "recursion_depth_exceeded")
        assert ask(parent=parent, depth_policy="peer").recursion_depth == MAX_DEPTH - 1
        assert ask(parent=parent, depth_policy="root").recursion_depth == 0

    def test_the_head_has_the_depth_and_the_trace_of_its_turn(self, ask: Asked, desk: Desk) -> None:
        first = ask()
        ask("scribe", parent=Parent(agent_turn_id=first.agent_turn_id or "", step_id="step_x"))
        head = desk.head("scribe")
        assert (head.active_recursion_depth, head.parent_step_id) == (1, "step_x")
        assert head.trace_id == first.trace_id

    def test_a_child_names_its_parent_and_a_root_does_not(self, ask: Asked, desk: Desk) -> None:
        parent = Parent(agent_turn_id=ask().agent_turn_id or "", step_id="step_x", tool_call_id="call")
        child, root = ask("scribe", parent=parent), ask("scribe", parent=parent, depth_policy="root")
        below, top = (parse_lineage(desk.row(each.inbox_id or "").context_headers) for each in (child, root))
        assert (below.parent_agent_id, below.parent_turn_id) == ("clerk", parent.agent_turn_id)
        assert below.parent_step_id == "step_x"
        assert (top.parent_agent_id, top.parent_turn_id, top.parent_step_id) == (None, None, None)
        for turn in (child, root):
            record = desk.runtime.turns.record(turn.agent_turn_id or "")
            assert record is not None
            assert record.report_to == {
                "agent_id": "clerk",
                "agent_turn_id": parent.agent_turn_id,
                "tool_call_id": "call",
            }


class TestAtTheSameTime:
    def test_the_second_of_two_concurrent_dispatches_is_queued(
        self, ask: Asked, runtime: Runtime, second: Desk, context_box: str, at_once: AtOnce
    ) -> None:
        request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box)
        with runtime.transaction():
            first = ask()
            waiting = at_once(lambda: dispatch(second.runtime, request).result)
        later = waiting.result()
        assert (first.turn_epoch, later.turn_epoch, later.queue_position) == (1, None, 1)

    def test_a_foreign_turn_that_was_queued_meanwhile_runs_first(
        self, ask: Asked, runtime: Runtime, second: Desk, context_box: str, at_once: AtOnce, desk: Desk
    ) -> None:
        request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box)
        with runtime.transaction():
            # It holds the head and leaves it as it is.
            runtime.heads.lock("clerk")
            waiting = at_once(lambda: dispatch(second.runtime, request).result)
            theirs = TestPromotion().put(runtime)
        later = waiting.result()
        assert desk.head().active_agent_turn_id == theirs
        assert (later.turn_epoch, later.queue_position) == (None, 1)

    def test_a_concurrent_repeated_request_returns_the_first_turn(
        self, ask: Asked, runtime: Runtime, second: Desk, context_box: str, at_once: AtOnce
    ) -> None:
        request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box, correlation_id="c")
        with runtime.transaction():
            first = ask(correlation_id="c")
            waiting = at_once(lambda: dispatch(second.runtime, request).result)
        again = waiting.result()
        assert (again.agent_turn_id, again.created) == (first.agent_turn_id, False)

    def test_a_concurrent_correlation_id_for_another_agent_is_a_conflict(
        self,
        ask: Asked,
        runtime: Runtime,
        second: Desk,
        context_box: str,
        at_once: AtOnce,
        row_counts: Counts,
    ) -> None:
        request = DispatchRequest(target_agent_id="scribe", context_box_id=context_box, correlation_id="c")
        with runtime.transaction():
            ask(correlation_id="c")
            waiting = at_once(lambda: dispatch(second.runtime, request))
        before = row_counts()
        with pytest.raises(CorrelationConflict) as failure:
            waiting.result()
        assert failure.value.message == "another dispatch has just used the correlation id 'c'"
        assert row_counts() == before

    @pytest.mark.parametrize("is_there", [False, True], ids=["a new one", "one that is there"])
    def test_two_agents_cannot_take_one_output_box_at_the_same_time(
        self,
        is_there: bool,
        ask: Asked,
        runtime: Runtime,
        second: Desk,
        context_box: str,
        at_once: AtOnce,
    ) -> None:
        box_id = runtime.boxes.create([]).box_id if is_there else new_box_id()
        request = DispatchRequest(target_agent_id="scribe", context_box_id=context_box, output_box_id=box_id)
        with runtime.transaction():
            ask(output_box_id=box_id)
            waiting = at_once(lambda: dispatch(second.runtime, request).result)
        assert waiting.result().error_code == "output_box_in_use"

    def test_a_dispatch_during_the_end_of_the_active_turn_is_accepted(
        self, ask: Asked, runtime: Runtime, second: Desk, context_box: str, at_once: AtOnce, desk: Desk
    ) -> None:
        ask()
        task = desk.enter()
        request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box)
        with runtime.transaction():
            ack(runtime, task.row.inbox_id, owner="w1")
            waiting = at_once(lambda: dispatch(second.runtime, request).result)
        assert waiting.result().turn_epoch == 2


class TestPromotion:
    """What lies queued when an agent is free, and cannot be run, ends; the next one goes."""

    def put(self, runtime: Runtime, **odd: Any) -> str:
        """A queued row of another program, behind the active turn."""
        turn_id = new_id("turn")
        boxes = {name: new_box_id() for name in ("profile_box_id", "context_box_id", "output_box_id")}
        values = {
            "payload": boxes,
            "context_headers": {"traceparent": f"00-{TRACE}-{'1' * 16}-01", "CG-Recursion-Depth": "0"},
            **odd,
        }
        row = NewRow(
            inbox_id=turn_id,
            agent_id="clerk",
            message_type=TURN.name,
            status=QUEUED,
            correlation_id=turn_id,
            agent_turn_id=turn_id,
            **values,
        )
        assert runtime.inbox.insert(row) is not None
        return turn_id

    @pytest.mark.parametrize(
        ("odd", "error"),
        [
            ({"payload": []}, "invalid_payload_type: its payload is not an object"),
            (
                {"payload": {"turn_epoch": 1}},
                "invalid_payload: its payload holds the control key 'turn_epoch'",
            ),
            ({"payload": {}}, "missing_required_fields: its payload has no profile_box_id"),
            ({"context_headers": {}}, "invalid_context: its headers have no valid traceparent"),
        ],
    )
    def test_an_invalid_queued_row_fails_and_the_next_turn_runs(
        self, odd: Any, error: str, ask: Asked, runtime: Runtime, desk: Desk
    ) -> None:
        odd_turn = self.put(runtime, **odd)
        asked = ask()
        assert desk.head().active_agent_turn_id == asked.agent_turn_id
        assert (desk.row(odd_turn).status, desk.row(odd_turn).last_error) == ("error", error)
        assert desk.end_of(odd_turn) == "failed"

    def test_a_queued_row_for_another_agents_output_box_fails(
        self, ask: Asked, runtime: Runtime, desk: Desk
    ) -> None:
        used = ask("scribe")
        headers = desk.row(used.inbox_id or "").payload
        odd_turn = self.put(runtime, payload=headers)
        ask()
        assert desk.row(odd_turn).last_error == (
            f"output_box_in_use: turn {used.agent_turn_id} of agent 'scribe' writes to its output box"
        )

    def test_a_queued_row_of_an_ended_turn_is_skipped(self, ask: Asked, runtime: Runtime, desk: Desk) -> None:
        first = ask()
        again = self.put(runtime)
        with unwatched(runtime.database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_inbox SET agent_turn_id = %s WHERE inbox_id = %s",
                [first.agent_turn_id, again],
            )
        ack(runtime, desk.enter().row.inbox_id, owner="w1")
        assert desk.standing() == ("idle", 1)
        assert desk.row(again).status == "skipped"
        assert desk.end_of(first.agent_turn_id or "") == "success"


class TestOnTablesOfAnotherProgram:
    """Without the tables of cbx dispatch works, claims name what they need."""

    @pytest.fixture
    def target(self, foreign_target: Target) -> Target:
        return foreign_target

    @pytest.fixture
    def runtime(self, database: Database, deployment: Deployment) -> Runtime:
        return Runtime(database, PROJECT)

    def test_dispatch_works_without_the_tables_of_cbx(
        self, runtime: Runtime, ask: Asked, deployment: Deployment
    ) -> None:
        first, second = ask(correlation_id="c"), ask()
        assert (first.turn_epoch, second.queue_position) == (1, 1)
        assert ask(correlation_id="c").created is False
        assert deployment.claim("clerk") == [first.agent_turn_id]

    def test_the_other_program_dispatches_our_queued_turn_next(
        self, runtime: Runtime, ask: Asked, deployment: Deployment
    ) -> None:
        ask()
        second = ask()
        [claimed] = deployment.claim("clerk")
        runtime.database.connection.execute("UPDATE state.agent_state_head SET status = 'idle'")
        assert claimed != second.agent_turn_id
        assert deployment.dispatch_next("clerk") == second.agent_turn_id

    def test_an_output_box_of_another_project_is_refused(
        self, runtime: Runtime, ask: Asked, row_counts: Counts, deployment: Deployment
    ) -> None:
        """Box ids are unique among all projects there."""
        theirs = Runtime(runtime.database, "q").boxes.create([]).box_id
        before = row_counts()
        assert ask(output_box_id=theirs).error_code == "output_box_not_found"
        assert row_counts() == before
        context = deployment.context("Refund order 118")
        odd = deployment.enqueue("clerk", context)
        runtime.database.connection.execute(
            "UPDATE state.agent_inbox SET payload = payload || jsonb_build_object('output_box_id', %s::text)",
            [theirs],
        )
        assert ask().turn_epoch == 1
        assert (runtime.inbox.get(odd.inbox_id).last_error or "").startswith("output_box_not_found: ")

    def test_a_claim_names_the_missing_table(self, runtime: Runtime, ask: Asked) -> None:
        ask()
        with pytest.raises(SchemaMissing, match=r"the database has no table cbx\.turns"):
            _claims(runtime)
