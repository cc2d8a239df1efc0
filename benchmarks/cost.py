"""The costs of a whole turn, against rendering its last step once: both from the database to the answer.

The turn's history grows by as many cards in each step, and each step's request is stored as a box of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.context.composer import WITHOUT_PROVIDERS
from cardbox_cli.context.cost.account import account_of
from cardbox_cli.context.cost.answer import first_break
from cardbox_cli.context.cost.findings import CostSubject
from cardbox_cli.context.cost.rules import check
from cardbox_cli.context.request import DEFAULT_OPTIONS
from cardbox_cli.execution.requests.recorded_requests import TurnRequests
from cardbox_cli.execution.requests.request_series import read_turn_requests
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import ENDED
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.providers.formats import body_of
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.turn_views import TurnRow

_CARDS, _STEPS, _TIMES = 10_000, 200, 5
_STEP = """\
INSERT INTO state.agent_steps
    (project_id, step_id, agent_id, agent_turn_id, status, request_box_id, output_box_id, started_at)
VALUES (%s, %s, 'agent', %s, 'completed', %s, %s, '2026-01-01'::timestamptz + make_interval(secs => %s))
"""


def _turn(database: Database, steps: int) -> TurnRow:
    """A turn of so many steps, of which the last sent all of the cards."""
    made = drafts(_CARDS)
    CardStore(database, PROJECT).add_many(made)
    boxes, ids = BoxStore(database, PROJECT), [card.card_id for card in made]
    output, turn_id = boxes.create(ids), f"turn_of_{steps}"
    for number in range(1, steps + 1):
        box = boxes.create(ids[: _CARDS * number // steps])
        step = [PROJECT, f"step_{steps}_{number:04}", turn_id, box.box_id, output.box_id, number]
        database.connection.execute(_STEP, step)
    settle(database)
    return TurnRow(
        agent_turn_id=turn_id,
        agent_id="agent",
        status=ENDED,
        turn_epoch=1,
        channel_id="channel",
        trace_id=None,
        recursion_depth=None,
        parent_agent_id=None,
        parent_agent_turn_id=None,
        profile_box_id=None,
        context_box_id=None,
        output_box_id=output.box_id,
        resume_deadline=None,
        created_at=None,
    )


def _cost(database: Database, *turns: TurnRow) -> None:
    for turn in turns:
        with database.snapshot():
            series = read_turn_requests(database, PROJECT, turn)
        account = account_of(series)
        check(CostSubject(account))
        first_break(account)


def _render(database: Database, turn: TurnRow) -> None:
    with database.snapshot():
        requests = TurnRequests(database, PROJECT, turn, HANDLERS)
        found = requests.request(None, DEFAULT_OPTIONS, "openai", WITHOUT_PROVIDERS)
    exact_json.encode(body_of(found.request, "openai"))


@contextmanager
def _shorter(bench: Workbench) -> Iterator[tuple[Database, TurnRow]]:
    """The database of both rows, and its shorter turn."""
    with bench.database() as database:
        yield database, _turn(database, _STEPS)


@contextmanager
def _against_rendering(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    database, turn = bench.shared(_shorter)
    yield Side(run=lambda: _cost(database, turn)), Side(run=lambda: _render(database, turn))


@contextmanager
def _against_fewer(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    database, few = bench.shared(_shorter)
    many = _turn(database, _STEPS * _TIMES)
    yield (
        Side(run=lambda: _cost(database, many), units=_STEPS * _TIMES),
        Side(run=lambda: _cost(database, *[few] * _TIMES), units=_STEPS * _TIMES),
    )


ROWS = [
    Row(
        name="cost-turn",
        what="the costs of a turn of 200 steps over 10,000 cards",
        against="its last step rendered once",
        felt_by="a person who runs cbx cost on a long turn, or opens its page",
        target=at_most(3),
        rounds=10,
        prepare=_against_rendering,
    ),
    Row(
        name="cost-linear",
        what="the costs of a turn of 1,000 steps over 10,000 cards, per step",
        against="of 200 steps, per step",
        felt_by="a person who looks at the costs of an agent that works for days",
        target=at_most(1.3),
        rounds=3,
        prepare=_against_fewer,
    ),
]
