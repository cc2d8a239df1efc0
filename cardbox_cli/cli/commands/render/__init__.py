"""`cbx render`: the exact LLM request that boxes make, or that a turn sends or has sent.

Owns the options and which go together. Which request is meant is `render_source.py`'s, what is said of it
`explain.py`'s and `diff.py`'s.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.parameters import composing
from cardbox_cli.cli.parameters.inputs import check_choice
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import count
from cardbox_cli.cli.tree import everyday, examples
from cardbox_cli.context.formats import TEXT, body_of, format_names, provider_of, text
from cardbox_cli.context.inspection.losses import losses
from cardbox_cli.context.providers.registry import DEFAULT, provider_named, providers
from cardbox_cli.context.request import Request
from cardbox_cli.errors import UsageError
from cardbox_cli.execution.requests.request import NEXT
from cardbox_cli.model.ids import unique

if TYPE_CHECKING:
    from cardbox_cli.cli.commands.render.source import Shown

app = everyday("Show the exact LLM request of boxes or of a turn.")


@app.command(
    epilog=examples(
        "  cbx render --box 8b1f22c0\n"
        "  cbx render --box $PROFILE_BOX --box $CONTEXT_BOX --model gpt-4o | curl … -d @-\n"
        "  cbx render --box 8b1f22c0 --format anthropic --check -o json\n"
        "  cbx render --box 8b1f22c0 --query 'Go on' --layer framework__context=@rules.md --layout cache\n"
        "  cbx render --turn @last --explain\n"
        "  cbx render --turn 1d5c8f72 --at 2 --verify\n"
        "  cbx render --turn 1d5c8f72 --diff 1 next\n"
        "  cbx render --box $PROFILE_BOX --diff 8b1f22c0 77ab01de"
    )
)
def command(
    box: Annotated[
        list[str] | None,
        typer.Option(
            "--box",
            "-b",
            metavar="BOX",
            help="A box: an id, a unique beginning or end of one, or @last. Repeat for several, in order.",
        ),
    ] = None,
    turn: Annotated[
        str | None,
        typer.Option(metavar="TURN", help="A turn: its next request; of an ended one the last it has sent."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="STEP", help="A step of the turn: its number, an id or a piece of one, or next."
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="AGENT", help="The turn that this agent is at, else its next, else its last."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="|".join(format_names()),
            help=f"{', '.join(f'{each.name} ({each.sends})' for each in providers())} or text (to read). "
            "Default: of a turn what this step, or the last one, was sent in, else the model's; of boxes "
            f"{DEFAULT}, with --check the model's.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="M", help="The model. Default: the profile's.")] = None,
    query: composing.Query = None,
    layer: composing.Layers = None,
    experience: composing.Experience = False,
    knowledge_query: composing.KnowledgeQuery = None,
    process: composing.ProcessKind = None,
    share: composing.Share = None,
    layout: composing.LayoutName = None,
    check: Annotated[
        bool, typer.Option("--check", help="Instead: what the provider would refuse. Exit 8 on errors.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Where each message comes from, and what was left out.")
    ] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Instead: what each layer takes.")] = False,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Instead: where request B parts from request A, and what a prefix cache loses. Each is a "
            "box, a turn, or a step by its whole id; with --turn, a step of it. Exit 8 if they differ.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Instead: do the cards still make what the step sent? Exit 8 if not."),
    ] = False,
) -> None:
    """Print the request body that boxes make, or a turn sends, ready to send.

    Among boxes, a profile's gives the system prompt. A recorded step of a turn is shown as it was stored, any
    other request of one as cbx would compose it, which is said on stderr.
    """
    if format_ is not None:
        check_choice(format_, "--format", format_names(), what="format")
    _check_answers(check=check, explain=explain, stats=stats, diff=diff is not None, verify=verify)
    _check_sources(box, turn, agent, is_diff=diff is not None)
    _check_step(at, is_turn=bool(turn or agent), is_diff=diff is not None, verify=verify)
    if turn or agent:
        composing.check_query(query)
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
    from cardbox_cli.cli.commands.render.diff import print_diff, print_verified
    from cardbox_cli.cli.commands.render.explain import print_explained, print_stats
    from cardbox_cli.cli.commands.render.source import Requests

    with session().database() as database, database.snapshot():
        requests = Requests(database, session().project_id, options=options, format=format_)
        of_turn = requests.turn(turn, agent)
        if diff is not None:
            pair = requests.pair(diff, before=box or [], turn=of_turn)
            for note in unique([note for each in pair for note in each.unknown]):
                announce(f"note: {note}")
            answer = partial(print_diff, *pair)
        elif verify and of_turn is not None:
            step, verified = requests.verified(of_turn, at)
            answer = partial(print_verified, of_turn.turn.agent_turn_id, step, verified)
        else:
            if of_turn is None:
                shown = requests.of_boxes(box or [], by_model=check)
            else:
                shown = requests.of_step(of_turn, at)
            asked = (
                (check, _check),
                (explain, print_explained),
                (stats, print_stats),
            )
            show = next((each for is_asked, each in asked if is_asked), _print)
            for note in shown.notes:
                announce(f"note: {note}")
            answer = partial(show, shown)
    answer()


def _check_answers(**asked: bool) -> None:
    """Raise UsageError where more than one answer is asked for."""
    named = [f"--{name}" for name, is_asked in asked.items() if is_asked]
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} are two answers", hint="ask for one of them")


def _check_sources(box: list[str] | None, turn: str | None, agent: str | None, *, is_diff: bool) -> None:
    """Raise UsageError unless one request is named; --diff may name both of its own."""
    given = {"--box": box, "--turn": turn, "--agent": agent}
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} are two requests", hint="name one of them")
    if not named and not is_diff:
        raise UsageError("no request is named", hint="name boxes with --box, or a turn by --turn or --agent")


def _check_step(at: str | None, *, is_turn: bool, is_diff: bool, verify: bool) -> None:
    """Raise UsageError for a step of no turn, and for steps that are named twice or not at all."""
    if at is not None and not is_turn:
        raise UsageError("--at names a step of a turn", hint="name the turn by --turn or --agent")
    if at is not None and is_diff:
        raise UsageError("--at names one step, --diff two", hint="leave --at out")
    if verify and not is_turn:
        raise UsageError("--verify is for what a turn has sent", hint="name the turn by --turn or --agent")
    if verify and at == NEXT:
        raise UsageError("--verify: the next step has sent nothing", hint="--at names one that has begun")


# --- answers


def _check(shown: "Shown") -> None:
    from cardbox_cli.cli.terminal.findings import answer
    from cardbox_cli.context.lint.check import lint

    provider = provider_of(shown.format)
    answer(lint(shown.entries, shown.request, provider, awaited=shown.awaited))


def _print(shown: "Shown") -> None:
    """Print the body as it is sent, and tell what reading it does not: cards that are gone, calls renamed."""
    request = shown.request
    for entry in shown.entries:
        slot = entry.slot
        if slot.state != "present":
            announce(
                f"warning: {slot.state} card {slot.card_id} at position {slot.position} of box {entry.box_id}"
            )
    if shown.format == TEXT:
        output.say(text(request).rstrip("\n"))
        return
    _tell_renamed(request, shown.format)
    _tell_losses(request, shown.format)
    if request.model is None:
        announce("note: no model is known; name one with --model, or add the profile's box")
    output.emit_document(body_of(request, shown.format))


def _tell_losses(request: Request, provider: str) -> None:
    lost = losses(request, provider)
    if lost:
        # Of the cards an example; parameters are few, and nobody would miss them in an answer.
        named = [loss.what for loss in lost if loss.card_id is not None][:1]
        named += [loss.what for loss in lost if loss.card_id is None]
        announce(
            f"warning: {provider} cannot say all of it ({count(len(lost), 'place')}): {', '.join(named)}; "
            "--check names each"
        )


def _tell_renamed(request: Request, provider: str) -> None:
    renamed = provider_named(provider).renamed_calls(request.messages)
    if renamed:
        announce(
            f"warning: {count(len(renamed), 'tool call')} got another id, such as {renamed[0].new!r} for "
            f"{renamed[0].old!r}; --check names each"
        )
