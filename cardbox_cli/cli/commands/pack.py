"""`cbx pack`: a new context box from a handover recipe."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Option

from cardbox_cli.cli.actor import audit, own_turn
from cardbox_cli.cli.last_ids import remember_made, resolving_boxes
from cardbox_cli.cli.options import compose_options, recipe_arguments
from cardbox_cli.cli.options.value_types import RECIPE
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.lint_report import gate
from cardbox_cli.cli.terminal.list_columns import short_rule
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_below
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.request import RequestEntry, model_of, profile_of, request_of
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR, Card, CardDraft
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.pairing import preview
from cardbox_cli.model.tokens import ESTIMATING_TOKENIZER, Tokenizer, card_tokens
from cardbox_cli.packing.plan import PlannedCard
from cardbox_cli.text.quantities import format_tokens

if TYPE_CHECKING:
    from cardbox_cli.context.repair.fit import FittedRequest
    from cardbox_cli.packing.pack import PackResult
    from cardbox_cli.store.connection.database import Database


@verb(
    "pack",
    "cbx pack --handover delegate --arg profile_name=researcher --arg instruction='Find the cause'",
    "cbx pack --handover review --args review.yaml --arg work_box_ids=$BOX --dry-run",
    "cbx pack --handover review --args review.yaml --arg work_box_ids=$BOX --max-tokens 8000",
    "cbx pack --handover expert --arg profile_name=lawyer --arg question=@question.md --check -o id",
    reads="dry_run",
)
def pack_context(
    handover: Annotated[
        str,
        Option(
            "--recipe",
            "--handover",
            "-H",
            click_type=RECIPE,
            help="A recipe file, or the name of a recipe (`cbx handover list`).",
        ),
    ],
    arg: recipe_arguments.Arguments = None,
    args: recipe_arguments.ArgumentFiles = None,
    source_agent: Annotated[
        str, Option(metavar="AGENT", help="The agent that requests the context.")
    ] = OPERATOR,
    allow_dangling: recipe_arguments.AllowDangling = False,
    max_tokens: compose_options.MaxTokens = None,
    fit: compose_options.FitStrategy = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan without writing anything.")] = False,
    explain: Annotated[
        bool, Option("--explain", help="Print each card with the rule that added it.")
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Refuse a context that the provider would reject: exit 8 on errors.")
    ] = False,
    force: Annotated[
        bool, Option("--force", help="With --check: print the findings, but pack anyway.")
    ] = False,
) -> None:
    """Build a context box from a recipe: arguments, inherited boxes and a parent pointer."""
    from cardbox_cli.packing.pack import Packing

    passing = gate("packs", check=check, force=force)
    if not source_agent.strip():
        raise UsageError("--source-agent is empty", hint=f"remove the option to use {OPERATOR}")
    budget = compose_options.token_budget(max_tokens, fit)
    cards_read = _PackedCards(are_printed=explain or dry_run)
    loaded = recipe_arguments.load_recipe(handover)
    arguments = recipe_arguments.parse_arguments(arg or [], args or [], loaded.recipe)
    with open_database() as database, database.transaction() if force else nullcontext():
        boxes = resolving_boxes(database, session().project_id)
        arguments = recipe_arguments.resolve_boxes(arguments, loaded.recipe, boxes)
        packing = Packing(
            database,
            session().project_id,
            recipe=loaded.recipe,
            recipe_name=loaded.name,
            arguments=arguments,
            source_agent_id=source_agent,
            turn=own_turn(),
            allow_dangling=allow_dangling,
        )
        packed = packing.pack(
            dry_run=dry_run,
            look=cards_read.add,
            check=passing,
            fit=None if budget is None else partial(_fit, database, budget=budget),
        )
        if passing is not None and passing.overruled and not dry_run:
            box = packed.context_box_id
            audit(database, "pack --force", context_box_id=box, overruled=passing.overruled)
        if packed.context_box_id is not None:
            new_ids = [None, *(draft.card_id for draft in packed.plan.drafts)]
            remember_made(card_id=new_ids[-1], box_id=packed.context_box_id)
        if cards_read.are_printed:
            cards_read.recount(_profile_tokenizer(database, packed))
    for note in compose_options.fit_notes(packed.fitted) if packed.fitted is not None else ():
        announce(f"note: {note}")
    recipe_arguments.announce_argument_use(loaded.recipe, loaded.name, arguments)
    _print(packed, cards_read, loaded.recipe.missing_arguments(arguments))


class _PackedCards:
    """The tokens of the packed cards. If they are printed, also the cards by id."""

    def __init__(self, *, are_printed: bool) -> None:
        self.are_printed = are_printed
        self.tokenizer = ESTIMATING_TOKENIZER
        self.tokens = 0
        self.cards: dict[str, Card | CardDraft] = {}

    def add(self, place: PlannedCard, card: Card | CardDraft | None) -> None:
        if card is None:
            return
        if self.are_printed:
            self.cards[place.card_id] = card
        else:
            self.tokens += card_tokens(card)

    def recount(self, tokenizer: Tokenizer) -> None:
        """Count the tokens of the held cards again with a model's tokenizer."""
        self.tokenizer = tokenizer
        self.tokens = sum(card_tokens(card, tokenizer) for card in self.cards.values())


def _fit(
    database: "Database", entries: "list[RequestEntry]", *, budget: compose_options.TokenBudget
) -> "FittedRequest":
    """Fit the request that a worker would send, with its tools, into the budget."""
    from cardbox_cli.context.repair.fit import fit
    from cardbox_cli.execution.requests.turn_requests import offered_definitions, present_cards
    from cardbox_cli.orchestration.handler_registry import HANDLERS
    from cardbox_cli.providers.registry import provider_for, provider_named

    provider = provider_named(provider_for(entries))
    composed = request_of(entries, encode=provider.encode)
    cards = present_cards(entry.slot for entry in entries)
    tools = offered_definitions(database, session().project_id, cards, cards, HANDLERS)
    request = msgspec.structs.replace(composed, tools=tools)
    return fit(request, budget.most, budget.strategy, provider=provider, author_id=OPERATOR)


def _profile_tokenizer(database: "Database", packed: "PackResult") -> Tokenizer:
    from cardbox_cli.providers.models import tokenizer_for
    from cardbox_cli.store.profiles import ProfileStore

    card = ProfileStore(database, session().project_id).card(packed.profile_box_id)
    return tokenizer_for(model_of(profile_of([card] if card else [])))


def _print(packed: "PackResult", cards_read: _PackedCards, missing_arguments: list[str]) -> None:
    answer: dict[str, Any] = {
        "context_box_id": packed.context_box_id,
        "profile_box_id": packed.profile_box_id,
        "card_ids": packed.plan.card_ids,
        "parent_ids": packed.plan.parent_ids,
        "digest": packed.digest,
        "left_out": packed.plan.left_out,
        "missing_arguments": missing_arguments,
    }
    if cards_read.are_printed:
        answer["plan"] = [_plan_line(place, cards_read) for place in packed.plan.cards]
        answer["tokens"] = cards_read.tokens
        answer["tokens_exact"] = cards_read.tokenizer.exact
        answer["tokenizer"] = cards_read.tokenizer.name
    output.emit(
        answer,
        table=lambda: _print_text(packed, cards_read),
        ids=[packed.context_box_id] if packed.context_box_id else [],
    )


def _plan_line(place: PlannedCard, cards_read: _PackedCards) -> dict[str, Any]:
    card = cards_read.cards.get(place.card_id)
    return {
        "card_id": place.card_id,
        "rule": place.rule,
        "new": place.draft is not None,
        "type": card.type if card else None,
        "role": card.role if card else None,
        "tokens": card_tokens(card, cards_read.tokenizer) if card else 0,
        "content": card.content if card else None,
    }


def _print_text(packed: "PackResult", cards_read: _PackedCards) -> None:
    places = packed.plan.cards
    tokens = format_tokens(cards_read.tokens, exact=cards_read.tokenizer.exact)
    output.facts(
        ("context box", packed.context_box_id or "(dry run: nothing was written)"),
        ("profile", f"{packed.profile_name}  {packed.profile_box_id}"),
        ("cards", f"{len(places)}, {tokens} tokens"),
        ("new", str(len(packed.plan.drafts))),
        ("left out", str(len(packed.plan.left_out)) if packed.plan.left_out else None),
        ("parents", ", ".join(packed.plan.parent_ids) or None),
        ("digest", packed.digest),
    )
    if cards_read.are_printed:
        print_below(_plan_columns(packed, cards_read), list(enumerate(places)))
        print_below(_LEFT_OUT_COLUMNS, packed.plan.left_out)


_LEFT_OUT_COLUMNS = (
    Column("LEFT OUT", lambda left: short_id(left.card_id)),
    Column("WHY", lambda left: left.reason),
    Column("RULE", lambda left: short_rule(left.rule)),
)


def _plan_columns(packed: "PackResult", cards_read: _PackedCards) -> Sequence[Column]:
    """Return the columns of planned cards. Items are pairs of a position and a card."""

    def card_cell(text: Callable[[Card | CardDraft], str], without: str = NOTHING) -> Callable[[Any], str]:
        def cell(numbered: tuple[int, PlannedCard]) -> str:
            card = cards_read.cards.get(numbered[1].card_id)
            return text(card) if card else without

        return cell

    def card_id(numbered: tuple[int, PlannedCard]) -> str:
        place = numbered[1]
        is_written = packed.context_box_id is not None or place.draft is None
        return short_id(place.card_id) if is_written else "(new)"

    def tokens(card: Card | CardDraft) -> str:
        return format_tokens(card_tokens(card, cards_read.tokenizer), exact=cards_read.tokenizer.exact)

    return (
        Column("#", lambda numbered: str(numbered[0]), right=True),
        Column("ID", card_id),
        Column("TYPE", card_cell(lambda card: card.type, "(dangling)")),
        Column("ROLE", card_cell(lambda card: card.role or NOTHING), spare=1),
        Column("TOKENS", card_cell(tokens), right=True, spare=2),
        Column("RULE", lambda numbered: short_rule(numbered[1].rule)),
        Column("PREVIEW", card_cell(lambda card: preview(card, 60), ""), overflow="cut"),
    )
