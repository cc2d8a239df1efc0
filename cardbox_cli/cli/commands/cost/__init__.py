"""`cbx cost`: what requests that belong together cost, what of that is waste, and how to mend it.

Owns the options. Which requests are meant is `source.py`'s, what is printed of them `page.py`'s.
"""

from typing import Annotated, cast

from typer import Argument, Option

from cardbox_cli.cli.commands.cost.budget import BUDGET, Budget
from cardbox_cli.cli.options import compose_options
from cardbox_cli.cli.options.shared_options import MOST, Since
from cardbox_cli.cli.options.value_types import (
    AGENT,
    BOX,
    BOX_OR_TURN,
    CHAT,
    FILE,
    HTML,
    PROFILE,
    TURN,
    OneOf,
)
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.cost.account import GROUPINGS, Grouping, account_of
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import PRICES


@verb(
    "cost",
    "cbx cost 1d5c8f72",
    "cbx cost 8b1f22c0 --by card --top 5",
    "cbx cost --agent researcher --since 2h --by tool",
    "cbx cost --chat telegram-chat-42 --by card",
    "cbx cost 1d5c8f72 --prices prices.yaml -o json | jq .money",
    "cbx cost 1d5c8f72 --format html > cost.html",
    "cbx cost $CONTEXT_BOX --profile writer --fail-over 60%",
    "cbx cost @last -o json | jq -r '.findings[].fix | select(. != null)'",
    pages=True,
    reads=True,
)
def show_costs(
    source: Annotated[
        str | None,
        Argument(
            click_type=BOX_OR_TURN,
            help="A turn: the requests of its steps. Or a box: those that its answers were given to. An id, "
            "4 or more characters of its beginning or end, or @last for the last box.",
        ),
    ] = None,
    turn: Annotated[
        str | None, Option(click_type=TURN, help="A turn, also the last one: --turn @last.")
    ] = None,
    box: Annotated[
        str | None, Option("--box", "-b", click_type=BOX, help="A box, where it must be one.")
    ] = None,
    agent: Annotated[
        str | None, Option(click_type=AGENT, help="The turns of this agent: of --since, else the last 20.")
    ] = None,
    chat: Annotated[
        str | None, Option(click_type=CHAT, help="The runs of this chat: of --since, else the last 20.")
    ] = None,
    since: Since = None,
    by: Annotated[
        str, Option(click_type=OneOf(lambda: GROUPINGS, what="grouping"), help="Group the tokens by this.")
    ] = "layer",
    top: Annotated[
        int, Option(metavar="N", min=1, max=MOST, help="So many steps, lines and findings at most.")
    ] = 20,
    profile: Annotated[
        str | None,
        Option(click_type=PROFILE, help="With a box: its prompt, model and tools stand before it."),
    ] = None,
    model: compose_options.Model = None,
    prices: Annotated[
        str | None,
        Option(click_type=FILE, help=f"YAML with what tokens cost in money. Default: {PRICES.name}."),
    ] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            click_type=OneOf(lambda: (HTML,), what="format"),
            help="html: a page with pictures.",
        ),
    ] = None,
    fail_over: Annotated[
        Budget | None,
        Option(
            click_type=BUDGET,
            help="Exit 8 where a request is over so many tokens, or such a share, as in 60%, of its model's "
            "window.",
        ),
    ] = None,
) -> None:
    """Show how the context grew step by step, what was sent again and again, and what a prefix cache keeps.

    Findings name what was wasted, each with a stable code, the cards that prove it and the command that
    mends it. Nothing is changed.
    """
    if sum(each is not None for each in (source, turn, box, agent, chat)) != 1:
        raise UsageError("name a box or a turn, or --agent or --chat", hint="`cbx turn list` shows the turns")
    if since is not None and agent is None and chat is None:
        raise UsageError("--since is for --agent and --chat", hint="leave it out")
    from cardbox_cli.cli.commands.cost.price_file import read_prices
    from cardbox_cli.cli.options import cost_selection as sources
    from cardbox_cli.cli.terminal.cost_report import Page, print_cost

    known = read_prices(prices)
    options = compose_options.options(model=model, is_composed=False)
    with open_database() as database, database.snapshot():
        if agent is not None:
            costed = sources.costed_agent(database, agent, since, options, profile)
        elif chat is not None:
            costed = sources.costed_chat(database, chat, since, options, profile)
        elif turn is not None:
            costed = sources.costed_turn(database, turn, options, profile)
        elif box is not None:
            costed = sources.costed_box(database, box, options, profile)
        else:
            costed = sources.costed_source(database, source or "", options, profile)
    account = account_of(costed.series)
    print_cost(
        costed, account, Page(by=cast(Grouping, by), top=top, prices=known, is_picture=format_ == HTML)
    )
    if fail_over is not None:
        fail_over.check(account)
