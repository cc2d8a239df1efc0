"""Running what was claimed."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.execution.queue.claims import begin, claim
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import CancellationToken, Run, RunOutcome
from cardbox_cli.execution.worker.turn_ledger import TurnLedger
from cardbox_cli.execution.worker.worker_program import Program, ToolCommands

WORKER = "w1"


@pytest.fixture
def run(runtime: Runtime) -> Callable[..., RunOutcome]:
    """Claim what is due and run it by a command."""

    def run(command: str, *, cancellation: CancellationToken | None = None, **limits: Any) -> RunOutcome:
        [claimed] = claim(runtime, target=None, owner=WORKER)
        task = begin(runtime, claimed.row, owner=WORKER)
        assert task.kind == "run", task.outcome
        program = Program(command=command, **{"tools": ToolCommands(trusts_stored=True), **limits})
        ledger = TurnLedger(task, owner=WORKER)
        return Run(lambda action: action(runtime), ledger, program, cancellation or CancellationToken()).run()

    return run
