"""What follows from turns in rooms above: they are told of each end and each suspension, and asked at each
pass over what is due. Owns the shape of that; a `Runtime` is given those who want it.
"""

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.model.execution.turns import Fence


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn. `error_code` and `message` say why it is no success."""

    agent_turn_id: str
    agent_id: str
    end_status: str
    deliverable_card_id: str | None
    error_code: str | None = None
    message: str | None = None


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower did that was due: `dispatched` and `stopped` are turn ids, `ended` what ended by it.

    `troubles` says what could not be done, and why.
    """

    dispatched: list[str] = []
    stopped: list[str] = []
    ended: list[str] = []
    troubles: list[str] = []


class Follower(Protocol):
    """Who wants to know. It keeps nothing but its configuration: all state is in the rows."""

    def turn_ended(self, runtime: "Runtime", ended: Ended) -> None:
        """A turn has ended. In the transaction of the end, which holds the head of its agent."""

    def turn_suspended(self, runtime: "Runtime", fence: "Fence") -> None:
        """A turn waits now. In the transaction of that, which holds the head of its agent."""

    def catch_up(self, runtime: "Runtime") -> Caught:
        """Do what is due in the project, each thing in a transaction of its own."""
