"""Pages as a client gets them, and a browser that looks at them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from cardbox_cli.chat.transcript import send
from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.orchestration.batch_manager import BatchManager
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.in_use import ForcedBy
from tests.conftest import PROJECT
from tests.execution.worker.conftest import run  # noqa: F401  # a fixture
from tests.orchestration.batches.conftest import Family, Fork, fork  # noqa: F401  # a fixture
from tests.orchestration.conftest import says
from tests.packages import axe_core, program

START = f"/inspect/{PROJECT}"

Ask = Callable[..., DispatchResult]

HOSTILE = (
    '</pre></style></title><script>document.title = "hit"</script><img src="http://example.org/x"'
    ' onerror="document.title = 1"> {{ 7 * 7 }} \x1b[31mred \u202egnp.exe\u202c \u200bzero'
    ' <a href="javascript:alert(1)" hx-get="/x" hx-trigger="load" style="position:fixed">'
)


# Not for the session: as long as it runs, so does an event loop of this thread, and the stack is its own.
@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium, started once."""
    path = program("chromium")
    # It keeps its crash reports in the home directory.
    home = {"HOME": str(tmp_path_factory.mktemp("browser"))}
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], env=home)
        yield opened
        opened.close()


@pytest.fixture
def family(runtime: Runtime, fork: Fork) -> Callable[[int], Family]:  # noqa: F811  # the fixture above
    """Ask for a batch of so many tasks, and look after it."""
    runtime.followers = (BatchManager(),)
    return lambda tasks: Family(runtime, fork(tasks))


class Visitor:
    """A person at a browser, who notices whatever goes wrong."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.address = address
        self.troubles: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"a dialog: {dialog.message}"))
        self.page.on("request", self._watch)

    def go(self, path: str) -> None:
        self.page.goto(self.address + path)

    def faults(self) -> list[tuple[str, list[str]]]:
        """The serious faults that axe-core finds in the page, and where."""
        self.page.evaluate(axe_core())
        found = self.page.evaluate("axe.run().then(found => found.violations)")
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        return [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious]

    def overflows(self) -> int:
        """How many pixels of the page lie beyond its right edge."""
        wide: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return wide

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text}")

    def _watch(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.troubles.append(f"asked elsewhere: {request.url}")


@pytest.fixture
def visit(browser: Browser, start: Callable[..., str]) -> Iterator[Callable[..., Visitor]]:
    """Open a window, as wide and in the scheme that is asked for, on the pages `at` an address, or of a server that asks for nothing.

    In the end nothing may have gone wrong.
    """
    opened: list[tuple[BrowserContext, Visitor]] = []

    def visit(width: int = 1366, scheme: Any = "light", *, at: str | None = None, **options: Any) -> Visitor:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, **options
        )
        visitor = Visitor(context, at or start())
        opened.append((context, visitor))
        return visitor

    yield visit
    troubles = [trouble for _, visitor in opened for trouble in visitor.troubles]
    for context, _ in opened:
        context.close()
    assert troubles == []


@pytest.fixture
def project(
    runtime: Runtime,
    ask: Ask,
    run: Callable[..., RunOutcome],  # noqa: F811  # the fixture above
    family: Callable[..., Family],
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
    runtime.cards.delete([cards[0].card_id], force=ForcedBy(actor="t"))
    batch = family(2)
    batch.start(0)
    batch.end(0, "failed", HOSTILE)
    room = ChatStores(runtime.database, runtime.project_id, runtime.settings)
    send(room, "a/b<c>", HOSTILE)
    return runtime


def _deep(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value
