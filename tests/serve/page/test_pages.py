"""Pages as they are made: whatever a link leads to, in which text stays text; what they find and compare."""

import re
from collections import Counter
from collections.abc import Callable
from html import unescape
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.in_use import ForcedBy
from tests.foreign.writer import Deployment
from tests.orchestration.conftest import says
from tests.serve.conftest import Serve
from tests.serve.page.conftest import START, Ask
from tests.serve.page.reader import Reader, check


def test_every_link_leads_to_a_page_that_escapes_text(project: Runtime, api: TestClient) -> None:
    waiting, seen, kinds = [START], {START}, Counter[str]()
    texts = []
    while waiting:
        address = waiting.pop(0)
        answer = api.get(address)
        is_dangling = quote("no <card>") in address
        assert answer.status_code == (404 if is_dangling else 200), address
        if "text/html" not in answer.headers["content-type"]:
            continue
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        texts.append(check(answer.text).text)
        for found in re.findall(r'(?:href|hx-get)="([^"]+)"', answer.text):
            link = unescape(found).partition("#")[0]
            kind = re.sub(r"[0-9a-f-]{8,}", "*", link)
            # Of each kind of page a few.
            if link and link not in seen and kinds[kind] < 3:
                seen.add(link)
                kinds[kind] += 1
                waiting.append(link)
    assert len(seen) > 60
    said = "\n".join(texts)
    assert '</pre></style></title><script>document.title = "hit"</script>' in said
    assert "\\x1b[31mred \\u202egnp.exe\\u202c \\u200bzero" in said
    assert "{{ 7 * 7 }}" in said
    for heading in (
        "with problems",
        "Agents",
        "Timeline",
        "Context box",
        "Messages by tokens",
        "Growth over the steps",
        "Difference of two requests",
        "Wasted tokens",
        "Turns of the trace",
        "Children",
        "Transcript",
        "Boxes that hold it",
    ):
        assert heading in said, heading


def test_problems_come_first_and_show_their_cause(runtime: Runtime, ask: Ask, api: TestClient) -> None:
    assert "Nothing is stuck" in api.get(START).text
    card = draft_card("task.instruction", "x")
    runtime.cards.add(card)
    turn = ask("scribe", context_box_id=runtime.boxes.create([card.card_id]).box_id).agent_turn_id
    runtime.cards.delete([card.card_id], force=ForcedBy(actor="t"))
    page = Reader(api.get(START).text).text
    assert "1 turn with problems" in page
    assert f"cbx turn fail {turn} --expect-epoch 1 --reason 'a card of its context was deleted'" in page
    agents = Reader(api.get(f"{START}/agents").text).text
    assert agents.index("scribe") < agents.index("clerk")
    assert "deleted-card" in Reader(api.get(f"{START}/agents/scribe").text).text


def test_commands_name_the_project_and_the_database(
    runtime: Runtime, ask: Ask, serve: Serve, target: Target
) -> None:
    card = draft_card("task.instruction", "x")
    runtime.cards.add(card)
    ask(context_box_id=runtime.boxes.create([card.card_id]).box_id)
    runtime.cards.delete([card.card_id], force=ForcedBy(actor="t"))
    for server in (serve(), serve(usual_project="another")):
        assert "was deleted' --project p  # database " in Reader(server.get(START).text).text


def test_the_root_address_redirects_to_the_default_project(runtime: Runtime, api: TestClient) -> None:
    answer = api.get("/")
    assert (answer.status_code, answer.url.path) == (200, START)
    assert f'href="{START}"' in api.get("/inspect").text


@pytest.mark.parametrize("asks_for_tokens", [False, True])
def test_the_root_address_redirects_to_the_configured_project(serve: Serve, asks_for_tokens: bool) -> None:
    led = serve(project="a/b", asks_for_tokens=asks_for_tokens).get("/", follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (303, "/inspect/a%2Fb")


@pytest.mark.parametrize("path", ["", "/p", "/p/search"])
def test_an_extra_trailing_slash_redirects_to_the_page(runtime: Runtime, api: TestClient, path: str) -> None:
    answer = api.get(f"/inspect{path}/?x=1")
    assert (answer.status_code, answer.url.path, answer.url.query) == (200, f"/inspect{path}", b"x=1")


def test_layers_have_one_colour_and_their_shares_add_up_to_100_percent(
    ask: Ask, run: Callable[..., RunOutcome], api: TestClient
) -> None:
    turn = ask().agent_turn_id
    assert run(says({"look": {"at": "that"}}, "It is there.")).message == "success"
    pages = [api.get(f"{START}/{name}?turn={turn}").text for name in ("request", "cost")]
    row = re.compile(r'<td class="(?:tight|text)">\s*<svg.*?class="(l\d)".*?</svg> ([\w: .]+)</td>')
    colours = [{name: colour for colour, name in row.findall(page)} for page in pages]
    shared = colours[0].keys() & colours[1].keys()
    assert {name: colours[0][name] for name in shared} == {name: colours[1][name] for name in shared}
    assert {"system_prompt", "reply"} <= shared
    groups = {name for name in colours[0] if name.startswith("history: ")}
    assert "history: tool.result look" in groups
    assert len({colours[0][name] for name in groups | {"system_prompt"}}) == len(groups) + 1
    table = pages[0][pages[0].index("Layer</th>") :].partition("</table>")[0]
    assert sum(map(float, re.findall(r"([\d.]+)%", table))) == pytest.approx(100, abs=0.2)


def test_deep_json_is_not_indented(runtime: Runtime, api: TestClient) -> None:
    deep: object = "in the depth"
    for _ in range(60):
        deep = [deep]
    card = draft_card("note", JsonContent({"deep": deep}))
    flat = draft_card("note", JsonContent({"a": {"b": 1}}))
    runtime.cards.add_many([card, flat])
    assert "{&#34;deep&#34;:[[[" in api.get(f"{START}/cards/{card.card_id}").text
    assert "\n  &#34;a&#34;: {\n" in api.get(f"{START}/cards/{flat.card_id}").text


@pytest.mark.parametrize("asked", ["%00", "%ED%A0%80", "%22%22%22", "-", "a' OR 1=1", "(((", "x" * 5000])
def test_no_search_text_causes_a_server_error(runtime: Runtime, api: TestClient, asked: str) -> None:
    assert api.get(f"{START}/search?q={asked}").status_code in (200, 400)


def test_objects_are_found_by_a_part_of_their_id(project: Runtime, api: TestClient) -> None:
    turn = re.findall(r"/turns/(turn_[0-9a-f]+)", api.get(START).text)[0]
    assert api.get(f"{START}/find?id={turn}").url.path == f"{START}/turns/{turn}"
    assert f"{START}/turns/{turn}" in api.get(f"{START}/search?q={turn[-8:]}").text
    assert "clerk" in Reader(api.get(f"{START}/search?q=clerk").text).text
    assert quote("a/b<c>", safe="") in api.get(f"{START}/chats").text


def test_two_requests_are_compared_word_by_word(
    runtime: Runtime, ask: Ask, run: Callable[..., RunOutcome], api: TestClient
) -> None:
    turn = ask().agent_turn_id
    assert run(says({"look": {"at": "that"}}, "It is there.")).message == "success"
    onwards = Reader(api.get(f"{START}/diff?turn={turn}&a=1&b=2").text)
    assert "The second continues the first" in onwards.text
    assert {"ins", "del"}.isdisjoint(onwards.tags)
    back = Reader(api.get(f"{START}/diff?turn={turn}&a=2&b=1").text)
    assert "The requests differ" in back.text
    assert "del" in back.tags
    assert ("value", turn) in back.attributes


class TestDeploymentWithoutCbxTables:
    @pytest.fixture
    def target(self, foreign_target: Target) -> Target:
        return foreign_target

    def test_only_pages_that_need_cbx_tables_are_missing(
        self, deployment: Deployment, api: TestClient
    ) -> None:
        turn = deployment.dispatch("clerk", deployment.context("Do it."))
        for path in (
            "",
            "/agents",
            "/agents/clerk",
            f"/turns/{turn.agent_turn_id}",
            "/boxes",
            "/search?q=word",
        ):
            answer = api.get(START + path)
            assert answer.status_code == 200, (path, Reader(answer.text).text)
        for box in (turn.context_box_id, turn.profile_box_id, turn.output_box_id):
            assert api.get(f"{START}/boxes/{box}").status_code == 200
        missing = api.get(f"{START}/chats")
        assert missing.status_code == 503
        assert "the database has no table" in Reader(missing.text).text


def test_the_cost_page_shows_where_the_cache_breaks(
    runtime: Runtime, ask: Ask, run: Callable[..., RunOutcome], api: TestClient
) -> None:
    for words in ("Find the cause of the first.", "Find the cause of the <second>."):
        card = draft_card("task.instruction", words)
        runtime.cards.add(card)
        ask(context_box_id=runtime.boxes.create([card.card_id]).box_id)
        assert run(says("Found.")).message == "success"
    read = Reader(api.get(f"{START}/cost?agent=clerk").text)
    assert "First cache break" in read.text
    assert "From request 1 to 2, at message " in read.text
    assert re.search(r"Find the cause of the\s+first\.\s*<second>\.", read.text)
    assert {"ins", "del"} <= set(read.tags)
