"""The five endpoints that clients of existing deployments use: order, doubles, what is missing, bounds."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from cardbox_cli.model.cards import draft_card
from cardbox_cli.serve.api.responses import total_bytes
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.api_views import ApiViews
from tests.conftest import PROJECT

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def card_ids(cards: CardStore) -> list[str]:
    """Five cards, in this order."""
    drafts = [
        draft_card("agent.thought", f"text {number}", role="assistant", author_id="clerk")
        for number in range(5)
    ]
    cards.add_many(drafts)
    return [draft.card_id for draft in drafts]


def told(response: Any) -> tuple[int, str, str]:
    detail = response.json()["detail"]
    return response.status_code, detail["error_code"], detail["error_message"]


class TestCards:
    def test_a_card_is_returned_without_its_content_class(self, api: TestClient, card_ids: list[str]) -> None:
        card = api.get(f"/projects/{PROJECT}/cards/{card_ids[2]}").json()
        assert (card["content"], card["type"], card["author_id"]) == (
            {"text": "text 2"},
            "agent.thought",
            "clerk",
        )
        assert (card["project_id"], card["tool_calls"], card["ttl_seconds"]) == (PROJECT, None, None)
        assert card["created_at"] == card["metadata"]["created_at"]
        assert set(card) == {
            "card_id", "project_id", "type", "content", "created_at", "author_id", "metadata", "tool_calls",
            "tool_call_id", "ttl_seconds",
        }  # fmt: skip

    def test_a_batch_keeps_the_request_order_without_duplicates(
        self, api: TestClient, card_ids: list[str]
    ) -> None:
        asked = [card_ids[3], "nope-2", card_ids[0], card_ids[3], "nope-1", "nope-2"]
        found = api.post(f"/projects/{PROJECT}/cards/batch", json={"card_ids": asked}).json()
        assert [card["card_id"] for card in found["cards"]] == [card_ids[3], card_ids[0]]
        assert found["missing_ids"] == ["nope-2", "nope-1"]

    def test_deleted_cards_and_cards_of_other_projects_are_missing(
        self, api: TestClient, cards: CardStore, card_ids: list[str]
    ) -> None:
        cards.delete(card_ids[:1])
        assert told(api.get(f"/projects/{PROJECT}/cards/{card_ids[0]}")) == (
            404,
            "not_found",
            "card not found",
        )
        assert told(api.get(f"/projects/other/cards/{card_ids[1]}")) == (404, "not_found", "card not found")
        found = api.post("/projects/other/cards/batch", json={"card_ids": card_ids}).json()
        assert found == {"cards": [], "missing_ids": card_ids}

    def test_a_batch_has_at_most_100_ids(self, api: TestClient) -> None:
        many = [f"c{number}" for number in range(100)]
        address = f"/projects/{PROJECT}/cards/batch"
        assert api.post(address, json={"card_ids": [*many, *many]}).json()["missing_ids"] == many
        refused = api.post(address, json={"card_ids": [*many, "one more"]})
        assert told(refused) == (400, "bad_request", "card_ids exceeds limit 100")
        assert api.post(address, json={"card_ids": []}).json() == {"cards": [], "missing_ids": []}

    def test_numbers_are_returned_exactly_as_stored(self, api: TestClient, database: Database) -> None:
        content = '{"data": {"a": 1.10, "b": 12345678901234567890.123, "c": 1e2}, "__type__": "JsonContent"}'
        database.connection.execute(
            "INSERT INTO public.cards (tenant_id, card_id, content, metadata) VALUES (%s, 'odd', %s, '{}')",
            [PROJECT, content],
        )
        text = api.get(f"/projects/{PROJECT}/cards/odd").text
        assert '"data": {"a": 1.10, "b": 12345678901234567890.123, "c": 100}' in text
        assert "__type__" not in text

    @pytest.mark.parametrize("content", ["[1]", '"text"', "null", "7"])
    def test_content_of_other_programs_is_returned_unchanged(
        self, api: TestClient, database: Database, content: str
    ) -> None:
        database.connection.execute(
            "INSERT INTO public.cards (tenant_id, card_id, content, metadata) VALUES (%s, 'odd', %s, '{}')",
            [PROJECT, content],
        )
        assert api.get(f"/projects/{PROJECT}/cards/odd").json()["content"] == json.loads(content)

    def test_an_unchanged_card_is_not_sent_again(self, api: TestClient, card_ids: list[str]) -> None:
        address = f"/projects/{PROJECT}/cards/{card_ids[0]}"
        tag = api.get(address).headers["etag"]
        again = api.get(address, headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert api.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


class TestBoxes:
    @pytest.mark.parametrize("box_id", [UNKNOWN, "no-uuid", "8b1f22c0", "%00", "a%2Fb"])
    def test_an_unknown_or_malformed_box_id_is_not_found(self, api: TestClient, box_id: str) -> None:
        assert api.get(f"/projects/{PROJECT}/boxes/{box_id}").status_code == 404
        assert api.get(f"/projects/{PROJECT}/boxes/{box_id}/cards").status_code == 404

    def test_a_box_returns_its_ids_and_its_last_cards(
        self, api: TestClient, boxes: BoxStore, card_ids: list[str]
    ) -> None:
        ids = [*card_ids, "gone", card_ids[0]]
        box = boxes.create(ids, allow_dangling=True).box_id
        assert api.get(f"/projects/{PROJECT}/boxes/{box}").json() == {"box_id": box, "card_ids": ids}
        last = api.get(f"/projects/{PROJECT}/boxes/{box}/cards", params={"limit": 3}).json()
        assert [card["card_id"] for card in last] == [card_ids[4], card_ids[0]]
        every = api.get(f"/projects/{PROJECT}/boxes/{box}/cards").json()
        assert [card["card_id"] for card in every] == [*card_ids, card_ids[0]]
        assert told(api.get(f"/projects/other/boxes/{box}")) == (404, "not_found", "box not found")

    def test_ids_of_other_programs_are_returned_as_strings(
        self, api: TestClient, boxes: BoxStore, database: Database
    ) -> None:
        box = boxes.create([]).box_id
        database.connection.execute("UPDATE public.card_boxes SET card_ids = '[1.50, null, \"a\", {}]'")
        assert api.get(f"/projects/{PROJECT}/boxes/{box}").json()["card_ids"] == ["1.50", "null", "a", "{}"]
        assert api.get(f"/projects/{PROJECT}/boxes/{box}/cards").json() == []

    @pytest.mark.parametrize("limit", ["0", "501", "-1", "x", ""])
    def test_a_limit_out_of_range_is_refused(self, api: TestClient, boxes: BoxStore, limit: str) -> None:
        box = boxes.create([]).box_id
        code, kind, text = told(api.get(f"/projects/{PROJECT}/boxes/{box}/cards", params={"limit": limit}))
        assert (code, kind) == (422, "invalid_request")
        assert text.startswith("query.limit: ")

    def test_a_batch_keeps_the_request_order_without_duplicates(
        self, api: TestClient, boxes: BoxStore, card_ids: list[str]
    ) -> None:
        one, two = boxes.create(card_ids[:2]).box_id, boxes.create(card_ids[3:]).box_id
        asked = {"box_ids": [two, "no-uuid", one, UNKNOWN, two]}
        found = api.post(f"/projects/{PROJECT}/boxes/batch", json=asked).json()
        assert found == {
            "boxes": [{"box_id": two, "card_ids": card_ids[3:]}, {"box_id": one, "card_ids": card_ids[:2]}],
            "missing_box_ids": ["no-uuid", UNKNOWN],
            "missing_card_ids": [],
        }
        assert api.post("/projects/other/boxes/batch", json=asked).json()["boxes"] == []

    def test_a_hydrated_batch_includes_the_last_cards(
        self, api: TestClient, boxes: BoxStore, card_ids: list[str]
    ) -> None:
        ids = ["gone-1", *card_ids, "gone-2"]
        box = boxes.create(ids, allow_dangling=True).box_id
        empty = boxes.create([]).box_id
        asked = {"box_ids": [box, empty], "hydrate": True, "limit": 3}
        found = api.post(f"/projects/{PROJECT}/boxes/batch", json=asked).json()
        assert found["boxes"][0]["card_ids"] == ids
        assert [card["card_id"] for card in found["boxes"][0]["hydrated_cards"]] == card_ids[3:]
        assert found["boxes"][1] == {"box_id": empty, "card_ids": [], "hydrated_cards": []}
        assert found["missing_card_ids"] == ["gone-2"]

    def test_a_batch_has_at_most_100_ids(self, api: TestClient) -> None:
        many = [f"b{number}" for number in range(101)]
        address = f"/projects/{PROJECT}/boxes/batch"
        assert told(api.post(address, json={"box_ids": many})) == (
            400,
            "bad_request",
            "box_ids exceeds limit 100",
        )
        assert api.post(address, json={"box_ids": many[:100]}).json()["missing_box_ids"] == many[:100]
        nothing = {"boxes": [], "missing_box_ids": [], "missing_card_ids": []}
        assert api.post(address, json={"box_ids": []}).json() == nothing


@pytest.mark.parametrize("odd", ["\\ud800", "\\u0000", "a\\u0000\\udfff"])
def test_an_id_that_cannot_be_stored_is_reported_as_missing(
    api: TestClient, card_ids: list[str], odd: str
) -> None:
    for kind, name, ids in (
        ("cards", "missing_ids", f'"card_ids": ["{odd}", "{card_ids[0]}"]'),
        ("boxes", "missing_box_ids", f'"box_ids": ["{odd}"]'),
    ):
        response = api.post(
            f"/projects/{PROJECT}/{kind}/batch",
            content=f"{{{ids}}}",
            headers={"Content-Type": "application/json"},
        )
        assert response.status_code == 200
        assert response.json()[name] == json.loads(f'["{odd}"]')
        assert len(response.json()[kind]) == (kind == "cards")


@pytest.mark.parametrize("card_id", ['a"b', "a\\b", "{a,b}", "NULL", " ", "a','b"])
def test_an_id_with_any_characters_is_found(api: TestClient, database: Database, card_id: str) -> None:
    database.connection.execute(
        "INSERT INTO public.cards (tenant_id, card_id, content, metadata) VALUES (%s, %s, '{}', '{}')",
        [PROJECT, card_id],
    )
    asked = {"card_ids": ["x", card_id, "null"]}
    found = api.post(f"/projects/{PROJECT}/cards/batch", json=asked).json()
    assert [card["card_id"] for card in found["cards"]] == [card_id]
    assert found["missing_ids"] == ["x", "null"]


def test_boxes_are_found_by_every_format_of_their_ids(api: TestClient, boxes: BoxStore) -> None:
    one, two = boxes.create([]).box_id, boxes.create([]).box_id
    asked = {"box_ids": [one.upper(), two, two.replace("-", "")]}
    found = api.post(f"/projects/{PROJECT}/boxes/batch", json=asked).json()
    assert [box["box_id"] for box in found["boxes"]] == asked["box_ids"]


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b'{"card_ids": []}', "text/plain", "body: Content-Type must be application/json"),
        (b'{"card_ids": []}', "", "body: Content-Type must be application/json"),
        (b"{", "application/json", "body: JSON decode error"),
        (b'{"card_ids": ["\xff"]}', "application/json", "body: JSON decode error"),
        (b"[" * 100_000, "application/json", "body: JSON decode error"),
        pytest.param(
            b'{"card_ids": [' + b"9" * 5000 + b"]}", "application/json", "body: JSON decode", id="digits"
        ),
        (b"", "application/json; charset=utf-8", "body: JSON decode error"),
        (b"{}", "application/vnd.cbx+json", "body.card_ids: Field required"),
        (b'{"card_ids": [1]}', "application/json", "body.card_ids.0: Input should be a valid string"),
    ],
)
def test_an_invalid_body_is_refused(api: TestClient, body: bytes, kind: str, message: str) -> None:
    response = api.post(
        f"/projects/{PROJECT}/cards/batch", content=body, headers={"Content-Type": kind} if kind else {}
    )
    status, code, text = told(response)
    assert (status, code) == (422, "invalid_request")
    assert text.startswith(message)


@pytest.mark.parametrize(
    "odd",
    [
        {"hydrate": 0},
        {"hydrate": "true"},
        {"limit": "5"},
        {"limit": True},
        {"limit": 5.5},
        {"hydrate": None},
        {"box_ids": "x"},
    ],
)
def test_a_value_of_the_wrong_type_is_refused(api: TestClient, odd: dict[str, Any]) -> None:
    address = f"/projects/{PROJECT}/boxes/batch"
    assert api.post(address, json={"box_ids": [], "hydrate": True, "limit": 5}).status_code == 200
    status, code, text = told(api.post(address, json={"box_ids": [], **odd}))
    assert (status, code) == (422, "invalid_request")
    assert text.startswith(f"body.{next(iter(odd))}: ")


class TestResponseLimits:
    @pytest.fixture
    def box_id(self, cards: CardStore, database: Database) -> str:
        """A box of 101 cards, which are read in two pieces."""
        drafts = [draft_card("agent.thought", f"text {number}") for number in range(101)]
        cards.add_many(drafts)
        return BoxStore(database, PROJECT).create([draft.card_id for draft in drafts]).box_id

    def test_cards_of_a_box_are_read_in_chunks(self, api: TestClient, box_id: str) -> None:
        found = api.get(f"/projects/{PROJECT}/boxes/{box_id}/cards").json()
        assert [card["content"]["text"] for card in found] == [f"text {number}" for number in range(101)]

    def test_all_responses_with_cards_have_the_same_size_limit(
        self, api: TestClient, box_id: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cardbox_cli.serve.api.responses.MAX_BYTES", 5000)
        base = f"/projects/{PROJECT}"
        card_ids = api.get(f"{base}/boxes/{box_id}").json()["card_ids"]
        hydrated = api.post(f"{base}/boxes/batch", json={"box_ids": [box_id], "hydrate": True})
        for answer, remedy in (
            (api.get(f"{base}/boxes/{box_id}/cards"), "request fewer cards, or each one"),
            (hydrated, "request fewer cards, or each one"),
            (
                api.post(f"{base}/cards/batch", json={"card_ids": card_ids[:100]}),
                "request fewer cards, or each one",
            ),
            (api.get(f"{base}/search?text=text"), "pass a lower `limit`"),
            (api.get(f"{base}/render?box={box_id}"), "name a smaller box, or use `cbx render`"),
        ):
            assert told(answer)[:2] == (400, "bad_request")
            assert remedy in answer.text
        for path in (f"boxes/{box_id}/cards?limit=2", "search?text=text&limit=2"):
            assert api.get(f"{base}/{path}").status_code == 200
        few = api.post(f"{base}/cards/batch", json={"card_ids": card_ids[:2]})
        assert len(few.json()["cards"]) == 2
        monkeypatch.setattr("cardbox_cli.serve.api.responses.MAX_BYTES", 10)
        assert api.get(f"{base}/cards/{card_ids[0]}").status_code == 200

    def test_cards_beyond_the_size_limit_are_not_read(self, cards: CardStore, database: Database) -> None:
        for number in range(5):
            cards.add(draft_card("agent.thought", "é" * 1000, card_id=f"c{number}"))
        views = ApiViews(database, PROJECT)
        ids = [f"c{number}" for number in range(5)]
        size = total_bytes(views.cards(ids, most=1 << 20).values()) // 5
        assert size > 2000
        assert [len(views.cards(ids, most=most)) for most in (0, size, 2 * size + 1, 5 * size)] == [
            1,
            2,
            3,
            5,
        ]
