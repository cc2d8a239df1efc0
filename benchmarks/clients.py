"""Turns of one worker with a trivial client: one that stays, against one that is started each time."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Row, Side, at_least, process
from benchmarks.workbench import PROJECT, Workbench, cbx, settle
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileStore

_TURNS = 60
_CLIENT = Path(__file__).parents[1] / "examples" / "client.py"


@contextmanager
def _prepare(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    client = f"{shlex.quote(sys.executable)} {shlex.quote(str(_CLIENT))}"
    with bench.database() as database:
        ask = _asking(database)
        settle(database)
        environment = bench.environment(database)
        stays = process(cbx("worker", "run", "--drain", "--serve", f"{client} --serve"), environment)
        comes = process(cbx("worker", "run", "--drain", "--exec", client), environment)
        yield (
            Side(run=stays.run, before=ask, units=_TURNS),
            Side(run=comes.run, before=ask, units=_TURNS),
        )


class _Asking:
    """Dispatches as many turns as are run in a round."""

    def __init__(self, runtime: Runtime, context_box_id: str) -> None:
        self._runtime = runtime
        self._context_box_id = context_box_id

    def __call__(self) -> None:
        for _ in range(_TURNS):
            dispatch(
                self._runtime, DispatchRequest(target_agent_id="clerk", context_box_id=self._context_box_id)
            )


def _asking(database: Database) -> _Asking:
    profile = {"name": "clerk", "worker_target": "worker_generic", "tags": [], "system_prompt": "A clerk."}
    ProfileStore(database, PROJECT).save(profile, author_id="bench")
    provision(database, PROJECT, AgentRequest(agent_id="clerk", profile_name="clerk"))
    runtime = Runtime(database, PROJECT)
    card = draft_card("task.instruction", "Find the cause.")
    runtime.cards.add(card)
    return _Asking(runtime, runtime.boxes.create([card.card_id]).box_id)


ROWS = [
    Row(
        name="turns-serve",
        what=f"worker run --serve: {_TURNS} turns of one step by a client that stays",
        against="worker run --exec: the same by the same client, started for each",
        felt_by="a person whose agents answer faster than a client starts",
        target=at_least(2.5),
        rounds=5,
        prepare=_prepare,
    )
]
