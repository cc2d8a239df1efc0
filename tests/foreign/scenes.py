"""Every state in which an existing deployment leaves a turn, sound and odd, each made as it comes about there.

A scene takes a deployment and answers the turn that it is about.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.foreign.writer import Deployment, Turn, partial_result

Scene = Callable[[Deployment], Turn]

AGENT = "clerk-1"


def queued_on_an_idle_agent(deployment: Deployment) -> Turn:
    """A dispatcher died between the two halves of a dispatch; nothing there polls such a row."""
    return deployment.enqueue(staffed(deployment), deployment.context("Refund order 118"))


def dispatched(deployment: Deployment) -> Turn:
    """Leased and promoted, and no worker has come yet."""
    return deployment.dispatch(staffed(deployment), deployment.context("Refund order 118"))


def queued_behind_another(deployment: Deployment) -> Turn:
    """The agent is busy, so the second turn waits."""
    running(deployment)
    return deployment.dispatch(AGENT, deployment.context("Refund order 119"))


def claimed(deployment: Deployment) -> Turn:
    """A worker took the row and died before its first step."""
    turn = dispatched(deployment)
    deployment.claim(AGENT)
    return turn


def running(deployment: Deployment) -> Turn:
    """In its first step."""
    return deployment.begin(dispatched(deployment))


def running_without_its_row(deployment: Deployment) -> Turn:
    """Its work failed unseen, the stale row was claimed again and dropped in silence: nobody serves the head."""
    turn = running(deployment)
    deployment.consume(turn)
    return turn


def suspended(deployment: Deployment) -> Turn:
    """Waits for one tool, within its deadline."""
    turn = running(deployment)
    deployment.wait_for(turn, "help")
    return turn


def suspended_without_deadline(deployment: Deployment) -> Turn:
    """A reconciliation cleared the deadline, and died before it wrote the timeout."""
    turn = suspended(deployment)
    deployment.connection.execute("UPDATE state.agent_state_head SET resume_deadline = NULL")
    return turn


def _answered(deployment: Deployment) -> tuple[Turn, str]:
    """A turn that waits, and the row that brings it its result."""
    turn = running(deployment)
    [call] = deployment.wait_for(turn, "help")
    return turn, deployment.report(turn, call, result={"refunded": True})


def reported(deployment: Deployment) -> Turn:
    """The result is there and its row pending."""
    return _answered(deployment)[0]


def result_without_report(deployment: Deployment) -> Turn:
    """The tool saved its result and died before it told anybody."""
    turn = running(deployment)
    [call] = deployment.wait_for(turn, "help")
    deployment.result_card(turn, call, result={"refunded": True})
    return turn


def report_consumed_not_applied(deployment: Deployment) -> Turn:
    """The worker consumed a report that it judged stale, and the turn waits for ever."""
    turn, report = _answered(deployment)
    deployment.consume_row(report)
    return turn


def resumed(deployment: Deployment) -> Turn:
    """Runs again after a result, one epoch further."""
    turn, report = _answered(deployment)
    deployment.claim(AGENT)
    return deployment.resume(turn, report)


def finished(deployment: Deployment) -> Turn:
    """Ended well, after a tool had answered."""
    turn = resumed(deployment)
    deployment.think(turn, "It is refunded.")
    deployment.finish(turn, "Order 118 is refunded.")
    return turn


def failed(deployment: Deployment) -> Turn:
    """Ended with a failed step and a deliverable all the same."""
    turn = running(deployment)
    deployment.finish(turn, "It did not work.", status="failed")
    return turn


def failed_by_its_model(deployment: Deployment) -> Turn:
    """The model gave no answer: the turn failed, with a partial result."""
    turn = running(deployment)
    content = partial_result("llm_error")
    deployment.finish(turn, status="failed", content=content, partial=True, terminal_reason="llm_error")
    return turn


def dropped(deployment: Deployment) -> Turn:
    """A worker judged its row stale and consumed it in silence; the agent was set free by hand."""
    turn = dispatched(deployment)
    deployment.consume(turn)
    deployment.connection.execute(
        "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL, context_box_id = NULL,"
        " output_box_id = NULL"
    )
    return turn


def given_up_by_the_guard(deployment: Deployment) -> Turn:
    """The guard could not wake anybody for a pending row, and gave it up; the agent is elsewhere."""
    turn = queued_on_an_idle_agent(deployment)
    deployment.connection.execute(
        "UPDATE state.agent_inbox SET status = 'error', archived_at = now(), turn_epoch = 1,"
        ' payload = payload || \'{"watchdog_error": "invalid_replay_context"}\''
    )
    return turn


def ran_three_times(deployment: Deployment) -> Turn:
    """Nobody came for twenty seconds: the guard queued the turn twice more, and each row of it was run."""
    turn = dispatched(deployment)
    rows = [deployment.retransmit(turn) for _ in range(2)]
    deployment.finish(deployment.begin(turn))
    for inbox_id in rows:
        deployment.finish(deployment.begin(deployment.now(replace(turn, inbox_id=inbox_id))))
    return turn


def being_reaped(deployment: Deployment) -> Turn:
    """The watchdog has freed the agent, and is about to write how the turn ended."""
    turn = running(deployment)
    deployment.connection.execute(
        "UPDATE state.agent_inbox SET processed_at = now() - interval '400 seconds'"
    )
    deployment.connection.execute(
        "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL, context_box_id = NULL,"
        " output_box_id = NULL, turn_epoch = turn_epoch + 1, updated_at = now()"
    )
    deployment.connection.execute(
        "INSERT INTO state.agent_state_pointers (project_id, agent_id, updated_at) VALUES ('p', 'clerk-1', now())"
    )
    return turn


def reaped(deployment: Deployment) -> Turn:
    """Ended by the watchdog, its row still in processing."""
    return deployment.reap(running(deployment))


def retransmitted(deployment: Deployment) -> Turn:
    """Dispatched, and queued a second time under the same id by the watchdog."""
    turn = dispatched(deployment)
    deployment.retransmit(turn)
    return turn


def retransmitted_and_finished(deployment: Deployment) -> Turn:
    """The turn ended, and its second row was promoted: it is about to run again."""
    turn = dispatched(deployment)
    deployment.retransmit(turn)
    turn = deployment.begin(turn)
    deployment.finish(turn)
    return turn


def asked_to_stop(deployment: Deployment) -> Turn:
    """Running, with a stop beside it."""
    turn = running(deployment)
    deployment.stop(turn)
    return turn


def refused(deployment: Deployment) -> Turn:
    """Queued by a dispatcher that forgot the headers; the row was refused at promotion."""
    turn = queued_on_an_idle_agent(deployment)
    deployment.connection.execute(
        "UPDATE state.agent_inbox SET status = 'error', archived_at = now(), context_headers = '{}',"
        ' payload = payload || \'{"dispatch_error": "invalid_context"}\''
    )
    return turn


def child_of_a_waiting_parent(deployment: Deployment) -> Turn:
    """Dispatched by a tool call of another agent's turn, which is suspended."""
    parent = running(deployment)
    deployment.wait_for(parent, "delegate_async")
    helper = deployment.agent("helper-1", parent.profile_box_id)
    context = deployment.context("Look at order 118")
    return deployment.dispatch(helper, context, source_agent_id=parent.agent_id, parent=parent)


SCENES: list[Scene] = [
    queued_on_an_idle_agent,
    dispatched,
    queued_behind_another,
    claimed,
    running,
    running_without_its_row,
    suspended,
    suspended_without_deadline,
    reported,
    result_without_report,
    report_consumed_not_applied,
    resumed,
    finished,
    failed,
    failed_by_its_model,
    dropped,
    given_up_by_the_guard,
    ran_three_times,
    being_reaped,
    reaped,
    retransmitted,
    retransmitted_and_finished,
    asked_to_stop,
    refused,
    child_of_a_waiting_parent,
]


def staffed(deployment: Deployment) -> str:
    """A deployment with a project, a profile, a tool, and the agent `AGENT`; its id."""
    deployment.project()
    deployment.tool("help", suspend_timeout_seconds=120)
    return deployment.agent(
        AGENT, deployment.profile("clerk", allowed_tools=["help"], llm_config={"model": "m"})
    )
