"""What a delegation makes: the target's agent, its context, its turn; and what is refused, with its path."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from cardbox_cli.errors import BadRequest, NotAccepted, NotAllowed, NotFound
from cardbox_cli.execution.dispatch_requests import Caller, DispatchResult, calling_turn, named_caller
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import card_text, draft_card
from cardbox_cli.orchestration.delegation import Delegation, dispatch_delegation, prepare
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT
from tests.execution.desk import Desk
from tests.orchestration.conftest import AddProfile, finish, task

Ask = Callable[..., DispatchResult]

OPERATOR = Caller()


def one(runtime: Runtime, caller: Caller, *arguments: Any, **more: Any) -> Delegation:
    (made,) = prepare(runtime, caller, [task(*arguments, **more)], tool_suffix="delegate_async")
    return made


def texts(runtime: Runtime, box_id: str) -> list[tuple[str, str]]:
    return [(card.type, card_text(card.content)) for card in runtime.boxes.view(box_id).cards]


def new_box(runtime: Runtime, *words: str) -> str:
    drafts = [draft_card("task.instruction", each) for each in words]
    for draft in drafts:
        runtime.cards.add(draft)
    return runtime.boxes.create([draft.card_id for draft in drafts]).box_id


def test_new_creates_an_agent_of_the_profile_owned_by_the_caller(runtime: Runtime, asking: Caller) -> None:
    made = one(runtime, asking, "new", "clerk", "Count the words.")
    agent = runtime.roster.get(made.agent_id)
    assert made.agent_id.startswith("clerk_")
    assert (agent.owner_agent_id, agent.profile_name, agent.worker_target) == (
        "lead",
        "clerk",
        "worker_generic",
    )
    head = runtime.heads.get(made.agent_id)
    assert head is not None
    assert head.status == "idle"
    assert texts(runtime, made.context_box_id) == [
        ("task.instruction", "Count the words."),
        ("meta.parent_pointer", '{"parent_agent_id":"lead"}'),
    ]


def test_the_context_box_precedes_the_cards_that_a_clone_inherits(
    runtime: Runtime, desk: Desk, ask: Ask
) -> None:
    ask("scribe")
    finish(desk, "What the scribe wrote.")
    box_id = new_box(runtime, "Given.")
    made = one(runtime, OPERATOR, "clone", "scribe", "Go on.", context_box_id=box_id)
    said = [text for _, text in texts(runtime, made.context_box_id)]
    assert said[:3] == ["Given.", "What the scribe wrote.", "Go on."]
    agent = runtime.roster.get(made.agent_id)
    assert agent.metadata["derived_from"] == agent.owner_agent_id == "scribe"
    assert agent.metadata["spawned_by"] == "sys.operator"
    assert made.output_box_id is None


def test_reuse_continues_the_last_output_box_of_the_agent(runtime: Runtime, desk: Desk, ask: Ask) -> None:
    written = ask("scribe").output_box_id
    finish(desk, "What the scribe wrote.")
    made = one(runtime, OPERATOR, "reuse", "scribe", "Once more.")
    assert (made.agent_id, made.output_box_id) == ("scribe", written)
    assert texts(runtime, made.context_box_id)[0] == ("task.instruction", "Once more.")
    with runtime.transaction():
        asked = dispatch_delegation(runtime, made, OPERATOR)
    assert asked.output_box_id == written


def test_reuse_of_a_busy_agent_queues_a_turn_with_its_current_output_box(runtime: Runtime, ask: Ask) -> None:
    writing = ask("scribe").output_box_id
    made = one(runtime, OPERATOR, "reuse", "scribe")
    with runtime.transaction():
        asked = dispatch_delegation(runtime, made, OPERATOR)
    assert (asked.output_box_id, asked.turn_epoch, asked.queue_position) == (writing, None, 1)


def test_reuse_of_an_agent_without_turns_starts_a_new_output_box(runtime: Runtime) -> None:
    assert one(runtime, OPERATOR, "reuse", "scribe").output_box_id is None


def test_reuse_and_clone_keep_the_profile_version_of_the_agent(
    runtime: Runtime, add_profile: AddProfile, desk: Desk, ask: Ask
) -> None:
    first = ProfileStore(runtime.database, PROJECT).get("clerk").profile_box_id
    ask("scribe")
    finish(desk, "Done.")
    add_profile("clerk", system_prompt="You are another.")
    assert one(runtime, OPERATOR, "reuse", "scribe").profile_box_id == first
    assert one(runtime, OPERATOR, "clone", "scribe").profile_box_id == first
    assert one(runtime, OPERATOR, "new", "clerk").profile_box_id != first


def test_an_agent_id_from_an_unusual_profile_name_is_valid_in_a_subject(
    runtime: Runtime, add_profile: AddProfile
) -> None:
    add_profile("Dr. Wu > *")
    made = one(runtime, OPERATOR, "new", "dr. wu > *")
    assert made.agent_id.startswith("Dr-Wu_")
    assert made.profile_name == "Dr. Wu > *"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("new", "nobody"), NotFound, "delegate: target_ref: no profile 'nobody' in project 'p'"),
        (("reuse", "nobody"), NotFound, "delegate: target_ref: no agent 'nobody' in project 'p'"),
        (
            ("clone", "scribe"),
            NotFound,
            "delegate: target_ref: agent 'scribe' has no output box to clone: it never had a turn",
        ),
    ],
)
def test_an_unknown_target_is_refused(
    runtime: Runtime, row_counts: Callable[[], dict[str, int]], arguments: Any, error: Any, message: str
) -> None:
    before = row_counts()
    with pytest.raises(error) as caught:
        one(runtime, OPERATOR, *arguments)
    assert caught.value.message == message
    assert row_counts() == before


def test_all_problems_of_all_tasks_are_reported_at_once(runtime: Runtime, asking: Caller) -> None:
    tasks = [task("new", "nobody", context_box_id="x"), task("new", "clerk"), task("reuse", "nobody")]
    with pytest.raises(BadRequest) as caught:
        prepare(runtime, asking, tasks, tool_suffix="fork_join", within=("tasks",))
    paths = [problem["path"] for problem in caught.value.details["problems"]]
    assert paths == ["tasks[0].target_ref", "tasks[0].context_box_id", "tasks[2].target_ref"]
    assert caught.value.message.splitlines()[0] == "fork_join: 3 problems"


def test_a_model_can_pass_on_only_its_own_boxes(runtime: Runtime, asking: Caller) -> None:
    other = new_box(runtime, "Secret.")
    for box_id in (other, "00000000-0000-4000-8000-000000000000"):
        with pytest.raises(NotAllowed) as caught:
            one(runtime, asking, context_box_id=box_id)
        assert caught.value.message.startswith(
            f"delegate_async: context_box_id: unauthorized box_id: {box_id!r}"
        )
    own = runtime.heads.get("lead")
    assert own is not None
    assert texts(runtime, one(runtime, asking, context_box_id=own.context_box_id).context_box_id)[0] == (
        "task.instruction",
        "Find the cause.",
    )


def test_a_model_without_boxes_cannot_pass_on_a_box(runtime: Runtime, context_box: str) -> None:
    blind = Caller(agent_id="clerk", is_model=True, profile={"delegation_policy": {}})
    with pytest.raises(NotAllowed):
        one(runtime, blind, context_box_id=context_box)


def test_a_person_can_pass_on_any_existing_box(runtime: Runtime, context_box: str) -> None:
    one(runtime, OPERATOR, context_box_id=context_box)
    with pytest.raises(NotFound):
        one(runtime, OPERATOR, context_box_id="00000000-0000-4000-8000-000000000000")


def test_targets_and_boxes_of_another_project_are_not_found(runtime: Runtime, database: Database) -> None:
    ProfileStore(database, "q").save(
        {"name": "spy", "worker_target": "worker_generic", "tags": []}, author_id="t"
    )
    provision(database, "q", AgentRequest(agent_id="spy-1", profile_name="spy"))
    box_id = BoxStore(database, "q").create([]).box_id
    for arguments, more in (
        (("new", "spy"), {}),
        (("reuse", "spy-1"), {}),
        (("clone", "spy-1"), {}),
        ((), {"context_box_id": box_id}),
    ):
        with pytest.raises(NotFound, match="in project 'p'"):
            one(runtime, OPERATOR, *arguments, **more)


def test_a_missing_policy_refuses_a_model_and_warns_a_person(runtime: Runtime, ask: Ask) -> None:
    turn_id = ask("clerk").agent_turn_id or ""
    with pytest.raises(NotAllowed, match="has no delegation_policy, so it may not delegate"):
        one(runtime, calling_turn(runtime, turn_id))
    assert one(runtime, named_caller(runtime, "clerk")).notes == [
        "the caller's profile has no delegation_policy, so it may not delegate"
    ]
    assert one(runtime, OPERATOR).notes == []


def test_a_refused_dispatch_writes_nothing(
    runtime: Runtime, asking: Caller, row_counts: Callable[[], dict[str, int]]
) -> None:
    before = row_counts()

    def delegate() -> None:
        with runtime.transaction():
            dispatch_delegation(runtime, one(runtime, asking), asking, trace_id="odd")

    with pytest.raises(NotAccepted) as caught:
        delegate()
    assert caught.value.details["error_code"] == "protocol_violation"
    assert row_counts() == before


def test_an_agent_cannot_run_a_task_that_it_waits_for(
    runtime: Runtime, asking: Caller, ask: Ask, row_counts: Callable[[], dict[str, int]]
) -> None:
    assert asking.parent is not None
    own_turn = asking.parent.agent_turn_id
    waiting = replace(asking, parent=replace(asking.parent, tool_call_id="tc_root"))
    below = ask("scribe", source_agent_id="lead", parent=waiting.parent).agent_turn_id or ""
    before = row_counts()
    for caller in (
        waiting,
        replace(calling_turn(runtime, below, tool_call_id="tc_below"), profile=asking.profile),
    ):
        with pytest.raises(BadRequest) as caught:
            prepare(runtime, caller, [task("reuse", "lead")], tool_suffix="fork_join", within=("tasks",))
        assert caught.value.message == (
            f"fork_join: tasks[0].target_ref: deadlock: turn {own_turn} of agent 'lead' is waiting for this task,"
            " so 'lead' cannot also run it"
        )
    assert row_counts() == before


def test_an_agent_that_does_not_wait_can_give_itself_a_task(
    runtime: Runtime, asking: Caller, ask: Ask
) -> None:
    assert one(runtime, asking, "reuse", "lead").agent_id == "lead"
    below = ask("scribe", source_agent_id="lead", parent=asking.parent).agent_turn_id or ""
    caller = replace(calling_turn(runtime, below, tool_call_id="tc_below"), profile=asking.profile)
    assert one(runtime, caller, "reuse", "lead").agent_id == "lead"
