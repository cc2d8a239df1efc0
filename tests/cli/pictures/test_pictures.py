"""Pages of requests and traces: what they hold, that text stays text, and what a browser makes of them."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cardbox_cli.execution.dispatch.request import DispatchResult
from cardbox_cli.execution.worker.runner import Outcome
from tests.cli.conftest import succeed
from tests.cli.pictures.browser import dom, faults
from tests.conftest import Cbx
from tests.orchestration.conftest import says

HOSTILE = (
    '</pre></style><script>document.title = "hit"</script><img src="http://example.org/x" onerror="alert(1)">'
)


class Reader(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def turn(cbx: Cbx, ask: Callable[..., DispatchResult], run: Callable[..., Outcome]) -> str:
    """A turn of two steps, with hostile and with long words in it."""
    made = cbx("card", "add", "--type", "task.instruction", "--text", HOSTILE, "-o", "id")
    box = cbx("box", "create", made.out.strip(), "-o", "id")
    turn_id = ask(context_box_id=box.out.strip()).agent_turn_id
    assert run(says({"look<b>": {"at": HOSTILE}}, "word " * 400)).message == "success"
    return turn_id or ""


@pytest.fixture
def page(cbx: Cbx, turn: str, tmp_path: Path) -> Path:
    shown = cbx("render", "--turn", turn, "--format", "html")
    assert shown.code == 0, shown.err
    file = tmp_path / "page.html"
    file.write_text(shown.out)
    return file


def test_a_page_has_all_of_a_request_and_asks_for_nothing(page: Path) -> None:
    read = Reader(page.read_text())
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "form", "a"}
    assert not [
        (tag, name)
        for tag, attributes in read.elements
        for name in attributes
        if name in ("src", "href", "style", "srcset") or name.startswith("on")
    ]
    [policy] = [each["content"] or "" for _, each in read.elements if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert HOSTILE in read.text
    for heading in ("Layers", "Messages by tokens", "Growth over the steps", "What persisted", "Messages"):
        assert heading in read.text


def test_a_finding_stands_at_its_message(cbx: Cbx, tmp_path: Path) -> None:
    card = cbx("card", "add", "--type", "tool.result", "--tool-call-id", "call_9", "--text", "x", "-o", "id")
    box = cbx("box", "create", card.out.strip(), "-o", "id")
    shown = cbx("render", "--box", box.out.strip(), "--format", "html").out
    article = re.search(r"<article>.*?</article>", shown, re.DOTALL)
    assert article is not None
    assert "error: result-without-call" in article[0]


def test_an_empty_box_makes_a_page_too(cbx: Cbx) -> None:
    box = cbx("box", "create", "-o", "id")
    shown = cbx("render", "--box", box.out.strip(), "--format", "html")
    assert (shown.code, "<h1>Request of" in shown.out) == (0, True), shown.err


def test_html_is_an_answer_of_its_own(cbx: Cbx, turn: str) -> None:
    refused = cbx("render", "--turn", turn, "--format", "html", "--explain")
    assert refused.code == 2
    assert "two answers" in refused.err


def test_a_trace_is_a_page_and_a_drawing(cbx: Cbx, turn: str) -> None:
    shown = cbx("turn", "trace", turn, "--format", "html")
    assert shown.code == 0, shown.err
    assert turn in Reader(shown.out).text
    drawn = ET.fromstring(cbx("turn", "trace", turn, "--format", "svg").out)
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    titles = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.split(",")[0] for title in titles] == [turn]


def test_a_browser_runs_nothing_of_what_cards_say(page: Path) -> None:
    free = page.with_name("free.html")
    free.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text()))
    shown = dom(free)
    assert "<title>hit</title>" not in shown
    assert "<script" not in shown
    assert "&lt;script&gt;document.title" in shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(page: Path, cbx: Cbx, turn: str, scheme: str) -> None:
    options: list[Any] = ["--window-size=390,844"]
    if scheme == "dark":
        options.append("--blink-settings=preferredColorScheme=0")
    assert faults(page, *options) == []
    trace = page.with_name("trace.html")
    trace.write_text(cbx("turn", "trace", turn, "--format", "html").out)
    assert faults(trace, *options) == []


@pytest.fixture
def costs(cbx: Cbx, feed: Callable[[str], None], tmp_path: Path) -> Path:
    """The page of a conversation in which a tool with a hostile name gave the same twice."""

    def use(key: str) -> list[dict[str, object]]:
        function = {"name": "read<b>", "arguments": json.dumps({"path": HOSTILE})}
        call = {"id": key, "type": "function", "function": function}
        answer = {"role": "tool", "tool_call_id": key, "content": HOSTILE + " word" * 200}
        return [{"role": "assistant", "tool_calls": [call]}, answer]

    talk = [{"role": "user", "content": "Look."}, *use("c1"), *use("c2"), {"role": "user", "content": "And?"}]
    feed(json.dumps(talk))
    box = succeed(cbx("card", "import", "-", "-o", "id")).strip()
    file = tmp_path / "cost.html"
    file.write_text(succeed(cbx("cost", box, "--format", "html")))
    return file


def test_the_page_of_costs_has_what_the_command_says(cbx: Cbx, costs: Path) -> None:
    read = Reader(costs.read_text())
    assert not {tag for tag, _ in read.elements} & {"script", "link", "img", "iframe", "object", "b", "a"}
    for heading in ("Findings", "Growth over the steps", "What persisted", "By layer", "By type", "By tool"):
        assert heading in read.text
    told = cbx("cost", "@last", "-o", "json").json()
    for found in told["findings"]:
        assert found["code"] in read.text
        assert found["fix"] is None or found["fix"] in read.text
    assert "read-again" in read.text
    assert f"~{told['tokens']} in all" in read.text
    titles = re.findall(r"card [^<>]*, (?:agent|tool|task)[^<>]*request \d", costs.read_text())
    assert len(titles) == sum(card["sends"] for card in told["by"]["card"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_costs(costs: Path, scheme: str) -> None:
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    assert faults(costs, "--window-size=390,844", *dark) == []


def test_an_empty_box_costs_a_page_too(cbx: Cbx) -> None:
    box = succeed(cbx("box", "create", "-o", "id")).strip()
    page = succeed(cbx("cost", box, "--format", "html"))
    assert f"<h1>Costs of box {box}" in page
    over = cbx("cost", box, "--format", "svg")
    assert (over.code, over.out) == (2, "")
