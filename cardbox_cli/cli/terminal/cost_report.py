"""Prints the answer of `cbx cost`: steps, costly parts, the first break of the cache, findings."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import layer_label, short_or_nothing
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_below, text_or_nothing
from cardbox_cli.context.cost.account import Account, Grouping, Share, StepCost
from cardbox_cli.context.cost.answer import Break, Costs, Prices
from cardbox_cli.context.cost.findings import CostFinding, FixCommand
from cardbox_cli.context.diff import piece_name
from cardbox_cli.model.ids import short_id
from cardbox_cli.text.escaping import excerpt, flatten
from cardbox_cli.text.quantities import format_tokens

if TYPE_CHECKING:
    from cardbox_cli.inspect.costs import CostedSeries


class Page(NamedTuple):
    """The form of the answer. `top` limits its lists, and `is_picture` requests HTML."""

    by: Grouping
    top: int
    prices: Prices | None
    is_picture: bool = False


def print_cost(costed: "CostedSeries", account: Account, page: Page) -> None:
    """Print the costs of a series of requests. With -o id: the most expensive cards."""
    costs = costed.costs(account, page.prices)
    for model in [] if costs.money is None else costs.money.unpriced:
        announce(
            f"warning: the price of model {model!r} is unknown, so the total price excludes its "
            "requests (add the price with --prices, or choose another model with --model)"
        )
    if page.is_picture:
        _print_picture(costed, costs, page)
        return
    card_ids = [card.card_id for card in costs.cards[: page.top] if card.card_id]
    answer = costed.answer(costs, top=page.top, project_option=session().project_option)
    output.emit(answer, table=lambda: _print_text(costed, costs, page), ids=card_ids)


def _line(mend: FixCommand | None) -> str | None:
    return None if mend is None else mend.line(*session().project_option)


# --- for people


def _print_text(costed: "CostedSeries", costs: Costs, page: Page) -> None:
    from cardbox_cli.inspect.costs import cost_facts

    account, steps = costs.account, costs.account.steps
    exact = account.exact
    output.facts((costed.kind, costed.id), *cost_facts(costs, format_tokens).items())
    visible = steps[-page.top :]
    columns = _STEP if account.reported else [each for each in _STEP if each.name != "REPORTED"]
    print_below(columns, [(step, steps[step.number - 2] if step.number > 1 else None) for step in visible])
    if len(visible) < len(steps):
        announce(f"{len(steps) - len(visible)} earlier steps; --top {len(steps)} shows all")
    if page.by == "card":
        print_below(_CARD, costs.cards[: page.top])
    else:
        print_below(_share_columns(page.by, exact), account.by[page.by][: page.top])
    if costs.broken is not None:
        _print_break(costs.broken, exact)
    _print_findings(costs.findings[: page.top], exact)
    if len(costs.findings) > page.top:
        announce(f"{len(costs.findings) - page.top} more findings; --top {len(costs.findings)} shows all")


def _print_picture(costed: "CostedSeries", costs: Costs, page: Page) -> None:
    from cardbox_cli.inspect.costs import cost_facts
    from cardbox_cli.pictures.cost_picture import CostPicture, cost_page
    from cardbox_cli.pictures.request_picture import token_label

    picture = CostPicture(
        name=f"{costed.kind} {costed.id}",
        facts=cost_facts(costs, token_label),
        account=costs.account,
        findings=[(each, _line(each.mend)) for each in costs.findings[: page.top]],
    )
    output.write(cost_page(picture), end="")


def _growth(pair: tuple[StepCost, StepCost | None]) -> str:
    step, before = pair
    return NOTHING if before is None else f"{step.tokens - before.tokens:+d}"


# The items are pairs of a step and the previous step.
_STEP = (
    Column("#", lambda pair: str(pair[0].number), right=True),
    Column("STEP", lambda pair: short_or_nothing(pair[0].step_id), spare=2),
    Column("MESSAGES", lambda pair: str(pair[0].messages), right=True, spare=3),
    Column("TOKENS", lambda pair: format_tokens(pair[0].tokens, exact=not pair[0].estimated), right=True),
    Column("REPORTED", lambda pair: text_or_nothing(pair[0].reported), right=True),
    Column("GREW", _growth, right=True, spare=1),
    Column("KEPT", lambda pair: str(pair[0].kept), right=True),
    Column("NEW", lambda pair: str(pair[0].new), right=True),
    Column("CACHE", lambda pair: "broken" if pair[0].breaks else NOTHING),
)
_CARD = (
    Column("CARD", lambda card: short_or_nothing(card.card_id)),
    Column("TYPE", lambda card: card.type),
    Column("TOOL", lambda card: flatten(card.tool), spare=2),
    Column("TOKENS", lambda card: format_tokens(card.tokens, exact=card.tokens_exact), right=True),
    Column("SENT", lambda card: str(card.sends), right=True),
    Column("IN ALL", lambda card: format_tokens(card.total, exact=card.tokens_exact), right=True),
    Column("SHARE", lambda card: f"{card.share:.1%}", right=True, spare=1),
    Column("PREVIEW", lambda card: excerpt(card.preview, 60), overflow="cut"),
)


def _share_columns(by: Grouping, exact: bool) -> Sequence[Column]:
    def number(tokens: Callable[[Share], int]) -> Callable[[Share], str]:
        return lambda share: format_tokens(tokens(share), exact=exact)

    return (
        Column(by.upper(), lambda share: flatten(layer_label(share.name) if by == "layer" else share.name)),
        Column("IN ALL", number(lambda share: share.tokens), right=True),
        Column("SHARE", lambda share: f"{share.share:.1%}", right=True),
        Column("IN THE LAST", number(lambda share: share.last), right=True),
    )


def _print_break(broken: Break, exact: bool) -> None:
    card = f", card {short_id(broken.card_id)}" if broken.card_id else ""
    layer = f", {layer_label(broken.layer)}" if broken.layer else ""
    place = f"{piece_name(broken.section, broken.number)}{layer}{card}"
    character = "" if broken.character is None else f", character {broken.character}"
    output.print_text()
    output.print_text(
        flatten(
            f"the cache breaks first from step {broken.a_step} to {broken.b_step}, at {place}{character}: "
            f"{format_tokens(broken.lost, exact=exact)} tokens are read again"
        )
    )
    for sign, text in (("-", broken.a), ("+", broken.b)):
        side = (
            f"{broken.before}⟨{text}⟩" if text is not None else "(nothing, or a text known only by its hash)"
        )
        output.print_text(f"{sign} {excerpt(side, 160)}")


def _print_findings(findings: Sequence[CostFinding], exact: bool) -> None:
    for each in findings:
        output.print_text()
        tokens = format_tokens(each.tokens, exact=exact)
        output.print_painted([("bold", flatten(f"{each.code}: {each.message}"))])
        cards = " ".join(short_id(one.card_id) for one in each.evidence[:8] if one.card_id)
        output.facts(
            ("  tokens", f"{tokens} tokens, {each.share:.1%}"),
            ("  cards", cards or None),
            ("  remedy", each.remedy),
            ("  command", _line(each.mend)),
        )
