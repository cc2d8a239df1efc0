"""Pages of requests and traces: what they hold, that text stays text, and what a browser makes of them."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.worker.runner import RunOutcome
from tests.cli.conftest import succeed
from tests.conftest import Cbx
from tests.orchestration.conftest import says
from tests.serve.page.conftest import Visitor

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
def turn(cbx: Cbx, ask: Callable[..., DispatchResult], run: Callable[..., RunOutcome]) -> str:
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


def test_a_page_shows_the_whole_request_and_loads_nothing(page: Path) -> None:
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
    for heading in (
        "Layers",
        "Messages by tokens",
        "Growth over the steps",
        "Cards over the steps",
        "Messages",
    ):
        assert heading in read.text


def test_a_finding_is_shown_at_its_message(cbx: Cbx, tmp_path: Path) -> None:
    card = cbx("card", "add", "--type", "tool.result", "--tool-call-id", "call_9", "--text", "x", "-o", "id")
    box = cbx("box", "create", card.out.strip(), "-o", "id")
    shown = cbx("render", "--box", box.out.strip(), "--format", "html").out
    article = re.search(r"<article>.*?</article>", shown, re.DOTALL)
    assert article is not None
    assert "error: result-without-call" in article[0]


def test_an_empty_box_is_rendered_as_a_page(cbx: Cbx) -> None:
    box = cbx("box", "create", "-o", "id")
    shown = cbx("render", "--box", box.out.strip(), "--format", "html")
    assert (shown.code, "<h1>Request of" in shown.out) == (0, True), shown.err


def test_html_and_explain_cannot_be_combined(cbx: Cbx, turn: str) -> None:
    refused = cbx("render", "--turn", turn, "--format", "html", "--explain")
    assert (refused.code, refused.err) == (
        2,
        "error: --explain and --format html cannot be combined\nhint: remove one of them\n",
    )


def test_a_trace_is_rendered_as_html_and_svg(cbx: Cbx, turn: str) -> None:
    shown = cbx("turn", "trace", turn, "--format", "html")
    assert shown.code == 0, shown.err
    assert turn in Reader(shown.out).text
    drawn = ET.fromstring(cbx("turn", "trace", turn, "--format", "svg").out)
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    titles = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.split(",")[0] for title in titles] == [turn]


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


def test_the_cost_page_has_the_same_numbers_as_the_command(cbx: Cbx, costs: Path) -> None:
    read = Reader(costs.read_text())
    assert not {tag for tag, _ in read.elements} & {"script", "link", "img", "iframe", "object", "b", "a"}
    for heading in (
        "Findings",
        "Growth over the steps",
        "Cards over the steps",
        "By layer",
        "By type",
        "By tool",
    ):
        assert heading in read.text
    told = cbx("cost", "@last", "-o", "json").json()
    for found in told["findings"]:
        assert found["code"] in read.text
        assert found["fix"] is None or found["fix"] in read.text
    assert "read-again" in read.text
    assert f"~{told['tokens']:,} in all" in read.text
    titles = re.findall(r"card [^<>]*, (?:agent|tool|task)[^<>]*request \d", costs.read_text())
    assert len(titles) == sum(card["sends"] for card in told["by"]["card"])


def test_only_the_last_of_many_requests_are_drawn(cbx: Cbx, feed: Callable[[str], None]) -> None:
    """The first of them has all that was sent by then."""
    talk = [{"role": role, "content": "word"} for role in ("user", "assistant")] * 105
    feed(json.dumps(talk))
    box = succeed(cbx("card", "import", "-", "-o", "id")).strip()
    cells = re.findall(r"<title>card [^<]*, request (\d+):", succeed(cbx("cost", box, "--format", "html")))
    assert (min(map(int, cells)), max(map(int, cells)), cells.count("6")) == (6, 105, 11)


@pytest.fixture
def pages(cbx: Cbx, turn: str, page: Path, costs: Path) -> list[Path]:
    """A page of each kind."""
    trace = page.with_name("trace.html")
    trace.write_text(succeed(cbx("turn", "trace", turn, "--format", "html")))
    return [page, costs, trace]


def test_pages_have_no_scripts_errors_or_overflow_in_a_browser(
    pages: list[Path], visit: Callable[..., Visitor]
) -> None:
    """Not even without its policy does a page ask for anything, run a script, or go beyond the screen's edge."""
    for width, scheme in product((390, 1366), ("light", "dark")):
        visitor = visit(width, scheme, at=pages[0].parent.as_uri(), bypass_csp=True)
        for page in pages:
            visitor.go(f"/{page.name}")
            assert visitor.page.locator("h1").inner_text() == visitor.page.title() != "hit"
            assert visitor.page.locator("script, img").count() == 0
            assert (visitor.overflows(), visitor.faults()) == (0, []), (page.name, width, scheme)


def test_the_content_policy_allows_the_style_of_the_page(
    pages: list[Path], visit: Callable[..., Visitor]
) -> None:
    visitor = visit(scheme="dark", at=pages[0].parent.as_uri())
    for page in pages:
        visitor.go(f"/{page.name}")
        ground = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(13, 17, 23)"


def test_a_standalone_svg_is_shown_in_a_browser(
    cbx: Cbx, turn: str, tmp_path: Path, visit: Callable[..., Visitor]
) -> None:
    (tmp_path / "trace.svg").write_text(succeed(cbx("turn", "trace", turn, "--format", "svg")))
    visitor = visit(at=tmp_path.as_uri())
    visitor.go("/trace.svg")
    assert visitor.page.locator("text").text_content() == "clerk (ended success)"


def test_invisible_and_bidirectional_characters_are_escaped(cbx: Cbx, feed: Callable[[str], None]) -> None:
    feed(json.dumps([{"role": "user", "content": "a\u202eb\x1b[31mc\u200bd\ufffee"}]))
    box = succeed(cbx("card", "import", "-", "-o", "id")).strip()
    shown = Reader(succeed(cbx("render", "--box", box, "--format", "html"))).text
    assert r"a\u202eb\x1b[31mc\u200bd\ufffee" in shown


def test_a_long_text_is_folded(cbx: Cbx, feed: Callable[[str], None]) -> None:
    """Its beginning is what is seen, and is gone where the whole is unfolded."""
    lines = "\n".join(str(number) for number in range(40))
    feed(json.dumps([{"role": "user", "content": lines}, {"role": "user", "content": "short"}]))
    box = succeed(cbx("card", "import", "-", "-o", "id")).strip()
    shown = succeed(cbx("render", "--box", box, "--format", "html"))
    [details] = re.findall(r"<details>.*?</details>", shown, re.DOTALL)
    beginning = "\n".join(str(number) for number in range(12))
    assert f"<summary><span>{beginning}</span> … (109 characters)</summary>" in details
    assert f">{lines}</pre>" in details


def test_an_empty_box_has_a_cost_page(cbx: Cbx) -> None:
    box = succeed(cbx("box", "create", "-o", "id")).strip()
    page = succeed(cbx("cost", box, "--format", "html"))
    assert f"<h1>Costs of box {box}" in page
    over = cbx("cost", box, "--format", "svg")
    assert (over.code, over.out) == (2, "")
