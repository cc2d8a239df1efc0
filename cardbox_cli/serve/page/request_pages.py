"""Pages of requests of boxes, turns and chats: one request, the difference of two, and their costs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from cardbox_cli.context.cost.answer import Break
from cardbox_cli.context.diff import Piece, diff, piece_name
from cardbox_cli.context.explain import TOOLS, Explanation, MessageLine, whole_shares
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.execution.requests.turn_requests import NEXT
from cardbox_cli.inspect.costs import TOP, cost_facts
from cardbox_cli.inspect.requests import InspectedRequest
from cardbox_cli.model.diff import TextPart as TextPiece
from cardbox_cli.model.diff import abridge, text_diff
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.model.pairing import ToolNames, full_text
from cardbox_cli.pictures.cost_picture import cost_colours, drawn_account
from cardbox_cli.pictures.page_elements import swatch
from cardbox_cli.pictures.request_picture import (
    StepPicture,
    draw_growth,
    draw_heat_map,
    draw_icicle,
    draw_layers,
    drawn_step,
    group_colours,
    history_groups,
)
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.providers.models import window
from cardbox_cli.serve.addresses import From
from cardbox_cli.serve.http.project_access import PageRead
from cardbox_cli.serve.page.box_pages import INSIDE, PREVIEW
from cardbox_cli.serve.page.links import RequestOwner, require_parameter
from cardbox_cli.serve.page.templating import PageRoute, cut, drawing_markup, page, tokens
from cardbox_cli.text.escaping import excerpt

routes = APIRouter(route_class=PageRoute)

# The number of messages in a window, and the maximum numbers of the last steps that are listed and drawn.
_WINDOW, _STEPS, _DRAWN = 100, 30, 40


class _Message(msgspec.Struct, frozen=True):
    """A message as a row. `findings` are the lint findings about its card."""

    number: int
    line: MessageLine
    preview: str
    text: str
    is_cut: bool
    findings: list[LintFinding]


@routes.get("/request")
def request(
    read: PageRead,
    turn: str | None = None,
    chat: str | None = None,
    box: str | None = None,
    at: str | None = None,
    first: From = 0,
) -> HTMLResponse:
    about = RequestOwner(read.links, turn=turn, chat=chat, box=box)
    requests = read.requests()
    recorded = requests.recorded(turn=turn, chat=chat)
    if recorded is None:
        shown, steps, before = requests.read_boxes([about.name], by_model=True), [], []
    else:
        shown, steps = requests.read_step(recorded, at), recorded.recorded_step_ids(None)
        sent = requests.sent_before(recorded, shown.step_id, most=_DRAWN)
        pictures = [StepPicture(name=f"step {each.number}", account=each.account) for each in sent]
        before = pictures if len(pictures) > 1 else []
    account = shown.explanation()
    holds = window(shown.request.model)
    account = _group_history(account, shown)
    before = [StepPicture(name=each.name, account=_group_history(each.account, shown)) for each in before]
    layers = whole_shares(account, holds)
    colours = group_colours(
        [
            *(each.layer for each in layers),
            *(line.layer for each in before for line in each.account.messages),
            TOOLS,
        ]
    )
    findings = shown.findings()
    drawn_steps = [drawn_step(each) for each in before]
    is_more = first + _WINDOW < len(account.messages)
    return page(
        read,
        "request.html",
        view=about.view,
        about=about,
        name=shown.name,
        format=shown.format,
        provider=provider_of(shown.format).name,
        notes=shown.notes,
        account=account,
        model=shown.request.model,
        window=holds,
        layers=layers,
        bar=drawing_markup(draw_layers(layers, account, colours)),
        swatches=swatches(colours),
        icicle=drawing_markup(draw_icicle(account, colours)) if account.messages else None,
        findings=findings,
        errors=sum(finding.severity == "error" for finding in findings),
        messages=_messages(account, findings, first, shown),
        first=first,
        next=about.request(at, from_=first + _WINDOW) if is_more else None,
        steps=[] if recorded is None else _steps(about, steps, shown, is_over=recorded.is_over),
        earlier=_earlier(about, steps, shown),
        growth=drawing_markup(draw_growth(drawn_steps, colours)) if drawn_steps else None,
        heat=drawing_markup(draw_heat_map(drawn_steps, colours)) if drawn_steps else None,
    )


def _group_history(account: Explanation, shown: InspectedRequest) -> Explanation:
    """Return the account with groups of the history, by card type and tool, instead of its one layer.

    The cards are those of the shown request. Messages of other requests keep their role.
    """
    names = ToolNames()
    pairs: dict[str, tuple[str, str]] = {}
    for card_id, place in shown.request.places.items():
        if place.slot.card is not None:
            pairs[card_id] = place.slot.card.type, names.tool_names(place.slot.card) or ""
    tokens: Counter[tuple[str, str]] = Counter()
    for line in shown.explanation().messages:
        if line.layer == CHECKPOINT:
            tokens[pairs.get(line.card_id or "", (line.role, ""))] += line.tokens
    groups = history_groups(tokens)

    def group(line: MessageLine) -> MessageLine:
        if line.layer != CHECKPOINT:
            return line
        pair = pairs.get(line.card_id or "", (line.role, ""))
        return msgspec.structs.replace(line, layer=groups.get(pair, f"history: {line.role}"))

    return msgspec.structs.replace(account, messages=[group(line) for line in account.messages])


def swatches(colours: Mapping[str, str]) -> dict[str, Markup]:
    """Return a small square for each layer."""
    return {name: drawing_markup(swatch(colour)) for name, colour in colours.items()}


def step_name(steps: Sequence[str], step_id: str) -> str:
    """Return the number of a step within its turn or run, as text."""
    return f"step {steps.index(step_id) + 1}" if step_id in steps else step_id


def _messages(
    account: Explanation, findings: Sequence[LintFinding], first: int, shown: InspectedRequest
) -> list[_Message]:
    of_card: dict[str, list[LintFinding]] = {}
    for finding in findings:
        if finding.card_id is not None:
            of_card.setdefault(finding.card_id, []).append(finding)
    rows = []
    for number, line in enumerate(account.messages[first : first + _WINDOW], first + 1):
        about = of_card.get(line.card_id or "", [])
        text = _readable(line, shown)
        rows.append(_Message(number, line, excerpt(text, PREVIEW), *cut(text, INSIDE), about))
    return rows


def _readable(line: MessageLine, shown: InspectedRequest) -> str:
    """Return the text of a message. Its tool calls are shown as calls, not as JSON."""
    place = shown.request.places.get(line.card_id or "")
    card = None if place is None else place.slot.card
    return full_text(card) if card is not None and card.tool_calls else line.preview


def _steps(
    about: RequestOwner, steps: Sequence[str], shown: InspectedRequest, *, is_over: bool
) -> list[dict[str, Any]]:
    """Return links to the requests of the last steps, and to the next request if the turn has not ended."""
    named = [(each, step_name(steps, each)) for each in steps[-_STEPS:]]
    return [
        {"name": name, "address": about.request(at), "is_shown": at == (shown.step_id or NEXT)}
        for at, name in (named if is_over else [*named, (NEXT, NEXT)])
    ]


def _earlier(about: RequestOwner, steps: Sequence[str], shown: InspectedRequest) -> str | None:
    """Return the address of the comparison with the previous step."""
    index = steps.index(shown.step_id) if shown.step_id in steps else len(steps)
    return about.diff(steps[index - 1], shown.step_id or NEXT) if index else None


# The maximum numbers of new messages shown, and of characters that are compared word by word.
_NEW, _COMPARED = 200, 20_000


@routes.get("/diff")
def difference(
    read: PageRead,
    a: str | None = None,
    b: str | None = None,
    turn: str | None = None,
    chat: str | None = None,
) -> HTMLResponse:
    """Show what the second step adds to the first, and which tokens the cache cannot reuse."""
    about = RequestOwner(read.links, turn=turn, chat=chat)
    requests = read.requests()
    recorded = requests.recorded(turn=turn, chat=chat)
    assert recorded is not None
    one, other = requests.pair(
        (require_parameter(a, "first step"), require_parameter(b, "second step")), steps=recorded
    )
    steps = recorded.recorded_step_ids(None)
    changes = diff(one.request, other.request, provider_of(one.format))
    parting = None if changes.continues else changes.difference
    named = [(each, step_name(steps, each)) for each in steps]
    return page(
        read,
        "diff.html",
        view=about.view,
        about=about,
        a=one.name,
        b=other.name,
        asked_a=one.step_id or NEXT,
        asked_b=other.step_id or NEXT,
        steps=named if recorded.is_over else [*named, (NEXT, NEXT)],
        notes=[f"the layer {each} is compared by its hash" for each in {*changes.a_lost, *changes.b_lost}],
        found=changes,
        pieces=[] if parting is None else abridge(text_diff(_text(parting.a), _text(parting.b))),
        place_a=_describe(parting.a) if parting else "",
        place_b=_describe(parting.b) if parting else "",
        new=[
            {"piece": each, "preview": excerpt(each.text, PREVIEW), "text": each.text[:INSIDE]}
            for each in changes.new[:_NEW]
        ],
    )


def _text(piece: Piece | None) -> str:
    return "" if piece is None else piece.text[:_COMPARED]


def _describe(piece: Piece | None) -> str:
    if piece is None:
        return "nothing"
    cards = ", ".join(f"card {short_id(each)}" for each in piece.card_ids[:8])
    parts = (piece_name(piece.section, piece.number), piece.role, piece.layer, cards)
    return ", ".join(part for part in parts if part)


# The maximum number of characters of texts that differ.
_MAX_DIFFERENCE = 300


@routes.get("/cost")
def cost(
    read: PageRead,
    turn: str | None = None,
    agent: str | None = None,
    chat: str | None = None,
    box: str | None = None,
) -> HTMLResponse:
    about = RequestOwner(read.links, turn=turn, agent=agent, chat=chat, box=box)
    costed = read.costs().read(about.kind, about.name)
    account = costed.account()
    costs = costed.costs(account)
    steps = drawn_account(account) if len(account.steps) > 1 else []
    colours = cost_colours(account, steps)
    return page(
        read,
        "cost.html",
        view=about.view,
        about=about,
        notes=costed.notes,
        facts=cost_facts(costs, tokens).items(),
        findings=[
            (each, None if each.mend is None else each.mend.line(*read.project_option))
            for each in costs.findings[:TOP]
        ],
        account=account,
        exact=account.exact,
        cards=costs.cards[:TOP],
        broken=costs.broken,
        broken_at="" if costs.broken is None else piece_name(costs.broken.section, costs.broken.number),
        parted=[] if costs.broken is None else _diff_at(costs.broken),
        swatches=swatches(colours),
        growth=drawing_markup(draw_growth(steps, colours)) if steps else None,
        heat=drawing_markup(draw_heat_map(steps, colours)) if steps else None,
    )


def _diff_at(broken: Break) -> list[TextPiece]:
    """Return the differing texts at a cache break, after the end of their common text."""
    removed, added = (broken.a or "")[:_MAX_DIFFERENCE], (broken.b or "")[:_MAX_DIFFERENCE]
    return [TextPiece("same", broken.before), TextPiece("removed", removed), TextPiece("added", added)]
