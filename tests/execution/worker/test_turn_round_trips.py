"""How many round trips a turn takes from its claim to its end, those of BEGIN and COMMIT among them."""

from collections.abc import Callable

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from tests.execution.fixtures import Asked
from tests.round_trips import counted

Run = Callable[..., RunOutcome]

ANSWER = """printf '{"role":"assistant","content":"done"}'"""


def test_a_turn_with_one_step_and_no_tools_takes_fourteen_round_trips(
    runtime: Runtime, ask: Asked, run: Run
) -> None:
    """Not the first one of its agent: what all its requests have in common is stored by then."""
    assert runtime.database.keeps_turns
    ask()
    run(ANSWER)
    ask()
    with counted(runtime.database) as trips:
        assert run(ANSWER).kind == "ended"
    assert trips.count == 14
