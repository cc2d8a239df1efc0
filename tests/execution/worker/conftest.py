"""Running what was claimed."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.execution.queue.claims import begin, claim
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import Program, Reins, Rest, Run

WORKER = "w1"


@pytest.fixture
def run(runtime: Runtime) -> Callable[..., Rest]:
    """Claim what is due and run it by a command."""

    def run(command: str, *, reins: Reins | None = None, **limits: Any) -> Rest:
        [claimed] = claim(runtime, target=None, owner=WORKER)
        task = begin(runtime, claimed.row, owner=WORKER)
        assert task.kind == "run", task.said
        program = Program(command=command, **limits)
        return Run(lambda action: action(runtime), task, program, reins or Reins(), owner=WORKER).to_rest()

    return run
