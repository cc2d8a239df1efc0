"""The OpenAPI document against the app: whatever it allows is answered as it says, and nothing makes it fail."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from tests.serve.conftest import Serve

# What a schema cannot say is refused with 400: more than 100 different ids, a place that is in no list.
# A stream has no end, and is tested by itself.
ENDLESS = "/events"


@pytest.fixture
def filled(serve: Serve, cards: CardStore, boxes: BoxStore) -> TestClient:
    """An app on a project that has a card and a box."""
    cards.add(draft_card("agent.thought", "text", role="assistant", card_id="x"))
    boxes.create(["x", "gone"], allow_dangling=True)
    return serve(hosts=["localhost", "testserver"])


@pytest.mark.parametrize("examples", [12, pytest.param(1_000, marks=pytest.mark.soak)])
def test_every_operation_answers_as_it_says(filled: TestClient, examples: int) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", filled.app)
    for operation in (found.ok() for found in schema.get_all_operations()):
        if operation.path.endswith(ENDLESS):
            continue

        @settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        ask()
