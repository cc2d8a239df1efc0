"""`cbx render`: the exact LLM request that boxes make, or that a turn sends or has sent.

Owns the options; `together.py` has which go together. Which request is meant is `parameters/requests.py`'s,
what is printed of it is a module for each answer.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Option

from cardbox_cli.cli.commands.render.together import (
    check_answers,
    check_sources,
    check_step,
    format_of_host,
)
from cardbox_cli.cli.parameters import composing, fitting
from cardbox_cli.cli.parameters.types import (
    AGENT,
    BOX,
    BOX_OR_TURN,
    CHAT,
    HTML,
    PROFILE,
    RENDERED_FORMAT,
    STEP,
    TURN,
    OneOf,
)
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal.reports.findings import answer
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.ids import unique
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.providers.registry import DEFAULT, HOSTS, provider_named, providers

if TYPE_CHECKING:
    from cardbox_cli.cli.parameters.requests import Requests, Shown
    from cardbox_cli.execution.requests.recorded import RecordedRequests


@verb(
    "cbx render --box 8b1f22c0",
    "cbx render --profile writer --box $CONTEXT_BOX --model gpt-4o | curl … -d @-",
    "cbx render --box 8b1f22c0 --format anthropic --check -o json",
    "cbx render --box 8b1f22c0 --query 'Go on' --layer framework__context=@rules.md --layout cache",
    "cbx render --box 8b1f22c0 --max-tokens 8000 --fit largest-results",
    "cbx render --turn @last --explain",
    "cbx render --turn @last --format html > request.html",
    "cbx render --turn 1d5c8f72 --at 2 --verify",
    "cbx render --turn 1d5c8f72 --diff 1 next",
    "cbx render --profile writer --diff 8b1f22c0 77ab01de",
    "cbx render --chat telegram-chat-42 --explain",
    pages=True,
    reads=True,
)
def command(
    box: Annotated[
        list[str] | None,
        Option(
            "--box",
            "-b",
            click_type=BOX,
            help="A box: an id, a unique beginning or end of one, or @last. Repeat for several, in order.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        Option(
            click_type=PROFILE,
            help="With boxes: the system prompt, model and tools of this profile stand before them.",
        ),
    ] = None,
    turn: Annotated[
        str | None,
        Option(click_type=TURN, help="A turn: its next request; of an ended one the last it has sent."),
    ] = None,
    at: Annotated[
        str | None,
        Option(click_type=STEP, help="A step of the turn: its number, an id or a piece of one, or next."),
    ] = None,
    agent: Annotated[
        str | None,
        Option(click_type=AGENT, help="The turn that this agent is at, else its next, else its last."),
    ] = None,
    chat: Annotated[
        str | None,
        Option(click_type=CHAT, help="A chat: the request of its next run; where all is answered, the last."),
    ] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            click_type=RENDERED_FORMAT,
            help=f"{', '.join(f'{each.name} ({each.sends})' for each in providers())}, text (to read) "
            "or html (a page with pictures). "
            "Default: of a turn what this step, or the last one, was sent in, else the model's; of boxes "
            f"{DEFAULT}, with --check the model's.",
        ),
    ] = None,
    model: composing.Model = None,
    query: composing.Query = None,
    layer: composing.Layers = None,
    experience: composing.Experience = False,
    knowledge_query: composing.KnowledgeQuery = None,
    process: composing.ProcessKind = None,
    share: composing.Share = None,
    layout: composing.LayoutName = None,
    max_tokens: fitting.MaxTokens = None,
    fit: fitting.FitStrategy = None,
    check: Annotated[
        bool, Option("--check", help="Instead: what the provider would refuse. Exit 8 on errors.")
    ] = False,
    provider: Annotated[
        str | None,
        Option(
            click_type=OneOf(lambda: HOSTS, what="provider"),
            help="With --check, by the rules of a host that takes a provider's format: openai-compatible.",
        ),
    ] = None,
    explain: Annotated[
        bool, Option("--explain", help="Where each message comes from, and what was left out.")
    ] = False,
    stats: Annotated[bool, Option("--stats", help="Instead: what each layer takes.")] = False,
    diff: Annotated[
        tuple[str, str] | None,
        Option(
            metavar="A B",
            autocompletion=BOX_OR_TURN.matches,
            help="Instead: where request B parts from request A, and what a prefix cache loses. Each is a "
            "box, a turn, or a step by its whole id; with --turn, a step of it. Exit 8 if they differ in "
            "more than new messages of B.",
        ),
    ] = None,
    verify: Annotated[
        bool, Option("--verify", help="Instead: do the cards still make what the step sent? Exit 8 if not.")
    ] = False,
) -> None:
    """Print the request body that boxes make, or a turn or a chat sends, ready to send.

    A profile's box among them gives the system prompt, as --profile does by a name. A recorded step of a
    turn is shown as it was stored, any other request of one as cbx would compose it, which a note on stderr
    says.
    """
    is_page = format_ == HTML
    asked = {"check": check, "explain": explain, "stats": stats, "diff": diff is not None, "verify": verify}
    check_answers(**asked, **{f"format {HTML}": is_page})
    check_sources(box, turn, agent, chat, profile, is_diff=diff is not None)
    if provider is not None:
        format_ = format_of_host(provider, format_, check=check)
    has_steps = bool(turn or agent or chat)
    check_step(at, has_steps=has_steps, is_diff=diff is not None, verify=verify)
    if has_steps:
        composing.check_query(query)
    budget = fitting.budget(max_tokens, fit)
    if budget is not None and (diff is not None or verify):
        raise UsageError("--max-tokens is for one request, to be sent", hint="leave it out")
    options = composing.options(
        model=model,
        query=query,
        layers=layer,
        experience=experience,
        knowledge_query=knowledge_query,
        process=process,
        share=share,
        layout=layout,
        is_composed=bool(box),
    )
    from cardbox_cli.cli.parameters.requests import Requests

    with session().database() as database, database.snapshot():
        wanted = None if is_page else format_
        requests = Requests(database, session().project_id, options=options, format=wanted, profile=profile)
        of_turn = requests.turn(turn, agent) if chat is None else requests.chat(chat)
        if diff is not None:
            answer = _difference(requests, diff, box or [], of_turn)
        elif verify and of_turn is not None:
            answer = _verification(requests, of_turn, at)
        else:
            if of_turn is not None:
                shown = requests.of_step(of_turn, at)
            elif budget is None and not any((check, explain, stats, is_page)):
                shown = requests.to_send(box or [])
            else:
                shown = requests.of_boxes(box or [], by_model=check or is_page)
            if budget is not None:
                shown = _fitted(shown, budget)
            answer = (
                _page(requests, shown, of_turn)
                if is_page
                else _request(shown, check=check, explain=explain, stats=stats, provider=provider)
            )
    answer()


# --- what is to be printed, once the database is given back

Answer = Callable[[], None]


def _difference(
    requests: "Requests", diff: tuple[str, str], before: list[str], turn: "RecordedRequests | None"
) -> Answer:
    from cardbox_cli.cli.commands.render.diff import print_diff

    pair = requests.pair(diff, before=before, turn=turn)
    _announce_notes(unique([note for each in pair for note in each.unknown]))
    return partial(print_diff, *pair)


def _verification(requests: "Requests", turn: "RecordedRequests", at: str | None) -> Answer:
    from cardbox_cli.cli.commands.render.diff import print_verified

    step, verified = requests.verified(turn, at)
    return partial(print_verified, turn.name, step, verified)


def _check_by(shown: "Shown", *, provider: str | None) -> None:
    from cardbox_cli.context.lint.rule import lint

    rules_of = provider_of(shown.format) if provider is None else provider_named(provider)
    answer(lint(shown.entries, shown.request, rules_of, awaited=shown.awaited))


def _request(shown: "Shown", *, check: bool, explain: bool, stats: bool, provider: str | None) -> Answer:
    from cardbox_cli.cli.commands.render.body import print_body
    from cardbox_cli.cli.commands.render.explain import print_explained, print_stats

    asked = ((check, partial(_check_by, provider=provider)), (explain, print_explained), (stats, print_stats))
    show = next((each for is_asked, each in asked if is_asked), print_body)
    _announce_notes(shown.notes)
    return partial(show, shown)


def _fitted(shown: "Shown", budget: fitting.Budget) -> "Shown":
    """The request within the budget. Raises UsageError for a step that has been sent."""
    from cardbox_cli.context.repair.fit import fit

    if shown.sent:
        raise UsageError(
            "--max-tokens changes nothing: the step is shown as it was sent",
            hint="--at next composes the next one",
        )
    fitted = fit(
        shown.request,
        budget.most,
        budget.strategy,
        provider=provider_of(shown.format),
        author_id=OPERATOR,
    )
    return msgspec.structs.replace(
        shown, request=fitted.request, notes=[*shown.notes, *fitting.notes(fitted)]
    )


def _page(requests: "Requests", shown: "Shown", turn: "RecordedRequests | None") -> Answer:
    from cardbox_cli.cli.commands.render.picture import picture_of, print_page

    _announce_notes(shown.notes)
    return partial(print_page, picture_of(requests, shown, turn))


def _announce_notes(notes: Iterable[str]) -> None:
    for note in notes:
        announce(f"note: {note}")
