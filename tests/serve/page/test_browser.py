"""The inspector in a browser: what a person does there, and that nothing goes wrong meanwhile."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Route

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.ids import short_id
from cardbox_cli.store.api_tokens import ApiTokenStore
from tests.conftest import PROJECT
from tests.orchestration.batches.conftest import Family
from tests.orchestration.conftest import says
from tests.serve.page.conftest import HOSTILE, START, Ask, Visitor

Visit = Callable[..., Visitor]


@pytest.fixture
def broken(runtime: Runtime, ask: Ask) -> tuple[str, str]:
    """A turn whose context has lost a card, and the card."""
    card = draft_card("task.instruction", HOSTILE)
    runtime.cards.add(card)
    box = runtime.boxes.create([card.card_id])
    turn = ask(context_box_id=box.box_id).agent_turn_id or ""
    runtime.database.connection.execute(
        "UPDATE public.cards SET deleted_at = now() WHERE card_id = %s", [card.card_id]
    )
    return turn, card.card_id


def test_links_lead_from_a_stuck_turn_to_the_card_that_broke_it(
    broken: tuple[str, str], visit: Visit
) -> None:
    turn, card = broken
    visitor = visit()
    page = visitor.page
    page.add_init_script("navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed'))")
    visitor.go("/")
    assert page.get_by_role("heading", level=1).inner_text() == "1 turn with problems"
    page.locator("main").get_by_role("link", name=short_id(turn)).first.click()
    verdict = page.get_by_role("region", name="Verdict")
    assert "stuck" in verdict.inner_text()
    assert "deleted-card" in verdict.inner_text()
    fix = f"cbx turn fail {turn} --expect-epoch 1 --reason 'a card of its context was deleted' --project p  # database "
    page.keyboard.press("c")
    # This window may not use the clipboard: the command is selected.
    page.get_by_text("Selected", exact=True).wait_for()
    assert page.evaluate("String(getSelection())").startswith(fix)
    verdict.get_by_role("link", name=short_id(card)).first.click()
    assert page.url == f"{visitor.address}{START}/cards/{card}"
    assert "readers no longer see it" in page.locator("main").inner_text()
    assert page.locator("pre.card-text").first.inner_text().startswith("</pre></style>")


def test_the_fix_is_copied_if_the_window_may_use_the_clipboard(broken: tuple[str, str], visit: Visit) -> None:
    visitor = visit(permissions=["clipboard-read", "clipboard-write"])
    visitor.go(START)
    visitor.page.get_by_role("button", name="Copy the command").first.click()
    visitor.page.get_by_text("Copied", exact=True).wait_for()
    assert visitor.page.evaluate("navigator.clipboard.readText()").startswith(f"cbx turn fail {broken[0]}")


def test_the_page_of_a_running_batch_updates_live(family: Callable[..., Family], visit: Visit) -> None:
    batch = family(3)
    visitor = visit()
    page = visitor.page
    visitor.go(f"{START}/batches/{batch.batch_id}")
    progress = page.locator("[data-progress]")
    assert progress.inner_text() == "0 of 3 ended"
    page.locator(".live[data-live=yes]").wait_for()
    page.evaluate("window.stays = true")
    for index, words in enumerate(["One.", "Two.", "Three."]):
        batch.start(index)
        batch.end(index, words=words)
        page.get_by_text(f"{index + 1} of 3 ended").wait_for()
        page.get_by_text(words).wait_for()
    assert page.get_by_role("region", name="Progress").inner_text().startswith("success")
    assert page.evaluate("window.stays") is True


@pytest.fixture
def worked(runtime: Runtime, ask: Ask, run: Callable[..., RunOutcome]) -> str:
    """A turn of two steps, with hostile words in them."""
    turn = ask().agent_turn_id or ""
    assert run(says({"look<b>": {"at": HOSTILE}}, HOSTILE)).message == "success"
    return turn


@pytest.mark.parametrize(("width", "scheme"), [(1366, "light"), (390, "dark")])
def test_every_page_fits_the_window_and_is_accessible(
    worked: str, broken: tuple[str, str], family: Callable[..., Family], visit: Visit, width: int, scheme: str
) -> None:
    batch = family(2)
    visitor = visit(width, scheme)
    paths = [
        "",
        "/agents",
        "/agents/clerk",
        f"/turns/{worked}",
        f"/turns/{broken[0]}",
        f"/trace?turn={worked}",
        f"/request?turn={worked}",
        f"/cost?turn={worked}",
        f"/cards/{broken[1]}",
        "/boxes",
        f"/batches/{batch.batch_id}",
        "/chats",
        "/search?q=Find",
        "/nothing-there",
    ]
    faults = {}
    for path in paths:
        visitor.go(START + path)
        visitor.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert "hit" not in visitor.page.title()
        assert visitor.overflows() <= 0, path
        faults[path] = visitor.faults()
    # A page that is not there is a failure to the browser's console, too.
    visitor.troubles[:] = [each for each in visitor.troubles if "404" not in each]
    assert {path: found for path, found in faults.items() if found} == {}


@pytest.mark.parametrize("path", ["", "/agents", "/boxes"])
def test_tables_fit_the_screen_of_a_phone(
    worked: str, broken: tuple[str, str], visit: Visit, path: str
) -> None:
    visitor = visit(390)
    visitor.go(START + path)
    hidden = visitor.page.evaluate(
        "[...document.querySelectorAll('.scroll:has(table)')].map(each => each.scrollWidth - each.clientWidth)"
    )
    assert hidden
    assert max(hidden) <= 0


def test_the_u_key_leads_from_a_card_to_its_box(broken: tuple[str, str], visit: Visit) -> None:
    visitor = visit()
    visitor.go(f"{START}/cards/{broken[1]}")
    visitor.page.keyboard.press("u")
    visitor.page.wait_for_url("**/boxes/*")
    assert visitor.page.locator("#p0").is_visible()


def test_a_long_box_loads_in_windows_and_supports_keys(runtime: Runtime, visit: Visit) -> None:
    drafts = [draft_card("task.instruction", f"Line {number}.") for number in range(250)]
    runtime.cards.add_many(drafts)
    box = runtime.boxes.create([draft.card_id for draft in drafts])
    visitor = visit()
    page = visitor.page
    visitor.go(f"{START}/boxes/{box.box_id}")
    rows = page.locator("#slots > li[data-row]")
    assert rows.count() == 100
    page.get_by_role("link", name="Show the next 100").click()
    page.locator("#p199").wait_for()
    page.get_by_role("link", name="Show the next 50").click()
    page.locator("#p249").wait_for()
    assert rows.count() == 250
    for key in "jjjk":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    assert page.locator("#p1 details").get_attribute("open") is not None
    page.keyboard.press("/")
    page.keyboard.type("Line 77")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Search for").wait_for()
    assert page.locator("mark").all_inner_texts() == ["Line", "77"]


def test_a_browser_sends_its_token_once_and_can_log_out(
    runtime: Runtime, start: Callable[..., str], visit: Visit
) -> None:
    token, _ = ApiTokenStore(runtime.database, PROJECT).create(label="a browser", actor="t", lasts=None)
    visitor = visit(at=start(asks_for_tokens=True))
    page = visitor.page
    visitor.go(f"{START}/agents")
    assert page.get_by_role("heading", level=1).inner_text() == "A token is required"
    page.get_by_label("Token").fill("not it")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()
    # From the form on a page of its own, too.
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="clerk").wait_for()
    assert page.url == f"{visitor.address}{START}/agents"
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Log in").wait_for()
    visitor.go(START)
    assert page.get_by_role("heading", level=1).inner_text() == "A token is required"
    # What is refused is a failure to the browser's console, too.
    visitor.troubles[:] = [each for each in visitor.troubles if "401" not in each]


def test_a_page_is_live_again_when_the_database_is_back(runtime: Runtime, visit: Visit) -> None:
    visitor = visit()
    page = visitor.page
    page.route("**/events", lambda route: route.fulfill(status=503, body="{}"))
    visitor.go(f"{START}/agents")
    page.locator(".live[data-live=polls]").wait_for()
    page.unroute("**/events")
    page.locator(".live[data-live=yes]").wait_for()
    visitor.troubles[:] = [each for each in visitor.troubles if "503" not in each]


def test_a_page_keeps_its_content_while_the_server_is_unreachable(runtime: Runtime, visit: Visit) -> None:
    visitor = visit()
    page = visitor.page
    visitor.go(f"{START}/agents")
    change = "document.body.dispatchEvent(new CustomEvent('cbx:changed'))"
    failures: list[Callable[[Route], None]] = [
        lambda route: route.fulfill(status=503, body="<h1>gone</h1>"),
        lambda route: route.fulfill(status=401, body="<h1>who?</h1>"),
        lambda route: route.abort(),
    ]
    for fail in failures:
        page.route("**/agents", fail)
        page.evaluate(change)
        page.locator(".live[data-live=lost]").wait_for()
        assert page.get_by_role("link", name="clerk").is_visible()
        page.unroute("**/agents")
        page.evaluate(change)
        page.locator(".live:not([data-live=lost])").wait_for()
    visitor.troubles[:] = [each for each in visitor.troubles if "Failed to " not in each]
