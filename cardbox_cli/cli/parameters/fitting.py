"""The options that keep a request within a number of tokens, and what is said of what that cost."""

from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

from typer import Option

from cardbox_cli.cli.parameters.options import MOST
from cardbox_cli.cli.parameters.types import STRATEGY
from cardbox_cli.errors import UsageError
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.quantities import count, token_count

if TYPE_CHECKING:
    from cardbox_cli.context.repair.fit import Fitted, Strategy

MaxTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        max=MOST,
        help="Leave out history until the request has at most so many tokens: calls with their results, "
        "never system text or what is asked.",
    ),
]
FitStrategy = Annotated[
    str | None,
    Option(
        "--fit",
        click_type=STRATEGY,
        help="With --max-tokens, what goes first: the oldest messages (default), or of results the largest, "
        "or those that are said again, for which a note stands.",
    ),
]

# How many of the cards that go are named.
_NAMED = 3


class Budget(NamedTuple):
    """How many tokens a request may have, and what goes first."""

    most: int
    strategy: "Strategy"


def budget(max_tokens: int | None, fit: str | None) -> Budget | None:
    """What the options say; None without them. Raises UsageError for --fit alone."""
    if max_tokens is None and fit is not None:
        raise UsageError("--fit is for --max-tokens", hint="add --max-tokens N, or leave --fit out")
    return None if max_tokens is None else Budget(max_tokens, cast("Strategy", fit or "oldest"))


def notes(fitted: "Fitted") -> list[str]:
    """What went, and what that saved; nothing where all fits."""
    if not fitted.changes:
        return []
    gone = [change.card_id for change in fitted.changes if change.kind == "dropped"]
    noted = [change.card_id for change in fitted.changes if change.kind == "rewritten"]
    went = [
        f"{count(len(ids), 'card')} {what} ({_some(ids)})"
        for ids, what in ((gone, "left out"), (noted, "became a note" if len(noted) == 1 else "became notes"))
        if ids
    ]
    before, after = (token_count(each, exact=fitted.exact) for each in (fitted.before, fitted.after))
    return [f"{after} tokens instead of {before}: {', '.join(went)}"]


def _some(ids: list[str]) -> str:
    more = [f"and {len(ids) - _NAMED} more"] if len(ids) > _NAMED else []
    return ", ".join([*map(short_id, ids[:_NAMED]), *more])
