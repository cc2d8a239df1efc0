"""What requests that belong together cost: of a turn, of an agent's or a chat's last ones, of a box."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cardbox_cli.context.cost.account import Account, account_of
from cardbox_cli.context.cost.answer import Break, costs_of
from cardbox_cli.context.diff import piece_name
from cardbox_cli.model.diff.texts import Piece
from cardbox_cli.model.text.quantities import count
from cardbox_cli.pictures.cost import drawn_account
from cardbox_cli.pictures.steps import colours_of, growth, heat
from cardbox_cli.providers.models import window
from cardbox_cli.serve.costs import series_of
from cardbox_cli.serve.page.asked import About
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.look import Looking
from cardbox_cli.serve.page.routes.requests import swatches
from cardbox_cli.serve.page.templating import drawn, page
from cardbox_cli.serve.page.wording import tokens

routes = APIRouter(route_class=PageRoute)

# Findings and cards that are shown, and characters of texts that part.
_LINES, _PARTED = 20, 300


@routes.get("/cost")
def cost(
    look: Looking,
    turn: str | None = None,
    agent: str | None = None,
    chat: str | None = None,
    box: str | None = None,
) -> HTMLResponse:
    """The account of a series of requests, and what of it was sent in vain."""
    about = About(look.links, turn=turn, agent=agent, chat=chat, box=box)
    with look.database.snapshot():
        series, subject = series_of(look, about.kind, about.name)
    account = account_of(series)
    costs = costs_of(account, chat=subject)
    colours = colours_of(share.name for share in account.by["layer"])
    steps = drawn_account(account) if len(account.steps) > 1 else []
    return page(
        look,
        "cost.html",
        view=about.view,
        about=about,
        facts=_facts(account),
        findings=[
            (each, None if each.mend is None else each.mend.line(*look.project_option))
            for each in costs.findings[:_LINES]
        ],
        account=account,
        exact=account.exact,
        cards=costs.cards[:_LINES],
        broken=costs.broken,
        broken_at="" if costs.broken is None else piece_name(costs.broken.section, costs.broken.number),
        parted=[] if costs.broken is None else _parted(costs.broken),
        swatches=swatches(colours),
        growth=drawn(growth(steps, colours)) if steps else None,
        heat=drawn(heat(steps, colours)) if steps else None,
    )


def _facts(account: Account) -> list[tuple[str, str]]:
    """The account in short."""
    facts = [
        ("requests", str(len(account.steps))),
        ("tokens", f"{tokens(account.tokens, account.exact)} in all"),
    ]
    greatest = max(account.steps, key=lambda step: step.tokens, default=None)
    if greatest is not None:
        holds = window(greatest.model)
        share = f", {greatest.tokens / holds:.1%} of what {greatest.model} holds" if holds else ""
        size = tokens(greatest.tokens, not greatest.estimated)
        facts.append(("greatest", f"{size} tokens in request {greatest.number}{share}"))
    if len(account.steps) > 1:
        broken = sum(step.breaks for step in account.steps)
        kept = account.kept / account.tokens if account.tokens else 0
        how = f"broken {count(broken, 'time')}" if broken else "never broken"
        facts.append(("cache", f"keeps {tokens(account.kept, account.exact)} tokens, {kept:.1%}; {how}"))
    return facts


def _parted(broken: Break) -> list[Piece]:
    """The texts that part, behind the last words that they share."""
    pieces = [Piece("same", broken.before), Piece("removed", (broken.a or "")[:_PARTED])]
    return [*pieces, Piece("added", (broken.b or "")[:_PARTED])]
