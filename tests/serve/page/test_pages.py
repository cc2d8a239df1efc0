"""Pages as they are made: all that a link leads to, failures as pages, text that stays text."""

import re
from collections import Counter
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from cardbox_cli.chat.room import Room
from cardbox_cli.chat.transcript import send
from cardbox_cli.execution.dispatch.request import DispatchResult
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import Outcome
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.model.ids import short_id
from cardbox_cli.serve.page.routes import start
from cardbox_cli.store.card_use import Force
from cardbox_cli.store.connection.target import Target
from tests.foreign.writer import Deployment
from tests.orchestration.batches.conftest import Family
from tests.orchestration.conftest import says
from tests.serve.conftest import Serve
from tests.serve.page.conftest import HOSTILE, START

Ask = Callable[..., DispatchResult]

# What no page of ours has; hostile texts have all of them.
_OURS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "link",
        "script",
        "body",
        "a",
        "header",
        "nav",
        "form",
        "input",
        "span",
    ),
    *("main", "footer", "p", "button", "kbd", "dialog", "h1", "h2", "h3", "dl", "dt", "dd", "section", "div"),
    *(
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "ol",
        "ul",
        "li",
        "details",
        "summary",
        "pre",
        "code",
        "br",
    ),
    *("time", "mark", "ins", "del", "progress", "label", "select", "option", "svg", "rect", "text"),
}
_NOT_OURS = {"style", "onerror", "hx-on", "srcdoc"}


class Reader(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def check(page: str) -> Reader:
    """The page, in which nothing stands but what templates make."""
    read = Reader(page)
    assert set(read.tags) <= _OURS, set(read.tags) - _OURS
    for name, value in read.attributes:
        assert name not in _NOT_OURS, (name, value)
        assert not name.startswith("on"), (name, value)
        if name in ("href", "src", "action", "hx-get"):
            assert re.match("/(?!/)|#", value), (name, value)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e]", read.text)
    return read


@pytest.fixture
def project(
    runtime: Runtime, ask: Ask, run: Callable[..., Outcome], family: Callable[..., Family]
) -> Runtime:
    """A project that has something of everything, with hostile words wherever words may be."""
    ask()
    assert run(says({"look<b>": {"at": HOSTILE}}, HOSTILE)).message == "success"
    cards = [
        draft_card("task.instruction", HOSTILE),
        draft_card("note<b>", HOSTILE, author_id="a<b>"),
        draft_card("agent.thought", JsonContent(data={"deep": _deep(300), "number": 12345678901234567890})),
        draft_card("tool.result", HOSTILE, tool_call_id=HOSTILE, metadata={HOSTILE: [HOSTILE]}),
    ]
    runtime.cards.add_many(cards)
    box = runtime.boxes.create(
        [*(card.card_id for card in cards), "no <card>"], title=HOSTILE, allow_dangling=True
    )
    ask("scribe", context_box_id=box.box_id)
    runtime.cards.delete([cards[0].card_id], force=Force(actor="t"))
    batch = family(2)
    batch.start(0)
    batch.end(0, "failed", HOSTILE)
    room = Room(runtime.database, runtime.project_id, runtime.settings)
    send(room, "a/b<c>", HOSTILE)
    return runtime


def _deep(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


def test_whatever_a_link_leads_to_is_a_page_in_which_text_stays_text(
    project: Runtime, api: TestClient
) -> None:
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
        "not well",
        "Agents",
        "What happened",
        "Context box",
        "Messages by tokens",
        "Growth over the steps",
        "What differs",
        "Sent in vain",
        "Who gave work to whom",
        "Children",
        "Transcript",
        "Boxes that hold it",
    ):
        assert heading in said, heading


def test_what_is_not_well_comes_first_and_says_why(runtime: Runtime, ask: Ask, api: TestClient) -> None:
    assert "Nothing is stuck" in api.get(START).text
    card = draft_card("task.instruction", "x")
    runtime.cards.add(card)
    turn = ask("scribe", context_box_id=runtime.boxes.create([card.card_id]).box_id).agent_turn_id
    runtime.cards.delete([card.card_id], force=Force(actor="t"))
    page = Reader(api.get(START).text).text
    assert "1 turn not well" in page
    assert f"cbx turn fail {turn} --expect-epoch 1 --reason 'a card of its context was deleted'" in page
    agents = Reader(api.get(f"{START}/agents").text).text
    assert agents.index("scribe") < agents.index("clerk")
    assert "deleted-card" in Reader(api.get(f"{START}/agents/scribe").text).text


def test_commands_name_a_project_that_is_not_the_usual_one(
    runtime: Runtime, ask: Ask, serve: Serve, target: Target
) -> None:
    card = draft_card("task.instruction", "x")
    runtime.cards.add(card)
    ask(context_box_id=runtime.boxes.create([card.card_id]).box_id)
    runtime.cards.delete([card.card_id], force=Force(actor="t"))
    assert "was deleted' --project p" not in Reader(serve().get(START).text).text
    other = serve(usual_project="another")
    assert "was deleted' --project p" in Reader(other.get(START).text).text


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/turns/turn_x", 404, "no turn 'turn_x' in project 'p'"),
        ("/boxes/none", 404, "no box 'none'"),
        ("/cards/a%00b", 400, "NUL"),
        ("/cards/<script>", 404, "no card '<script>'"),
        ("/agents/nobody", 404, "no agent 'nobody'"),
        ("/batches/batch_x", 404, "no batch 'batch_x'"),
        ("/chat?key=none", 404, "no chat 'none'"),
        ("/chat", 400, "key"),
        ("/find?id=none", 404, "nothing in project 'p' has the id 'none'"),
        ("/request", 400, "must name a turn"),
        ("/request?turn=a&box=b", 400, "one alone"),
        ("/cost", 400, "must name a turn"),
        ("/diff?turn=turn_x&a=1&b=2", 404, "no turn"),
        ("/boxes?behind=yesterday", 400, "is no place in a list"),
        ("/boxes?behind=2026-01-01T00:00:00%2B00:00~x", 400, "is no place in a list"),
        ("?behind=2026-01-01~x", 400, "is no place in a list"),
        ("/boxes/x?from=-1", 400, "from"),
        ("/elsewhere", 404, "no page"),
    ],
)
def test_failures_are_pages(runtime: Runtime, api: TestClient, path: str, status: int, says: str) -> None:
    answer = api.get(START + path)
    assert answer.status_code == status, answer.text[-300:]
    assert "text/html" in answer.headers["content-type"]
    assert says in check(answer.text).text


def test_failures_of_the_api_are_none_of_these(api: TestClient) -> None:
    assert api.get("/projects/p/boxes/none").json()["detail"]["error_code"] == "not_found"


def test_nothing_of_another_project_is_shown(project: Runtime, api: TestClient) -> None:
    turns = re.findall(r"/turns/(turn_[0-9a-f]+)", api.get(START).text)
    assert turns
    other = START.replace("/p", "/q")
    for path in (
        f"/turns/{turns[0]}",
        f"/request?turn={turns[0]}",
        f"/cost?turn={turns[0]}",
        f"/find?id={turns[0]}",
    ):
        assert api.get(other + path).status_code == 404, path
    assert short_id(turns[0]) not in api.get(other).text


def test_without_a_database_a_page_says_so(serve: Serve, tmp_path: Path) -> None:
    answer = serve(target=Target("host=127.0.0.1 port=1", "a test", tmp_path)).get(START)
    assert answer.status_code == 503
    assert "The database cannot be read" in check(answer.text).text


def test_without_a_token_a_page_asks_for_one(runtime: Runtime, serve: Serve) -> None:
    answer = serve(asks_for_tokens=True).get(f"{START}/agents?after=x")
    assert answer.status_code == 401
    read = check(answer.text)
    assert ("action", "/login") in read.attributes
    assert ("value", f"{START}/agents?after=x") in read.attributes
    assert "clerk" not in read.text


def test_the_first_address_leads_to_the_usual_project(runtime: Runtime, api: TestClient) -> None:
    answer = api.get("/")
    assert (answer.status_code, answer.url.path) == (200, START)
    assert f'href="{START}"' in api.get("/inspect").text


def test_boxes_are_shown_by_windows(runtime: Runtime, api: TestClient) -> None:
    drafts = [draft_card("task.instruction", f"Line {number}.") for number in range(230)]
    runtime.cards.add_many(drafts)
    box = runtime.boxes.create([draft.card_id for draft in drafts]).box_id
    assert re.findall(r'id="p(\d+)"', api.get(f"{START}/boxes/{box}").text) == [str(n) for n in range(100)]
    rows = api.get(f"{START}/boxes/{box}?from=200&part=slots").text
    assert re.findall(r'id="p(\d+)"', rows) == [str(n) for n in range(200, 230)]
    assert "<html" not in rows
    assert "Show the next" not in rows
    assert "none" in Reader(api.get(f"{START}/boxes/{box}?from=1000").text).text


def test_long_cards_are_shown_by_windows(runtime: Runtime, api: TestClient) -> None:
    text = "".join(f"{number:09}\n" for number in range(1_000_000))
    card = draft_card("task.instruction", text)
    runtime.cards.add(card)
    box = runtime.boxes.create([card.card_id]).box_id
    page = api.get(f"{START}/cards/{card.card_id}?from=9999990").text
    assert "000999999" in page
    for path in (f"/cards/{card.card_id}", f"/boxes/{box}", "/search?q=000000001", f"/request?box={box}"):
        assert len(api.get(START + path).text) < 60_000, path


def test_lists_go_on_where_they_ended(runtime: Runtime, api: TestClient) -> None:
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


@pytest.mark.parametrize("asked", ["%00", "%ED%A0%80", "%22%22%22", "-", "a' OR 1=1", "(((", "x" * 5000])
def test_any_search_is_answered(runtime: Runtime, api: TestClient, asked: str) -> None:
    assert api.get(f"{START}/search?q={asked}").status_code in (200, 400)


def test_anything_is_found_by_a_piece_of_its_id(project: Runtime, api: TestClient) -> None:
    turn = re.findall(r"/turns/(turn_[0-9a-f]+)", api.get(START).text)[0]
    assert api.get(f"{START}/find?id={turn}").url.path == f"{START}/turns/{turn}"
    assert f"{START}/turns/{turn}" in api.get(f"{START}/search?q={turn[-8:]}").text
    assert "clerk" in Reader(api.get(f"{START}/search?q=clerk").text).text
    assert quote("a/b<c>", safe="") in api.get(f"{START}/chats").text


def test_two_requests_are_compared_word_by_word(
    runtime: Runtime, ask: Ask, run: Callable[..., Outcome], api: TestClient
) -> None:
    turn = ask().agent_turn_id
    assert run(says({"look": {"at": "that"}}, "It is there.")).message == "success"
    onwards = Reader(api.get(f"{START}/diff?turn={turn}&a=1&b=2").text)
    assert "The second goes on where the first ends" in onwards.text
    assert {"ins", "del"}.isdisjoint(onwards.tags)
    back = Reader(api.get(f"{START}/diff?turn={turn}&a=2&b=1").text)
    assert "They part" in back.text
    assert "del" in back.tags
    assert ("value", turn) in back.attributes


def test_agents_come_page_by_page_and_those_that_are_not_well_first(
    runtime: Runtime, ask: Ask, api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "_AGENTS", 1)
    card = draft_card("task.instruction", "x")
    runtime.cards.add(card)
    ask("scribe", context_box_id=runtime.boxes.create([card.card_id]).box_id)
    runtime.cards.delete([card.card_id], force=Force(actor="t"))
    first = api.get(f"{START}/agents").text
    assert re.findall(r"/agents/(\w+)\"", first) == ["scribe", "clerk"]
    further = re.search(r'rel="next" href="([^"]+)"', first)
    assert further is not None
    assert re.findall(r"/agents/(\w+)\"", api.get(unescape(further[1])).text) == ["scribe"]


class TestADeploymentWithoutTablesOfCbx:
    @pytest.fixture
    def target(self, foreign_target: Target) -> Target:
        return foreign_target

    def test_has_pages(self, deployment: Deployment, api: TestClient) -> None:
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


def test_costs_say_where_a_cache_breaks(
    runtime: Runtime, ask: Ask, run: Callable[..., Outcome], api: TestClient
) -> None:
    for words in ("Find the cause of the first.", "Find the cause of the <second>."):
        card = draft_card("task.instruction", words)
        runtime.cards.add(card)
        ask(context_box_id=runtime.boxes.create([card.card_id]).box_id)
        assert run(says("Found.")).message == "success"
    read = Reader(api.get(f"{START}/cost?agent=clerk").text)
    assert "Where the cache breaks first" in read.text
    assert "From request 1 to 2" in read.text
    assert re.search(r"Find the cause of the\s+first\.\s*<second>\.", read.text)
    assert {"ins", "del"} <= set(read.tags)


def test_of_many_that_are_alike_some_are_shown(runtime: Runtime, ask: Ask, api: TestClient) -> None:
    for number in range(17):
        agent = f"clerk-{number}"
        provision(runtime.database, runtime.project_id, AgentRequest(agent_id=agent, profile_name="clerk"))
        card = draft_card("task.instruction", "x")
        runtime.cards.add(card)
        ask(agent, context_box_id=runtime.boxes.create([card.card_id]).box_id)
        runtime.cards.delete([card.card_id], force=Force(actor="t"))
    read = Reader(api.get(START).text)
    assert "17 turns not well" in read.text
    assert read.text.count("was deleted'") == 15
    assert "2 more" in read.text
