"""What is long comes by windows and pages: boxes, cards, lists, and many that are not well in one way."""

import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.serve.page import turn_pages
from cardbox_cli.store.in_use import ForcedBy
from tests.serve.page.conftest import START, Ask
from tests.serve.page.reader import Reader


def test_long_boxes_are_shown_in_windows(runtime: Runtime, api: TestClient) -> None:
    drafts = [draft_card("task.instruction", f"Line {number}.") for number in range(230)]
    runtime.cards.add_many(drafts)
    box = runtime.boxes.create([draft.card_id for draft in drafts]).box_id
    assert re.findall(r'id="p(\d+)"', api.get(f"{START}/boxes/{box}").text) == [str(n) for n in range(100)]
    rows = api.get(f"{START}/boxes/{box}?from=200&part=slots").text
    assert re.findall(r'id="p(\d+)"', rows) == [str(n) for n in range(200, 230)]
    assert "<html" not in rows
    assert "Show the next" not in rows
    assert "none" in Reader(api.get(f"{START}/boxes/{box}?from=1000").text).text


def test_long_cards_are_shown_in_windows(runtime: Runtime, api: TestClient) -> None:
    text = "".join(f"{number:09}\n" for number in range(1_000_000))
    card = draft_card("task.instruction", text)
    runtime.cards.add(card)
    box = runtime.boxes.create([card.card_id]).box_id
    page = api.get(f"{START}/cards/{card.card_id}?from=9999990").text
    assert "000999999" in page
    for path in (f"/cards/{card.card_id}", f"/boxes/{box}", "/search?q=000000001", f"/request?box={box}"):
        assert len(api.get(START + path).text) < 60_000, path


def test_the_next_page_of_a_list_begins_after_the_last_item(runtime: Runtime, api: TestClient) -> None:
    drafts = [draft_card("task.instruction", "the same word") for _ in range(90)]
    # All at one instant, as an import writes them.
    runtime.cards.add_many(drafts)
    found: list[str] = []
    address = f"{START}/search?q=same"
    while True:
        page = api.get(address).text
        found += re.findall(r'<span class="says">', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        if older is None:
            break
        address = unescape(older[1])
    assert len(found) == 90


def test_agents_are_paged_and_those_with_problems_come_first(
    runtime: Runtime, ask: Ask, api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_pages, "_AGENTS", 1)
    card = draft_card("task.instruction", "x")
    runtime.cards.add(card)
    ask("scribe", context_box_id=runtime.boxes.create([card.card_id]).box_id)
    runtime.cards.delete([card.card_id], force=ForcedBy(actor="t"))
    first = api.get(f"{START}/agents").text
    assert re.findall(r"/agents/(\w+)\"", first) == ["scribe", "clerk"]
    further = re.search(r'rel="next" href="([^"]+)"', first)
    assert further is not None
    assert re.findall(r"/agents/(\w+)\"", api.get(unescape(further[1])).text) == ["scribe"]


def test_a_group_of_similar_problems_is_truncated(runtime: Runtime, ask: Ask, api: TestClient) -> None:
    for number in range(17):
        agent = f"clerk-{number}"
        provision(runtime.database, runtime.project_id, AgentRequest(agent_id=agent, profile_name="clerk"))
        card = draft_card("task.instruction", "x")
        runtime.cards.add(card)
        ask(agent, context_box_id=runtime.boxes.create([card.card_id]).box_id)
        runtime.cards.delete([card.card_id], force=ForcedBy(actor="t"))
    read = Reader(api.get(START).text)
    assert "17 turns with problems" in read.text
    assert read.text.count("was deleted'") == 15
    assert "2 more" in read.text
