"""`cbx render`: the exact LLM request of boxes, of a turn or of a chat.

Owns the options. `inspect/requests.py` finds the request, `terminal/request_report.py` explains it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Option

from cardbox_cli.cli.options import compose_options, value_types
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
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.inspect.requests import InspectedRequest


_WHAT = "What to render"
_INSTEAD = "Instead of the body"


def _check_exclusive(given: Mapping[str, object]) -> list[str]:
    """Return the options that are given. Raises UsageError for more than one."""
    options = [f"--{name}" for name, value in given.items() if value]
    if len(options) > 1:
        raise UsageError(conflict_message(*options[:2]), hint="remove one of them")
    return options


def _check_sources(
    box: list[str] | None,
    turn: str | None,
    agent: str | None,
    chat: str | None,
    profile: str | None,
    *,
    is_diff: bool,
) -> None:
    """Raise UsageError unless one request is named; --diff may name both of its own."""
    sources = _check_exclusive({"box": box, "turn": turn, "agent": agent, "chat": chat})
    if profile is not None and (turn or agent or chat):
        raise UsageError("--profile requires --box, not a turn, agent or chat", hint="remove --profile")
    if not sources and not is_diff:
        raise UsageError("no request given", hint="pass --box, --turn, --agent or --chat")


def _choose_host_format(provider: str, format_: str | None, *, check: bool) -> str:
    """Return the format of a host. Raises UsageError for a different --format, or without --check."""
    accepted = HOSTS[provider][0]
    if not check:
        raise UsageError("--provider requires --check", hint="add --check, or remove --provider")
    if format_ not in (None, accepted):
        raise UsageError(
            f"{provider} does not accept the format {format_}", hint=f"remove --format, or use {accepted}"
        )
    return accepted


def _check_step(at: str | None, *, has_steps: bool, is_diff: bool, verify: bool) -> None:
    """Raise UsageError for a step without a turn or chat, and for options that name steps twice."""
    from cardbox_cli.execution.requests.turn_requests import NEXT

    if at is not None and not has_steps:
        raise UsageError("--at requires a turn or chat", hint="add --turn, --agent or --chat")
    if at is not None and is_diff:
        raise UsageError(conflict_message("--at", "--diff"), hint="remove --at: --diff names two steps")
    if verify and not has_steps:
        raise UsageError("--verify needs a sent request", hint="name a turn, agent or chat, not a box")
    if verify and at == NEXT:
        raise UsageError(
            "--verify needs a sent request, but the next step has not begun",
            hint="use --at with a step that has begun",
        )


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
            click_type=value_types.BOX,
            rich_help_panel=_WHAT,
            help="A box: full id, or a unique part of 4 or more characters at its start or end, or "
            "@last. Repeatable, in order.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        Option(
            click_type=value_types.PROFILE,
            rich_help_panel=_WHAT,
            help="With boxes: add the system prompt, model and tools of this profile.",
        ),
    ] = None,
    turn: Annotated[
        str | None,
        Option(
            click_type=value_types.TURN,
            rich_help_panel=_WHAT,
            help="A turn: its next request, or its last request if it has ended.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        Option(
            click_type=value_types.STEP,
            rich_help_panel=_WHAT,
            help="A step of the turn: its number, its full id or a unique part of it, or next.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        Option(
            click_type=value_types.AGENT,
            rich_help_panel=_WHAT,
            help="This agent's active turn, else its next turn, else its last turn.",
        ),
    ] = None,
    chat: Annotated[
        str | None,
        Option(
            click_type=value_types.CHAT,
            rich_help_panel=_WHAT,
            help="A chat: the request of its next run, or of its last run if all messages are answered.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            click_type=value_types.RENDERED_FORMAT,
            metavar="FORMAT",
            rich_help_panel=_WHAT,
            help=f"{', '.join(f'{each.name} ({each.sends})' for each in providers())}, text (to read) "
            "or html (a page with charts). Default for a turn: the format of the chosen or last step, else "
            f"the model's format. Default for boxes: {DEFAULT}, or the model's format with --check.",
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
        bool,
        Option(
            "--check",
            rich_help_panel=_INSTEAD,
            help="Print what the provider would reject. Exit 8 on errors.",
        ),
    ] = False,
    provider: Annotated[
        str | None,
        Option(
            click_type=value_types.OneOf(lambda: HOSTS, what="provider"),
            rich_help_panel=_INSTEAD,
            help="With --check: use the rules of a host, for example openai-compatible.",
        ),
    ] = None,
    explain: Annotated[
        bool,
        Option(
            "--explain",
            rich_help_panel=_INSTEAD,
            help="Print the source of each message, and what was left out.",
        ),
    ] = False,
    stats: Annotated[
        bool, Option("--stats", rich_help_panel=_INSTEAD, help="Print the tokens of each layer.")
    ] = False,
    diff: Annotated[
        tuple[str, str] | None,
        Option(
            metavar="A B",
            autocompletion=value_types.BOX_OR_TURN.matches,
            rich_help_panel=_INSTEAD,
            help="Print the differences of two requests, and what a prefix cache loses. Each is a box, a "
            "turn or a step's full id; with --turn, a step of that turn. Exit 8 unless B only adds messages.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        Option(
            "--verify",
            rich_help_panel=_INSTEAD,
            help="Check that the cards still reproduce the sent request. Exit 8 if not.",
        ),
    ] = False,
) -> None:
    """Print the exact request body of boxes, of a turn or of a chat, ready to send.

    A profile's box among the boxes gives the system prompt, like --profile. A recorded step is printed as it
    was sent; cbx composes other requests now, and reports this in a note on stderr.
    """
    is_page = format_ == value_types.HTML
    answers = {"check": check, "explain": explain, "stats": stats, "diff": diff is not None, "verify": verify}
    _check_exclusive({**answers, f"format {value_types.HTML}": is_page})
    _check_sources(box, turn, agent, chat, profile, is_diff=diff is not None)
    if provider is not None:
        format_ = _choose_host_format(provider, format_, check=check)
    has_steps = bool(turn or agent or chat)
    _check_step(at, has_steps=has_steps, is_diff=diff is not None, verify=verify)
    if has_steps:
        from cardbox_cli.inspect.requests import check_query

        check_query(query)
    budget = compose_options.token_budget(max_tokens, fit)
    if budget is not None and (diff is not None or verify):
        raise UsageError(
            "--max-tokens cannot be combined with --diff or --verify", hint="remove --max-tokens"
        )
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
    from cardbox_cli.cli.terminal import request_report
    from cardbox_cli.inspect.requests import Requests

    with open_database() as database, database.snapshot():
        stores, request_format = named_stores(database), None if is_page else format_
        requests = Requests(*stores, options=options, format=request_format, profile=profile)
        of_turn = requests.recorded(turn=turn, agent=agent, chat=chat)
        _announce_notes(requests.notes)
        if diff is not None:
            pair = requests.pair(diff, before=box or [], steps=of_turn)
            _announce_notes(unique([note for each in pair for note in each.unknown]))
            answer: Callable[[], None] = partial(request_report.print_diff, *pair)
        elif verify and of_turn is not None:
            answer = partial(request_report.print_verified, of_turn.name, *requests.verified(of_turn, at))
        else:
            if of_turn is not None:
                shown = requests.read_step(of_turn, at)
            elif budget is None and not any((check, explain, stats, is_page)):
                shown = requests.read_to_send(box or [])
            else:
                shown = requests.read_boxes(box or [], by_model=check or is_page)
            if budget is not None:
                shown = _fit_budget(shown, budget)
            _announce_notes(shown.notes)
            if is_page:
                picture = request_report.draw_request(requests, shown, of_turn)
                answer = partial(request_report.print_page, picture)
            else:
                printer = _choose_printer(check=check, explain=explain, stats=stats, provider=provider)
                answer = partial(printer, shown)
    # Printed after the database is released.
    answer()


def _print_check(shown: "InspectedRequest", *, provider: str | None) -> None:
    from cardbox_cli.cli.terminal.lint_report import print_findings
    from cardbox_cli.context.lint.rule import lint
    from cardbox_cli.providers.models import unknown_models

    rules_of = provider_of(shown.format) if provider is None else provider_named(provider)
    # A host has models of its own.
    unknown = unknown_models([shown.request.model]) if provider is None else None
    _announce_notes([] if unknown is None else [unknown])
    print_findings(lint(shown.entries, shown.request, rules_of, awaited=shown.awaited))


def _choose_printer(
    *, check: bool, explain: bool, stats: bool, provider: str | None
) -> Callable[["InspectedRequest"], None]:
    from cardbox_cli.cli.terminal.request_report import print_explained, print_stats

    if check:
        return partial(_print_check, provider=provider)
    return print_explained if explain else print_stats if stats else _print_body


def _fit_budget(shown: "InspectedRequest", budget: compose_options.TokenBudget) -> "InspectedRequest":
    """Return the request within the budget. Raises UsageError for a step that has been sent."""
    from cardbox_cli.context.repair.fit import fit

    if shown.sent:
        raise UsageError(
            "--max-tokens cannot change a step that was sent", hint="use --at next for the next request"
        )
    fitted = fit(
        shown.request, budget.most, budget.strategy, provider=provider_of(shown.format), author_id=OPERATOR
    )
    return msgspec.structs.replace(
        shown, request=fitted.request, notes=[*shown.notes, *compose_options.fit_notes(fitted)]
    )


def _announce_notes(notes: Iterable[str]) -> None:
    for note in notes:
        announce(f"note: {note}")


# How many losses are named in a warning; --check lists all.
_MAX_EXAMPLES = 3


def _print_body(shown: "InspectedRequest") -> None:
    """Print the body as it is sent, and announce what it does not show: missing cards, renamed calls."""
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
    _announce_renamed(request, shown.format)
    _announce_losses(request, shown.format)
    if request.model is None:
        announce("note: the model is unknown; pass --model, or add the box of the profile")
    output.emit_members(members_of(request, shown.format))


def _print_sections(request: Request) -> None:
    """Print the messages and the tools, with an empty line between them and none at the end."""
    last = ""
    for section in text_sections(request):
        if last:
            output.print_text(last + "\n")
        last = section
    output.print_text(last.rstrip("\n"))


def _announce_losses(request: Request, provider: str) -> None:
    from cardbox_cli.context.losses import losses

    all_losses = losses(request, provider_named(provider))
    if all_losses:
        # Examples of cards, but all parameters, which are few.
        examples = list(dict.fromkeys(loss.what for loss in all_losses if loss.card_id is not None))[
            :_MAX_EXAMPLES
        ]
        examples += [loss.what for loss in all_losses if loss.card_id is None]
        announce(
            f"warning: {provider} cannot represent everything ({format_count(len(all_losses), 'place')}): "
            f"{', '.join(examples)}; --check lists every place"
        )


def _announce_renamed(request: Request, provider: str) -> None:
    renamed = provider_named(provider).renamed_calls(request.messages)
    if renamed:
        announce(
            f"warning: {format_count(len(renamed), 'tool call')} got a new id, for example "
            f"{renamed[0].new!r} instead of {renamed[0].old!r}; --check lists all of them"
        )
