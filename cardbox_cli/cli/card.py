"""`cbx card`: the smallest units of information, one by one and by the file."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardbox_cli.cli import output
from cardbox_cli.cli.columns import CARD, CARD_DEFAULT, chosen
from cardbox_cli.cli.commands import examples, noun
from cardbox_cli.cli.describe import answers, count, spoken_by, time
from cardbox_cli.cli.inputs import (
    check_choice,
    confirm,
    parse_json,
    parse_span,
    read_text,
    resolved_or_typed,
    source_name,
    write_text,
)
from cardbox_cli.cli.lists import ColumnNames, Limit, Listing, show_list
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.watch import Interval, Watch, between_looks
from cardbox_cli.errors import InvalidCard, InvalidInput, NotFound, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import OPERATOR, Card, CardDraft, draft_card, draft_from_mapping, shown_draft
from cardbox_cli.model.content import (
    Content,
    JsonContent,
    TextContent,
    ToolContent,
    fields_schema,
    parse_content,
)
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.json_files import read_json_values
from cardbox_cli.model.wording import json_kind

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardFilter

app = noun(
    "Add, show, list, search, delete, import and export cards.",
    elsewhere={verb: f"cardbox_cli.cli.card_{verb}" for verb in ("edit", "import", "refs")},
)

CardId = Annotated[
    str, typer.Argument(metavar="CARD", help="An id, 4 or more characters of its beginning or end, or @last.")
]
CardIds = Annotated[
    list[str], typer.Argument(metavar="CARD...", help="Ids, unique beginnings or ends of ids, or @last.")
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Created at or after: RFC 3339, or 2h for two hours ago.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Created before: RFC 3339, or 30m for 30 minutes ago.")
]


@app.command(
    epilog=examples(
        "  cbx card add --type task.instruction --text 'Refund order 118'\n"
        '  cbx card add --type task.result_fields --json \'[{"name": "total", "description": "in EUR"}]\'\n'
        "  cbx card show 5f0c2a91 -o json | jq 'del(.card_id)' | cbx -p other card add --card -"
    )
)
def add(
    type_: Annotated[
        str | None,
        typer.Option("--type", "-t", metavar="TYPE", help="metadata.type, such as task.instruction."),
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="R", help="Who speaks. Default: by type.")] = None,
    text: Annotated[str | None, typer.Option(metavar="S", help="The content, as text.")] = None,
    json_: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="J", help="The content as JSON, or @FILE; a content class if it has __type__."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="The content, as the text of a file; - for stdin."),
    ] = None,
    card: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A whole card, or JSON lines of cards, as `card show -o json` prints; - for stdin.",
        ),
    ] = None,
    author: Annotated[
        str | None, typer.Option(metavar="A", help=f"author_id, for audit. Default: {OPERATOR}.")
    ] = None,
    card_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The card's id. Default: a new UUIDv7.")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="J", help="More metadata: a JSON object, or @FILE.")
    ] = None,
    tool_calls: Annotated[
        str | None, typer.Option(metavar="J", help="Tool calls as OpenAI writes them: a JSON list, or @FILE.")
    ] = None,
    tool_call_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The call that a tool.result answers.")
    ] = None,
    ttl: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=0, help="Lifetime; then readers skip the card.")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Overwrite a card of this project that has the same id.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the card, write nothing.")
    ] = False,
) -> None:
    """Write a card. The same card again changes nothing; another one under its id is a conflict."""
    if card is not None:
        _refuse_beside_card(
            {
                "--type": type_,
                "--role": role,
                "--text": text,
                "--json": json_,
                "--file": file,
                "--author": author,
                "--id": card_id,
                "--metadata": metadata,
                "--tool-calls": tool_calls,
                "--tool-call-id": tool_call_id,
                "--ttl": ttl,
            }
        )
        drafts = _whole_cards(card)
    else:
        if type_ is None:
            raise UsageError("a card needs --type", hint="for example --type task.instruction")
        _check_new_id(card_id)
        content = _content(type_, text, json_, file)
        drafts = [
            draft_card(
                type_,
                content,
                role=role,
                author_id=author or OPERATOR,
                card_id=card_id,
                metadata=_metadata(metadata),
                tool_calls=_tool_calls(tool_calls),
                tool_call_id=tool_call_id,
                ttl_seconds=ttl,
            )
        ]
    if dry_run:
        announce("dry run: nothing was written")
        ids = [draft.card_id for draft in drafts]
        _emit_written(ids, [shown_draft(draft, session().project_id) for draft in drafts])
        return
    with session().stores() as (cards, _), cards.database.transaction():
        # In id order, so that two writers of the same cards wait for each other instead of deadlocking.
        added = {each.card_id: cards.add(each, repair=repair) for each in sorted(drafts, key=_card_id)}
        session().made(card_id=drafts[-1].card_id if drafts else None)
    written = [added[draft.card_id] for draft in drafts]
    for one in written:
        if one.outcome != "inserted":
            announce(f"{one.outcome}: {one.card.card_id}")
    _emit_written([one.card.card_id for one in written], [one.card for one in written])


def _card_id(draft: CardDraft) -> str:
    return draft.card_id


def _emit_written(ids: Sequence[str], cards: Sequence[Any]) -> None:
    def table() -> None:
        for card_id in ids:
            output.say(card_id)

    output.emit(cards[0] if len(cards) == 1 else cards, table=table, ids=ids)


def _refuse_beside_card(options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError("--card brings a whole card", hint=f"leave out {', '.join(given)}")


def _check_new_id(card_id: str | None) -> None:
    """Refuse an id that nobody could see or type. Cards of other programs, and their copies, may have any."""
    if not card_id:
        return
    hint = "letters, digits and - are good; leave --id out to get a new id"
    if card_id.startswith("@"):
        raise InvalidInput(f"--id: {card_id[:40]!r} begins with @, as only names like @last do", hint=hint)
    if not card_id.strip():
        raise InvalidInput(f"--id: {card_id[:40]!r} is blank", hint=hint)
    if not card_id.isprintable():
        odd = next(character for character in card_id if not character.isprintable())
        raise InvalidInput(f"--id: {card_id[:40]!r} holds {odd!r}, which cannot be seen", hint=hint)


def _content(card_type: str, text: str | None, json_: str | None, file: str | None) -> Content:
    if sum(value is not None for value in (text, json_, file)) != 1:
        raise UsageError(
            "a card's content is one of --text, --json or --file", hint="give exactly one of them"
        )
    if text is not None:
        return TextContent(text)
    if file is not None:
        return TextContent(read_text(file))
    value = parse_json(json_ or "", "--json")
    if isinstance(value, dict) and "__type__" in value:
        return parse_content(value)
    if card_type == "task.result_fields":
        try:
            return fields_schema(value)
        except InvalidCard as exc:
            raise InvalidCard(f"--json: {exc.message}") from exc
    if card_type == "sys.tools" and isinstance(value, list):
        return ToolContent(value)
    if isinstance(value, dict | list):
        return JsonContent(value)
    raise InvalidInput(
        f"--json must be an object or a list, not {json_kind(value)}", hint="use --text for a scalar"
    )


def _metadata(text: str | None) -> dict[str, Any]:
    value = {} if text is None else parse_json(text, "--metadata")
    if not isinstance(value, dict):
        raise InvalidInput(f"--metadata must be an object, not {json_kind(value)}")
    return value


def _tool_calls(text: str | None) -> list[Any] | None:
    value = None if text is None else parse_json(text, "--tool-calls")
    if value is not None and not isinstance(value, list):
        raise InvalidInput(f"--tool-calls must be a list, not {json_kind(value)}")
    return value


def _whole_cards(path: str) -> list[CardDraft]:
    values = read_json_values(read_text(path), source_name(path))
    if len(values) == 1 and isinstance(values[0][1], list):
        [(place, cards)] = values
        values = [(f"{place}[{index}]", card) for index, card in enumerate(cards)]
    return [_whole_card(value, place) for place, value in values]


def _whole_card(value: Any, place: str) -> CardDraft:
    try:
        return draft_from_mapping(value)
    except InvalidCard as exc:
        raise InvalidCard(f"{place}: {exc.message}", hint=exc.hint) from exc


@app.command(epilog=examples("  cbx card show 5f0c2a91\n  cbx card show 5f0c2a91 -o json | jq .content"))
def show(
    card_ids: CardIds,
    deleted: Annotated[bool, typer.Option("--deleted", help="Show deleted and expired cards too.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when one of several is missing.")] = False,
) -> None:
    """Show cards whole. Of several, those that are missing are named on stderr."""
    with session().stores() as (cards, _), cards.database.snapshot():
        if len(card_ids) == 1:
            card = cards.get(cards.resolve(card_ids[0]), include_deleted=deleted)
            output.emit(card, table=lambda: _say_card(card), ids=[card.card_id])
            return
        wanted = unique(resolved_or_typed(cards.resolve, typed) for typed in card_ids)
        found = cards.get_many(wanted, include_deleted=deleted)
    for card_id in found.missing_card_ids:
        announce(f"missing: no card {card_id!r}")
    output.emit(
        {"cards": found.cards, "missing_card_ids": found.missing_card_ids},
        table=lambda: _say_cards(found.cards),
        ids=[card.card_id for card in found.cards],
    )
    if strict and found.missing_card_ids:
        raise NotFound(f"{len(found.missing_card_ids)} of {len(wanted)} cards are missing")


def _say_cards(cards: list[Card]) -> None:
    for index, card in enumerate(cards):
        if index:
            output.say()
        _say_card(card)


def _say_card(card: Card) -> None:
    hidden = {"type", "role", "author_id", "project_id", "created_at"}
    hidden |= {"source_message", "source_blocks", "source_line"}
    metadata = {key: value for key, value in card.metadata.items() if key not in hidden}
    output.facts(
        [
            ("card", card.card_id),
            ("type", card.type),
            ("role", card.role),
            ("author", card.author_id),
            ("created", time(card.created_at)),
            ("expires", time(card.expires_at)),
            ("deleted", time(card.deleted_at)),
            ("calls", answers(card) or None),
            ("metadata", exact_json.encode(metadata).decode() if metadata else None),
        ]
    )
    if isinstance(card.content, dict):
        announce(
            f"warning: card {card.card_id} holds content of no class that cbx knows; shown as it is stored"
        )
    output.say()
    output.say(spoken_by(card))


@app.command(
    "list",
    epilog=examples(
        "  cbx card list --limit 20\n"
        "  cbx card list --type tool.result --since 2026-11-01 -o jsonl\n"
        "  cbx card list --since 2h --columns id,created,author,preview\n"
        "  cbx card list --watch"
    ),
)
def list_(
    limit: Limit = 50,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Only this type; repeat for several."),
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="R", help="Only this role.")] = None,
    author: Annotated[str | None, typer.Option(metavar="A", help="Only this author_id.")] = None,
    turn: Annotated[str | None, typer.Option(metavar="ID", help="Only this agent_turn_id.")] = None,
    step: Annotated[str | None, typer.Option(metavar="ID", help="Only this step_id.")] = None,
    trace: Annotated[str | None, typer.Option(metavar="ID", help="Only this trace_id.")] = None,
    tool_call_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Only calls and results of this id.")
    ] = None,
    since: Since = None,
    until: Until = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted and expired cards too.")] = False,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List cards, newest first."""
    from cardbox_cli.store.cards import CardFilter

    start, end = parse_span(since, until)
    where = CardFilter(
        types=types or None,
        role=role,
        author_id=author,
        agent_turn_id=turn,
        step_id=step,
        trace_id=trace,
        tool_call_id=tool_call_id,
        since=start,
        until=end,
        include_deleted=deleted,
    )
    _list(where, limit, columns, between_looks(watch, interval))


@app.command(
    epilog=examples("  cbx card search 'payment timeout'\n  cbx card search 超时 --type tool.result")
)
def search(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help='Words, "a phrase", -word, or; for Chinese, Japanese and Korean any piece of the text.',
        ),
    ],
    limit: Limit = 50,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Only this type; repeat for several."),
    ] = None,
    columns: ColumnNames = None,
) -> None:
    """Find cards by what they say, newest first. Whole words, in any case."""
    from cardbox_cli.store.cards import CardFilter

    text = " ".join(words)
    if not text.strip():
        raise UsageError("there is nothing to search for", hint="give a word")
    _list(CardFilter(text=text, types=types or None), limit, columns)


def _list(where: "CardFilter", limit: int, columns: str | None, interval: float | None = None) -> None:
    names = chosen(CARD, CARD_DEFAULT, columns)
    with session().stores() as (cards, _):
        listing = Listing(
            read=lambda size: cards.newest(where, limit=size),
            further=lambda last: cards.further(where, last),
            limit=limit,
            columns=CARD,
            names=names,
            item_id=lambda card: card.card_id,
            empty=f"no such cards in project {session().project_id!r}",
        )
        show_list(listing, cards.database, interval=interval)


@app.command(epilog=examples("  cbx card delete 5f0c2a91 --yes"))
def delete(
    card_ids: CardIds,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Hide cards from readers. Nothing is purged; boxes keep the ids, and say so."""
    with session().stores() as (cards, _):
        wanted = unique(map(cards.resolve, card_ids))
        if not dry_run:
            confirm(f"Delete {count(len(wanted), 'card')} ({', '.join(map(short_id, wanted))})?", yes=yes)
        deleted = wanted if dry_run else cards.delete(wanted)
    answer = {"deleted_card_ids": deleted, "dry_run": dry_run}
    verb = "would delete" if dry_run else "deleted"
    output.emit(answer, table=lambda: output.say(f"{verb} {', '.join(deleted) or 'nothing'}"), ids=deleted)


@app.command(
    epilog=examples(
        "  cbx card export --box 8b1f22c0 --to openai > chat.json\n"
        "  cbx card export --box 8b1f22c0 --to claude-code > session.jsonl"
    )
)
def export(
    box: Annotated[
        str, typer.Option(metavar="BOX", help="The box: an id, a unique beginning or end of one, or @last.")
    ],
    to: Annotated[str, typer.Option(metavar="openai|anthropic|claude-code", help="The format.")] = "openai",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
) -> None:
    """Print a box as a conversation. What was imported comes out as it went in."""
    from cardbox_cli.conversations.conversation import Rereadable
    from cardbox_cli.conversations.formats import FORMATS

    check_choice(to, "--to", tuple(FORMATS), what="format")
    with session().stores() as (_, boxes), boxes.database.snapshot():
        box_id = boxes.resolve(box)
        boxes.require(box_id)
        gone: dict[str, None] = {}
        cards = Rereadable(partial(_cards_of, boxes, box_id, gone))
        text = FORMATS[to].export(cards)
        if out is None or str(out) == "-":
            output.write_pieces(text)
        else:
            write_text(out, chain(text, "\n"))
    for card_id in gone:
        announce(f"warning: card {card_id} is gone and was left out")


def _cards_of(boxes: "BoxStore", box_id: str, gone: dict[str, None]) -> Iterator[Card]:
    """The cards that a reader of the box sees, in order; `gone` gets the ids that lead to none."""
    for slot in boxes.stream(box_id):
        if slot.card is not None and slot.fate == "present":
            yield slot.card
        else:
            gone[slot.card_id] = None
