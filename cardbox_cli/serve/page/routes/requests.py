"""The request that a box makes, or a turn or a chat sends: its layers, what the lint finds, its messages."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from cardbox_cli.context.explain import Explanation, MessageLine, explain, whole_shares
from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.execution.requests.recorded import RecordedRequests
from cardbox_cli.execution.requests.request import NEXT
from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.pictures.page import swatch
from cardbox_cli.pictures.request import StepPicture, drawn_step, icicle, layers_bar, request_colours
from cardbox_cli.pictures.steps import growth, heat
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.providers.models import window
from cardbox_cli.serve.listing import From
from cardbox_cli.serve.page.asked import About
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.look import Looking
from cardbox_cli.serve.page.templating import drawn, page
from cardbox_cli.serve.page.windows import INSIDE, PREVIEW
from cardbox_cli.serve.page.wording import cut
from cardbox_cli.serve.requests import Asked, Requests

routes = APIRouter(route_class=PageRoute)

# Messages of a window; steps that are named, and steps that are drawn: the last ones.
_WINDOW, _STEPS, _DRAWN = 100, 30, 40


class _Message(msgspec.Struct, frozen=True):
    """A message as a row; `findings` are those about its card."""

    number: int
    line: MessageLine
    preview: str
    text: str
    is_cut: bool
    findings: list[LintFinding]


@routes.get("/request")
def request(
    look: Looking,
    turn: str | None = None,
    chat: str | None = None,
    box: str | None = None,
    at: str | None = None,
    first: From = 0,
) -> HTMLResponse:
    """One request, and how those before it grew to it."""
    about = About(look.links, turn=turn, chat=chat, box=box)
    with look.database.snapshot():
        requests = Requests(look)
        recorded = requests.recorded(turn, chat)
        if recorded is None:
            shown, steps, before = requests.of_box(about.name), [], []
        else:
            shown, steps = requests.of_step(recorded, at), recorded.sent_before(None)
            before = _pictures(requests, recorded, steps, shown.step_id)
    provider = provider_of(shown.format)
    account = explain(shown.request, provider)
    holds = window(shown.request.model)
    layers = whole_shares(account, holds)
    colours = request_colours(layers, [each.account for each in before])
    findings = lint(shown.entries, shown.request, provider, awaited=shown.awaited)
    drawn_steps = [drawn_step(each) for each in before]
    is_more = first + _WINDOW < len(account.messages)
    return page(
        look,
        "request.html",
        view=about.view,
        about=about,
        name=shown.name,
        format=shown.format,
        provider=provider.name,
        notes=shown.notes,
        account=account,
        model=shown.request.model,
        window=holds,
        layers=layers,
        bar=drawn(layers_bar(layers, account, colours)),
        swatches=swatches(colours),
        icicle=drawn(icicle(account, colours)) if account.messages else None,
        findings=findings,
        errors=sum(found.severity == "error" for found in findings),
        messages=_messages(account, findings, first),
        first=first,
        next=about.request(at, from_=first + _WINDOW) if is_more else None,
        steps=[] if recorded is None else _steps(about, steps, shown, is_over=recorded.is_over),
        earlier=_earlier(about, steps, shown),
        growth=drawn(growth(drawn_steps, colours)) if drawn_steps else None,
        heat=drawn(heat(drawn_steps, colours)) if drawn_steps else None,
    )


def swatches(colours: Mapping[str, str]) -> dict[str, Markup]:
    """A small square for each layer."""
    return {name: drawn(swatch(colour)) for name, colour in colours.items()}


def step_name(steps: Sequence[str], step_id: str) -> str:
    """What a step is called among those of its turn or run."""
    return f"step {steps.index(step_id) + 1}" if step_id in steps else step_id


def _pictures(
    requests: Requests, recorded: RecordedRequests, steps: Sequence[str], shown: str | None
) -> list[StepPicture]:
    """The steps up to the one that is shown; none where it is alone."""
    before = recorded.sent_before(shown)[-_DRAWN:]
    if len(before) < 2:
        return []
    asked = [(each, requests.of_step(recorded, each)) for each in before]
    return [
        StepPicture(name=step_name(steps, step_id), account=explain(each.request, provider_of(each.format)))
        for step_id, each in asked
    ]


def _messages(account: Explanation, findings: Sequence[LintFinding], first: int) -> list[_Message]:
    of_card: dict[str, list[LintFinding]] = {}
    for found in findings:
        if found.card_id is not None:
            of_card.setdefault(found.card_id, []).append(found)
    rows = []
    for number, line in enumerate(account.messages[first : first + _WINDOW], first + 1):
        about = of_card.get(line.card_id or "", [])
        rows.append(
            _Message(number, line, one_line(line.preview, PREVIEW), *cut(line.preview, INSIDE), about)
        )
    return rows


def _steps(about: About, steps: Sequence[str], shown: Asked, *, is_over: bool) -> list[dict[str, Any]]:
    """The steps whose requests can be looked at, and the next one, where one may come."""
    named = [(each, step_name(steps, each), each == shown.step_id) for each in steps[-_STEPS:]]
    if not is_over:
        named.append((NEXT, NEXT, shown.step_id is None))
    return [
        {"name": name, "address": about.request(at), "is_shown": is_shown} for at, name, is_shown in named
    ]


def _earlier(about: About, steps: Sequence[str], shown: Asked) -> str | None:
    """The comparison with the step before."""
    place = steps.index(shown.step_id) if shown.step_id in steps else len(steps)
    return about.diff(steps[place - 1], shown.step_id or NEXT) if place else None
