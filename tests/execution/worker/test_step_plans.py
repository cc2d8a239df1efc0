"""A step looks up the cards and boxes that it names, however many others the project has."""

from collections.abc import Callable, Iterator

import pytest

from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.store.connection.target import Target
from tests.execution.fixtures import Asked
from tests.store.test_plans import Explaining, scanned_whole

FILL = """
INSERT INTO cards (tenant_id, card_id, content, metadata)
SELECT 'p', 'card-' || n, '{"__type__": "TextContent", "text": "Order"}', '{"type": "agent.thought"}'
FROM generate_series(1, 3000) AS n;
INSERT INTO card_boxes (tenant_id, box_id, card_ids)
SELECT 'p', gen_random_uuid(), '["card-1"]' FROM generate_series(1, 3000);
ANALYZE
"""


@pytest.fixture
def database(target: Target) -> Iterator[Explaining]:
    with Explaining.connect(target) as opened:
        assert isinstance(opened, Explaining)
        opened.plans = {}
        opened.script(FILL)
        yield opened


def test_a_step_does_not_scan_the_card_tables(
    database: Explaining, ask: Asked, run: Callable[..., RunOutcome]
) -> None:
    """The planner takes what is in JSON for a hundred rows, and such a join for cheaper than lookups."""
    ask()
    assert run("printf done").kind == "ended"
    used = "dispatch_situation", "turn_context", "begin_step", "hold_output", "write_answer", "end_situation"
    found = {name: scanned_whole(database.plans[name]) & {"cards", "card_boxes"} for name in used}
    assert found == {name: set() for name in used}
