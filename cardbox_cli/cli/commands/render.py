"""`cbx render`: the exact LLM request that boxes make, or that a turn sends or has sent.

Owns the options. `inspect/requests.py` finds the request, `terminal/request_report.py` explains it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Option

from cardbox_cli.cli.options import compose_options
from cardbox_cli.cli.options.value_types import (
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
from cardbox_cli.cli.project_database import named_stores, open_database
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.request import Request
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.ids import unique
from cardbox_cli.providers.formats import TEXT, members_of, provider_of, text_sections
from cardbox_cli.providers.registry import DEFAULT, HOSTS, provider_named, providers
from cardbox_cli.text import format_count

if TYPE_CHECKING:
    from cardbox_cli.execution.requests.recorded_requests import RecordedRequests
    from cardbox_cli.inspect.requests import InspectedRequest, Requests


def check_answers(**asked: bool) -> None:
    """Raise UsageError where more than one answer is asked for."""
    named = [f"--{name}" for name, is_asked in asked.items() if is_asked]
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} are two answers", hint="ask for one of them")


def check_sources(
    box: list[str] | None,
    turn: str | None,
    agent: str | None,
    chat: str | None,
    profile: str | None,
    *,
    is_diff: bool,
) -> None:
    """Raise UsageError unless one request is named; --diff may name both of its own."""
    given = {"--box": box, "--turn": turn, "--agent": agent, "--chat": chat}
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} are two requests", hint="name one of them")
    if profile is not None and (turn or agent or chat):
        raise UsageError("--profile is for boxes: a turn has its own", hint="leave it out, or name boxes")
    if not named and not is_diff:
        raise UsageError(
            "no request is named", hint="name boxes with --box, a turn by --turn or --agent, or --chat"
        )


def format_of_host(provider: str, format_: str | None, *, check: bool) -> str:
    """The format that a host takes. Raises UsageError for another, and without --check."""
    taken = HOSTS[provider][0]
    if not check:
        raise UsageError("--provider is for --check", hint="add --check, or leave --provider out")
    if format_ not in (None, taken):
        raise UsageError(f"{provider} takes no {format_}", hint=f"leave --format out, or make it {taken}")
    return taken


def check_step(at: str | None, *, has_steps: bool, is_diff: bool, verify: bool) -> None:
    """Raise UsageError for a step of no turn, and for steps that are named twice or not at all."""
    from cardbox_cli.execution.requests.turn_requests import NEXT

    if at is not None and not has_steps:
        raise UsageError("--at names a step of a turn or a chat", hint="name it by --turn, --agent or --chat")
    if at is not None and is_diff:
        raise UsageError("--at names one step, --diff two", hint="leave --at out")
    if verify and not has_steps:
        raise UsageError("--verify is for what was sent", hint="name it by --turn, --agent or --chat")
    if verify and at == NEXT:
        raise UsageError("--verify: the next step has sent nothing", hint="--at names one that has begun")


@verb(
    "render",
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
def render_request(
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
            click_type=RENDERED_FORMAT,
            help=f"{', '.join(f'{each.name} ({each.sends})' for each in providers())}, text (to read) "
            "or html (a page with pictures). "
            "Default: of a turn what this step, or the last one, was sent in, else the model's; of boxes "
            f"{DEFAULT}, with --check the model's.",
        ),
    ] = None,
    model: compose_options.Model = None,
    query: compose_options.Query = None,
    layer: compose_options.Layers = None,
    experience: compose_options.Experience = False,
    knowledge_query: compose_options.KnowledgeQuery = None,
    process: compose_options.ProcessKind = None,
    share: compose_options.Share = None,
    layout: compose_options.LayoutName = None,
    max_tokens: compose_options.MaxTokens = None,
    fit: compose_options.FitStrategy = None,
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
        from cardbox_cli.inspect.requests import check_query

        check_query(query)
    budget = compose_options.token_budget(max_tokens, fit)
    if budget is not None and (diff is not None or verify):
        raise UsageError("--max-tokens is for one request, to be sent", hint="leave it out")
    options = compose_options.options(
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
    from cardbox_cli.inspect.requests import Requests

    with open_database() as database, database.snapshot():
        wanted = None if is_page else format_
        stores = named_stores(database)
        requests = Requests(*stores, options=options, format=wanted, profile=profile)
        of_turn = requests.recorded(turn=turn, agent=agent, chat=chat)
        _announce_notes(requests.notes)
        if diff is not None:
            answer = _difference(requests, diff, box or [], of_turn)
        elif verify and of_turn is not None:
            answer = _verification(requests, of_turn, at)
        else:
            if of_turn is not None:
                shown = requests.read_step(of_turn, at)
            elif budget is None and not any((check, explain, stats, is_page)):
                shown = requests.read_to_send(box or [])
            else:
                shown = requests.read_boxes(box or [], by_model=check or is_page)
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
    from cardbox_cli.cli.terminal.request_report import print_diff

    pair = requests.pair(diff, before=before, steps=turn)
    _announce_notes(unique([note for each in pair for note in each.unknown]))
    return partial(print_diff, *pair)


def _verification(requests: "Requests", turn: "RecordedRequests", at: str | None) -> Answer:
    from cardbox_cli.cli.terminal.request_report import print_verified

    step, verified = requests.verified(turn, at)
    return partial(print_verified, turn.name, step, verified)


def _check_by(shown: "InspectedRequest", *, provider: str | None) -> None:
    from cardbox_cli.cli.terminal.lint_report import answer
    from cardbox_cli.context.lint.rule import lint

    rules_of = provider_of(shown.format) if provider is None else provider_named(provider)
    answer(lint(shown.entries, shown.request, rules_of, awaited=shown.awaited))


def _request(
    shown: "InspectedRequest", *, check: bool, explain: bool, stats: bool, provider: str | None
) -> Answer:
    from cardbox_cli.cli.terminal.request_report import print_explained, print_stats

    asked = ((check, partial(_check_by, provider=provider)), (explain, print_explained), (stats, print_stats))
    show = next((each for is_asked, each in asked if is_asked), print_body)
    _announce_notes(shown.notes)
    return partial(show, shown)


def _fitted(shown: "InspectedRequest", budget: compose_options.TokenBudget) -> "InspectedRequest":
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
        shown, request=fitted.request, notes=[*shown.notes, *compose_options.fit_notes(fitted)]
    )


def _page(requests: "Requests", shown: "InspectedRequest", turn: "RecordedRequests | None") -> Answer:
    from cardbox_cli.cli.terminal.request_report import picture_of, print_page

    _announce_notes(shown.notes)
    return partial(print_page, picture_of(requests, shown, turn))


def _announce_notes(notes: Iterable[str]) -> None:
    for note in notes:
        announce(f"note: {note}")


# --- the body as it is sent, and what reading it does not show


# So many kinds of losses of cards are named; all are by --check.
_EXAMPLES = 3


def print_body(shown: "InspectedRequest") -> None:
    """Print the body as it is sent, and tell what reading it does not: cards that are gone, calls renamed."""
    request = shown.request
    for entry in shown.entries:
        slot = entry.slot
        if slot.state != "present":
            announce(
                f"warning: {slot.state} card {slot.card_id} at position {slot.position} of box {entry.box_id}"
            )
    if shown.format == TEXT:
        _print_sections(request)
        return
    _tell_renamed(request, shown.format)
    _tell_losses(request, shown.format)
    if request.model is None:
        announce("note: no model is known; name one with --model, or add the profile's box")
    output.emit_members(members_of(request, shown.format))


def _print_sections(request: Request) -> None:
    """Print the messages and the tools with an empty line between, and none at the end."""
    held = ""
    for section in text_sections(request):
        if held:
            output.print_text(held + "\n")
        held = section
    output.print_text(held.rstrip("\n"))


def _tell_losses(request: Request, provider: str) -> None:
    from cardbox_cli.context.losses import losses

    lost = losses(request, provider_named(provider))
    if lost:
        # Of the cards some examples; parameters are few, and nobody would miss them in an answer.
        named = list(dict.fromkeys(loss.what for loss in lost if loss.card_id is not None))[:_EXAMPLES]
        named += [loss.what for loss in lost if loss.card_id is None]
        announce(
            f"warning: {provider} cannot say all of it ({format_count(len(lost), 'place')}): "
            f"{', '.join(named)}; --check names each"
        )


def _tell_renamed(request: Request, provider: str) -> None:
    renamed = provider_named(provider).renamed_calls(request.messages)
    if renamed:
        announce(
            f"warning: {format_count(len(renamed), 'tool call')} got another id, such as {renamed[0].new!r} "
            f"for {renamed[0].old!r}; --check names each"
        )
