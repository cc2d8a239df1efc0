"""Batches whose children are worked through by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.execution.dispatch_requests import Caller
from cardbox_cli.execution.queue.turn_ends import end_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.execution.batches import Batch, BatchTask
from cardbox_cli.model.execution.turns import EndStatus, Fence
from cardbox_cli.model.handwritten.tasks import ForkJoin
from cardbox_cli.orchestration.batch_creation import create_batch
from cardbox_cli.orchestration.batch_manager import BatchManager
from tests.execution.by_hand import enter
from tests.execution.desk import Desk
from tests.orchestration.conftest import task

Fork = Callable[..., str]


@pytest.fixture(autouse=True)
def follower(runtime: Runtime) -> None:
    """Whatever happens to a turn in this project is told to batches."""
    runtime.followers = (BatchManager(),)


@pytest.fixture
def fork(runtime: Runtime) -> Fork:
    """Ask for a batch of so many tasks, or of these; its id."""

    def fork(tasks: Any = 3, caller: Caller | None = None, **options: Any) -> str:
        listed = (
            [task(instruction=f"Part {index}.") for index in range(tasks)]
            if isinstance(tasks, int)
            else tasks
        )
        asked = ForkJoin(tasks=listed, **options)
        return create_batch(runtime, caller or Caller(), asked).batch.batch_id

    return fork


class Family:
    """A batch and its children."""

    def __init__(self, runtime: Runtime, batch_id: str) -> None:
        self.runtime = runtime
        self.batch_id = batch_id

    @property
    def batch(self) -> Batch:
        return self.runtime.batches.get(self.batch_id)

    @property
    def tasks(self) -> list[BatchTask]:
        return self.runtime.batches.tasks(self.batch_id)

    @property
    def statuses(self) -> list[str]:
        return [each.status for each in self.tasks]

    def fence(self, index: int) -> Fence:
        """The fence of a child's turn as it is now."""
        turn_id = self.tasks[index].agent_turn_id or ""
        head = self.runtime.turns.head_of(turn_id)
        assert head is not None
        return head.fence

    def start(self, index: int) -> Fence:
        """A worker takes up a child."""
        fence = self.fence(index)
        enter(self.runtime, fence)
        return fence

    def end(self, index: int, end_status: EndStatus = "success", words: str | None = None) -> None:
        """A child ends, and delivers these words."""
        end_child(self.runtime, self.fence(index), end_status, words)


def end_child(runtime: Runtime, fence: Fence, end_status: EndStatus, words: str | None = None) -> None:
    """A turn ends like this."""
    with runtime.transaction():
        if words is not None:
            head = runtime.heads.hold(fence)
            draft = draft_card(
                "task.deliverable",
                words,
                role="assistant",
                author_id=fence.agent_id,
                metadata={"agent_turn_id": fence.agent_turn_id},
            )
            runtime.cards.add(draft)
            runtime.boxes.append(head.output_box_id or "", [draft.card_id], fence=fence)
        message = None if end_status == "success" else f"it {end_status}"
        error_code = None if end_status == "success" else f"was_{end_status}"
        end_turn(runtime, fence, end_status, error_code=error_code, message=message)


@pytest.fixture
def family(runtime: Runtime, fork: Fork) -> Callable[..., Family]:
    """Ask for a batch, and look after it."""
    return lambda *tasks, **options: Family(runtime, fork(*tasks, **options))


@pytest.fixture
def parent(desk: Desk, asking: Caller) -> Callable[..., Caller]:
    """The caller that asks at this call of a turn which a worker has taken up."""

    def calling(call: str = "tc_fork") -> Caller:
        import msgspec

        assert asking.parent is not None
        at = msgspec.structs.replace(asking.parent, tool_call_id=call)
        return msgspec.structs.replace(asking, parent=at)

    return calling
