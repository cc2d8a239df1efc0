"""`cbx cost`: where tokens went, what was wasted, and the budget of --fail-over."""

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import click
from typer import Argument, Option

from cardbox_cli.cli.options import compose_options
from cardbox_cli.cli.options.input_files import read_text, source_name
from cardbox_cli.cli.options.shared_options import MAX_COUNT, Since
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
from cardbox_cli.cli.project_database import named_stores, open_database
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.cost.account import GROUPINGS, Account, Grouping, StepCost
from cardbox_cli.errors import Findings, InvalidInput, UsageError
from cardbox_cli.providers.models import window
from cardbox_cli.settings import PRICES
from cardbox_cli.text.error_messages import invalid_message
from cardbox_cli.text.quantities import format_tokens
from cardbox_cli.text.times import parse_time

if TYPE_CHECKING:
    from cardbox_cli.context.cost.answer import Prices

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%")


class Budget(NamedTuple):
    """A limit for each request: `tokens`, or a `share` of the context window of its model."""

    tokens: int | None = None
    share: float | None = None

    def check(self, account: Account) -> None:
        """Raise Findings if a request exceeds the budget, InvalidInput if a context window is unknown."""
        over = [step for step in account.steps if step.tokens > self.limit(step)]
        if over:
            step = max(over, key=lambda step: step.tokens)
            tokens = format_tokens(step.tokens, exact=not step.estimated)
            raise Findings(
                f"request {step.number} has {tokens} tokens, over the budget of {self._describe(step)}"
            )

    def limit(self, step: StepCost) -> float:
        """Return the limit of a request in tokens. Raises InvalidInput if its context window is unknown."""
        if self.share is None:
            return self.tokens or 0
        size = window(step.model)
        if size is None:
            raise InvalidInput(
                f"--fail-over: the context window of model {step.model or 'unknown'!r} is unknown",
                hint="pass a number of tokens, for example --fail-over 60000, or --model",
            )
        return self.share * size

    def _describe(self, step: StepCost) -> str:
        if self.share is None:
            return str(self.tokens)
        return f"{self.limit(step):.0f}, {self.share * 100:g}% of the window of {step.model}"


class _BudgetType(click.ParamType[Budget]):
    name = "TOKENS|SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Budget:
        """Raises UsageError for an invalid budget."""
        if isinstance(value, Budget):
            return value
        percent = _PERCENT.fullmatch(value)
        if percent is not None and 0 < float(percent[1]) <= 100:
            return Budget(share=float(percent[1]) / 100)
        if value.isascii() and value.isdecimal() and 0 < len(value) <= 12:
            return Budget(tokens=int(value))
        raise UsageError(
            f"--fail-over: {invalid_message('budget', value)}",
            hint="pass a number of tokens such as 60000, or a percentage such as 60%",
        )


BUDGET = _BudgetType()


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
    panels={
        "Which requests": "turn box agent chat since",
        "The report": "by top format_ prices fail_over",
        "Compose": "profile model",
    },
)
def show_costs(
    source: Annotated[
        str | None,
        Argument(
            click_type=BOX_OR_TURN,
            help="A turn (the requests of its steps) or a box (the requests before its answers). Pass a "
            "full id, a unique part of 4 or more characters at its start or end, or @last for the last box.",
        ),
    ] = None,
    turn: Annotated[str | None, Option(click_type=TURN, help="A turn, for example --turn @last.")] = None,
    box: Annotated[str | None, Option("--box", "-b", click_type=BOX, help="A box.")] = None,
    agent: Annotated[
        str | None, Option(click_type=AGENT, help="This agent's turns after --since, or its last 20 turns.")
    ] = None,
    chat: Annotated[
        str | None, Option(click_type=CHAT, help="This chat's runs after --since, or its last 20 runs.")
    ] = None,
    since: Since = None,
    by: Annotated[
        str, Option(click_type=OneOf(lambda: GROUPINGS, what="grouping"), help="How to group the tokens.")
    ] = "layer",
    top: Annotated[
        int, Option(metavar="N", min=1, max=MAX_COUNT, help="Show at most N steps, lines and findings.")
    ] = 20,
    profile: Annotated[
        str | None,
        Option(click_type=PROFILE, help="With a box: add the prompt, model and tools of this profile."),
    ] = None,
    model: compose_options.Model = None,
    prices: Annotated[
        str | None,
        Option(click_type=FILE, help=f"A YAML file with prices of tokens. Default: {PRICES.name}."),
    ] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            click_type=OneOf(lambda: (HTML,), what="format"),
            help="html writes a page with charts.",
        ),
    ] = None,
    fail_over: Annotated[
        Budget | None,
        Option(
            click_type=BUDGET,
            help="Exit 8 if a request exceeds N tokens, or a percentage of its model's context window, "
            "for example 60%.",
        ),
    ] = None,
) -> None:
    """Show how the context grew step by step, what was sent repeatedly, and what a prefix cache reuses.

    Each finding has a stable code, the cards that prove it, and the command that fixes it. `cbx cost` itself
    changes nothing.
    """
    if sum(each is not None for each in (source, turn, box, agent, chat)) != 1:
        raise UsageError(
            "pass exactly one box, turn, --agent or --chat", hint="list turns with `cbx turn list`"
        )
    if since is not None and agent is None and chat is None:
        raise UsageError("--since requires --agent or --chat", hint="remove --since")
    from cardbox_cli.cli.terminal.cost_report import Page, print_cost
    from cardbox_cli.inspect.costs import CostReader

    price_list = _read_prices(prices)
    options = compose_options.options(model=model, is_composed=False)
    parse_time(since, "--since")
    sources = {"source": source, "turn": turn, "box": box, "agent": agent, "chat": chat}
    [(kind, name)] = [(kind, name) for kind, name in sources.items() if name is not None]
    with open_database() as database, database.snapshot():
        stores = named_stores(database)
        costed = CostReader(*stores, options=options, profile=profile, since=since).read(kind, name)
    for note in costed.notes:
        announce(f"note: {note}")
    account = costed.account()
    if fail_over is not None:
        for step in account.steps:
            fail_over.limit(step)  # report an unknown window before printing
    print_cost(
        costed, account, Page(by=cast(Grouping, by), top=top, prices=price_list, is_picture=format_ == HTML)
    )
    if fail_over is not None:
        fail_over.check(account)


def _read_prices(file: str | None) -> "Prices | None":
    """Return the prices of the file, else of the setting's file; None if neither names one.

    Raises NotFound and InvalidInput naming the file and the place.
    """
    from cardbox_cli.context.cost.answer import Prices

    path = file or PRICES.text() or None
    if path is None:
        return None
    from cardbox_cli.model.handwritten.prices import parse_prices

    currency, models = parse_prices(read_text(path), source_name(path))
    return Prices.build(currency, models)
