"""One claimed turn, run to where it rests: ended, suspended, or in other hands.

The loop of a turn: calls without results are answered by the commands of their tools; else the command of the
model is asked for the next step. What is done is read from the output box each time, so that a turn goes on
where whoever had it before left it. Knows no threads; the reins tell it when to let go.
"""

from collections.abc import Callable, Mapping
from threading import Event
from typing import Literal, TypeVar

import msgspec

from cardbox_cli.errors import CardConflict, InvalidInput, LeaseLost, NotFound, StaleEpoch
from cardbox_cli.execution.answers import INVALID, BadAnswer
from cardbox_cli.execution.calls import Call, result_card
from cardbox_cli.execution.claims import Task, hand_back
from cardbox_cli.execution.command import MAX_OUTPUT, Ran, run_command
from cardbox_cli.execution.ending import end_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.steps import (
    Step,
    Turn,
    add_result,
    author_of,
    begin_step,
    complete_step,
    enter,
    read_turn,
    suspend,
    take_answer,
)
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.turns import End

_T = TypeVar("_T")

# Does something with a database, again on another connection if the first one breaks.
Attempt = Callable[[Callable[[Runtime], _T]], _T]

FAILED, TIMED_OUT, TOO_LONG = "command_failed", "command_timeout", "output_too_long"
# How much of what is no answer is shown, in characters.
_SHOWN = 1000


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What answers for the model: a command line, the format that it reads, how long it may take in seconds."""

    command: str
    format: str = "openai"
    model: str | None = None
    timeout: float = 600
    max_steps: int = 8
    environment: Mapping[str, str] = {}


class Reins:
    """How whoever runs a turn is told to let go of it: at once, and why."""

    def __init__(self) -> None:
        self.stop = Event()
        self.lost = False

    def lose(self) -> None:
        """The turn is in other hands: nothing of it may be stored."""
        self.lost = True
        self.stop.set()

    def let_go(self) -> None:
        """The worker leaves: the turn is to be handed back."""
        self.stop.set()


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn came to rest. `end` is set when it ended; `said` tells more in words."""

    kind: Literal["ended", "suspended", "lost", "handed_back"]
    agent_id: str
    agent_turn_id: str
    steps: int
    said: str
    error_code: str | None = None
    end: End | None = None
    waiting: list[str] = []


class _Stopped(Exception):
    """A command was told to stop."""


class _Failed(Exception):
    def __init__(self, error_code: str, message: str, details: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.error_code, self.message, self.details = error_code, message, details or {}


class Run:
    """The run of one claimed turn. `attempt` gives it a database, `owner` has its lease."""

    def __init__(self, attempt: Attempt[object], task: Task, program: Program, reins: Reins, *, owner: str) -> None:
        self._attempt = attempt
        self._task = task
        self._program = program
        self._reins = reins
        self._owner = owner
        self._steps = 0

    def to_rest(self) -> Rest:
        """Run it. What it raises is the failure of the database, or a bug."""
        try:
            return self._loop()
        except (StaleEpoch, LeaseLost) as exc:
            return self._rest("lost", exc.message)
        except _Failed as exc:
            return self._fail(exc)
        except NotFound as exc:
            return self._fail(_Failed("box_not_found", exc.message))
        except _Stopped:
            return self._let_go()
