"""The OpenAPI document against the app: whatever it allows is answered as it says, and nothing makes it fail."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import meta
from starlette.testclient import TestClient

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from tests.serve.conftest import Serve

# What a schema cannot say is refused with 400: more than 100 different ids, a place that is in no list.
# A stream, and lines are no JSON document: both are tested by themselves.
STREAMS = {"/events": "text/event-stream", "/cards.jsonl": "application/x-ndjson"}


@pytest.fixture
def filled(serve: Serve, cards: CardStore, boxes: BoxStore) -> TestClient:
    """An app on a project that has a card and a box."""
    cards.add(draft_card("agent.thought", "text", role="assistant", card_id="x"))
    boxes.create(["x", "gone"], allow_dangling=True)
    return serve(hosts=["localhost", "testserver"])


def streamed(path: str) -> str | None:
    """The type of what an address answers piece by piece, if it does."""
    return next((kind for end, kind in STREAMS.items() if path.endswith(end)), None)


def references(value: Any) -> Iterator[str]:
    """Whatever a part of the document refers to."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        parts = list(value.values())
    else:
        parts = value if isinstance(value, list) else []
    for part in parts:
        yield from references(part)


def test_every_reference_of_the_document_resolves(api: TestClient) -> None:
    document = api.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    named = {each.removeprefix("#/components/schemas/") for each in references(document)}
    assert named == set(schemas)
    for schema in schemas.values():
        meta.validate(schema)


def test_each_operation_documents_its_errors(api: TestClient) -> None:
    paths = api.get("/openapi.json").json()["paths"]
    refusals = {"400", "401", "403", "404", "408", "413", "422", "429", "503"}
    for path, operations in paths.items():
        for method, operation in operations.items():
            said = operation["responses"]
            same = {"304"} if method == "get" and not streamed(path) else set()
            assert set(said) == (
                {"200", "400", "408", "413"} if path == "/health" else {"200", *refusals, *same}
            )
            kinds = {status: set(each["content"]) for status, each in said.items() if "content" in each}
            assert kinds.pop("200") == {streamed(path) or "application/json"}
            assert set().union(*kinds.values()) == {"application/json"}


@pytest.mark.parametrize("examples", [12, pytest.param(1_000, marks=pytest.mark.soak)])
def test_every_operation_answers_as_documented(filled: TestClient, examples: int) -> None:
    # It takes a second to load.
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema = schemathesis.openapi.from_asgi("/openapi.json", filled.app)
    for operation in (found.ok() for found in schema.get_all_operations()):
        if streamed(operation.path):
            continue

        @settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy())
        def ask(case: "schemathesis.Case") -> None:
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        ask()
