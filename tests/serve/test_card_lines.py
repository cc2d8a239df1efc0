"""All cards of a box, a line each: in order, none too many in memory, and no whole answer where one breaks off."""

import json
import resource
from collections.abc import Callable

import httpx
import pytest
from starlette.testclient import TestClient

from cardbox_cli.model.cards import draft_card
from cardbox_cli.serve.api import context_routes
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.api_views import ApiViews
from tests.conftest import PROJECT
from tests.crash.processes import until
from tests.serve.conftest import Serve


def stored(cards: CardStore, *, count: int, text: str = "text") -> list[str]:
    drafts = [draft_card("agent.thought", f"{text} {number}", role="assistant") for number in range(count)]
    cards.add_many(drafts)
    return [draft.card_id for draft in drafts]


def address(box_id: str) -> str:
    return f"/projects/{PROJECT}/boxes/{box_id}/cards.jsonl"


def ids_of(text: str) -> list[str]:
    return [json.loads(line)["card_id"] for line in text.splitlines()]


def test_each_line_equals_the_response_for_its_card(
    api: TestClient, cards: CardStore, boxes: BoxStore
) -> None:
    ids = stored(cards, count=250)
    box = boxes.create([*ids, "gone", ids[0]], allow_dangling=True).box_id
    answer = api.get(address(box))
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert ids_of(answer.text) == [*ids, ids[0]]
    assert answer.text.splitlines()[7] == api.get(f"/projects/{PROJECT}/cards/{ids[7]}").text
    assert ids_of(api.get(address(box), params={"limit": 120}).text) == [*ids[132:], ids[0]]
    assert ids_of(api.get(address(box), params={"limit": 100_000}).text) == [*ids, ids[0]]


def test_cards_that_exceed_the_chunk_size_are_read_one_by_one(
    api: TestClient, cards: CardStore, boxes: BoxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = stored(cards, count=30, text="x" * 2_000)
    box = boxes.create([*reversed(ids), "gone"], allow_dangling=True).box_id
    monkeypatch.setattr(context_routes, "_JSON_CHUNK", 10_000)
    assert ids_of(api.get(address(box)).text) == ids[::-1]


def test_a_repeated_card_is_read_only_once(
    start: Callable[..., str], cards: CardStore, boxes: BoxStore
) -> None:
    [card] = stored(cards, count=1, text="x" * 3_000_000)
    box = boxes.create([card] * 100).box_id
    server = start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with httpx.stream("GET", server + address(box), timeout=60) as answer:
        size = sum(len(piece) for piece in answer.iter_raw())
    assert size > 300_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_each_read_is_limited_to_the_chunk_size(
    api: TestClient, cards: CardStore, boxes: BoxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = stored(cards, count=30, text="x" * 2_000)
    box = boxes.create(ids * 2).box_id
    monkeypatch.setattr(context_routes, "_STORED_CHUNK", 5_000)
    asked: list[int] = []
    read = ApiViews.cards
    monkeypatch.setattr(
        ApiViews, "cards", lambda self, ids, most: asked.append(len(ids)) or read(self, ids, most=most)
    )
    assert ids_of(api.get(address(box)).text) == ids * 2
    assert max(asked[:-1]) < 30


def test_an_unknown_or_foreign_box_is_not_found(api: TestClient, boxes: BoxStore) -> None:
    box = boxes.create([]).box_id
    assert api.get(address(box)).text == ""
    assert api.get(address("no-uuid")).status_code == 404
    assert api.get(f"/projects/other/boxes/{box}/cards.jsonl").status_code == 404
    for limit in ("0", "-1", "x"):
        assert api.get(address(box), params={"limit": limit}).status_code == 422


def test_a_stream_of_cards_requires_a_token(serve: Serve, boxes: BoxStore) -> None:
    box = boxes.create([]).box_id
    assert serve(asks_for_tokens=True).get(address(box)).status_code == 401


def test_the_number_of_streams_is_limited(serve: Serve, boxes: BoxStore) -> None:
    box = boxes.create([]).box_id
    assert serve(streams=0).get(address(box)).status_code == 503


def test_an_interrupted_response_raises_an_error_and_is_logged_once(
    start: Callable[..., str],
    cards: CardStore,
    boxes: BoxStore,
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = stored(cards, count=400, text="x" * 50_000)
    box = boxes.create(ids).box_id
    with httpx.stream("GET", start() + address(box), timeout=120) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_raw()
        next(pieces)
        database.connection.execute("ALTER TABLE public.cards RENAME TO away")
        with pytest.raises(httpx.RemoteProtocolError):
            sum(map(len, pieces))
    until(lambda: caplog.records)
    [logged] = [each.message for each in caplog.records]
    assert logged.startswith('the database lacks an object that this command needs: relation "public.cards"')


@pytest.mark.soak
def test_a_long_box_is_streamed_in_little_memory(
    start: Callable[..., str], cards: CardStore, boxes: BoxStore
) -> None:
    ids = [card_id for _ in range(100) for card_id in stored(cards, count=1, text="x" * 5_000_000)]
    box = boxes.create(ids + ids).box_id
    server = start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with httpx.stream("GET", server + address(box), timeout=60) as answer:
        size = sum(len(piece) for piece in answer.iter_raw())
    assert size > 1_000_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000
