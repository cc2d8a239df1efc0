"""`cbx render`: the exact LLM request that boxes make."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardbox_cli.cli import output
from cardbox_cli.cli.commands import everyday, examples
from cardbox_cli.cli.describe import count, short_rule, token_count
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import one_line
from cardbox_cli.context.explain import Explanation, explain
from cardbox_cli.context.formats import DIALECTS, anthropic, text
from cardbox_cli.context.request import Entry, Request, Wishes, request_of
from cardbox_cli.errors import UsageError
from cardbox_cli.model.ids import short_id

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore

# A text for people is made of what OpenAI would get.
TEXT = "text"
FORMATS = (*DIALECTS, TEXT)

app = everyday("Show the exact LLM request that boxes make.")


@app.command(
    epilog=examples(
        "  cbx render --box 8b1f22c0\n"
        "  cbx render --box $PROFILE_BOX --box $CONTEXT_BOX --model gpt-4o | curl … -d @-\n"
        "  cbx render --box 8b1f22c0 --format text\n"
        "  cbx render --box 8b1f22c0 --explain\n"
        "  cbx render --box 8b1f22c0 --format anthropic --check -o json"
    )
)
def command(
    box: Annotated[
        list[str],
        typer.Option(
            "--box",
            "-b",
            metavar="BOX",
            help="A box: an id, a unique beginning or end of one, or @last. Repeat for several, in order.",
        ),
    ],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="|".join(FORMATS),
            help="openai (a chat-completions body), anthropic (a Messages body) or text (to read).",
        ),
    ] = "openai",
    model: Annotated[str | None, typer.Option(metavar="M", help="The model. Default: the profile's.")] = None,
    explain_: Annotated[
        bool, typer.Option("--explain", help="Where each message comes from, and what was left out.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Instead: what the provider would refuse. Exit 8 on errors.")
    ] = False,
) -> None:
    """Print the request body that the boxes make, ready to send. A profile's box gives the system prompt."""
    if explain_ and check:
        raise UsageError("--check and --explain are two answers", hint="ask for one of them")
    if format_ not in FORMATS:
        raise UsageError(f"--format: unknown format {format_!r}", hint=f"formats are {', '.join(FORMATS)}")
    with session().stores() as (_, boxes), boxes.database.snapshot():
        entries = [entry for typed in box for entry in _entries(boxes, boxes.resolve(typed))]
    provider = "openai" if format_ == TEXT else format_
    dialect = DIALECTS[provider]
    request = request_of(entries, Wishes(model=model), spell=dialect.spell)
    if check:
        _check(entries, request, provider)
        return
    if explain_:
        _print_explained(request, dialect.body(request))
        return
    for left in request.left_out:
        if left.reason.endswith("card"):
            announce(
                f"warning: {left.reason} {left.card_id} at position {left.position} of box {left.box_id}"
            )
    if provider == "anthropic":
        _tell_renamed(request)
    if format_ == TEXT:
        output.say(text.text(request).rstrip("\n"))
    else:
        _print(dialect.body(request))


def _entries(boxes: "BoxStore", box_id: str) -> list[Entry]:
    view = boxes.view(box_id)
    provenance = boxes.provenance(box_id)
    return [
        Entry(
            slot=slot,
            box_id=view.box.box_id,
            rule=None if provenance is None else provenance.rule_of(slot.position),
        )
        for slot in view.slots
    ]


def _check(entries: list[Entry], request: Request, provider: str) -> None:
    from cardbox_cli.cli.findings import answer
    from cardbox_cli.context.lint.registry import lint

    answer(lint(entries, request, provider))


def _tell_renamed(request: Request) -> None:
    _, renamed = anthropic.spoken(request.messages)
    if renamed:
        announce(
            f"warning: {count(len(renamed), 'tool call')} got another id, such as {renamed[0].new!r} for "
            f"{renamed[0].old!r}; --check names each"
        )


def _print(body: dict[str, Any]) -> None:
    if "model" not in body:
        announce("note: no model is known; name one with --model, or add the profile's box")
    output.emit_document(body)


def _print_explained(request: Request, body: dict[str, Any]) -> None:
    explanation = explain(request)
    output.emit(
        {"request": body, "explanation": explanation},
        table=lambda: _say(request, explanation),
    )


def _say(request: Request, explanation: Explanation) -> None:
    output.facts(
        [
            ("model", request.model or "unknown"),
            ("messages", str(len(request.messages))),
            ("tools", str(len(request.tools)) if request.tools else None),
            ("tokens", token_count(explanation.tokens, exact=explanation.tokens_exact)),
        ]
    )
    if explanation.messages:
        output.say()
        output.print_table(
            ["#", "ROLE", "LAYER", "CARD", "CHARS", "TOKENS", "RULE", "PREVIEW"],
            [
                [
                    str(number),
                    line.role,
                    line.layer,
                    short_id(line.card_id) if line.card_id else "-",
                    str(line.characters),
                    token_count(line.tokens, exact=line.tokens_exact),
                    short_rule(line.rule or "-"),
                    one_line(line.preview, 60),
                ]
                for number, line in enumerate(explanation.messages, 1)
            ],
        )
    if explanation.left_out:
        output.say()
        rows = [
            [short_id(left.card_id), short_id(left.box_id), str(left.position), left.reason]
            for left in explanation.left_out
        ]
        output.print_table(["LEFT OUT", "BOX", "#", "WHY"], rows)
