"""`cbx card add, edit` and `delete`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
from typer import Option

from cardbox_cli.cli.actor import audit, force_argument, own_turn, refuse_inside_turn
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.confirmation import Yes, confirm, decline
from cardbox_cli.cli.options.input_files import parse_json, read_text, source_name
from cardbox_cli.cli.options.shared_options import CardId, CardIds, ForceCard
from cardbox_cli.cli.options.value_types import BOX, CARD_TYPE, FILE
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import CardConflict, InvalidCard, InvalidInput, UsageError
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.card_types import card_type as card_type_named
from cardbox_cli.model.cards import (
    OPERATOR,
    Card,
    CardDraft,
    attribute_to_turn,
    draft_as_json,
    draft_card,
    draft_from_mapping,
)
from cardbox_cli.model.content import Content, TextContent, parse_content
from cardbox_cli.model.ids import check_new_id, hash_ids, short_id, unique
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.error_messages import conflict_message, json_type, required_message
from cardbox_cli.text.escaping import escape_line
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.cli.options.editor import EditedText
    from cardbox_cli.model.boxes import Box
    from cardbox_cli.store.cards import CardStore


@verb(
    "add",
    "cbx card add --type task.instruction --text 'Refund order 118'",
    'cbx card add --type task.result_fields --json \'[{"name": "total", "description": "in EUR"}]\'',
    "cbx card show 5f0c2a91 -o json | jq 'del(.card_id)' | cbx -p other card add --card -",
    panels={
        "The content (one of them)": "text json_ file card",
        "Fields of the card": "type_ role author card_id metadata tool_calls tool_call_id ttl",
        "Overwriting": "repair force dry_run",
    },
)
def add_card(
    type_: Annotated[
        str | None,
        Option("--type", "-t", click_type=CARD_TYPE, help="metadata.type, such as task.instruction."),
    ] = None,
    role: Annotated[str | None, Option(metavar="ROLE", help="The role. Default: from the type.")] = None,
    text: Annotated[str | None, Option(metavar="TEXT", help="The content, as text.")] = None,
    json_: Annotated[
        str | None,
        Option(
            "--json",
            metavar="JSON",
            help="The content as JSON, or @FILE. The key __type__ names its content class.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        Option("--file", "-f", click_type=FILE, help="A file with the content as text; - for stdin."),
    ] = None,
    card: Annotated[
        str | None,
        Option(
            click_type=FILE,
            help="A file with a complete card as `card show -o json` prints it, or with one card per "
            "line; - for stdin.",
        ),
    ] = None,
    author: Annotated[str | None, Option(metavar="ID", help=f"The author_id. Default: {OPERATOR}.")] = None,
    card_id: Annotated[
        str | None, Option("--id", metavar="ID", help="The card's id. Default: a new UUIDv7.")
    ] = None,
    metadata: Annotated[
        str | None, Option(metavar="JSON", help="More metadata: a JSON object, or @FILE.")
    ] = None,
    tool_calls: Annotated[
        str | None, Option(metavar="JSON", help="Tool calls in OpenAI's format: a JSON list, or @FILE.")
    ] = None,
    tool_call_id: Annotated[
        str | None, Option(metavar="ID", help="The id of the call that a tool.result answers.")
    ] = None,
    ttl: Annotated[
        int | None, Option(metavar="SECONDS", min=0, help="Lifetime, after which readers skip the card.")
    ] = None,
    repair: Annotated[
        bool, Option("--repair", help="Overwrite a card with the same id in this project.")
    ] = False,
    force: ForceCard = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the card without writing it.")] = False,
) -> None:
    """Write a card. Writing the same card again changes nothing; a different card with its id is a conflict.

    --repair refuses to overwrite a card that an unfinished turn sees, and does not work inside a turn's
    command. A card that a turn's command adds names the turn, and the turn's agent as its author.
    """
    if repair:
        refuse_inside_turn("overwrite cards (--repair)")
    elif force:
        raise UsageError("--force requires --repair", hint="add --repair, or remove --force")
    if card is not None:
        _refuse_options_of_card()
        drafts = _whole_cards(card)
    else:
        if card_id:
            check_new_id(card_id, "--id", "use letters, digits and -, or remove --id to get a new id")
        if type_ is None:
            raise UsageError(required_message("--type"), hint="for example --type task.instruction")
        drafts = [
            draft_card(
                type_,
                _content(type_, text, json_, file),
                role=role,
                author_id=author or OPERATOR,
                card_id=card_id,
                metadata=_parse_option(metadata, "--metadata", dict, "an object") or {},
                tool_calls=_parse_option(tool_calls, "--tool-calls", list | None, "a list"),
                tool_call_id=tool_call_id,
                ttl_seconds=ttl,
            )
        ]
    if dry_run:
        announce("dry run: nothing was written")
        drafts = [attribute_to_turn(draft, own_turn()) for draft in drafts]
        _print_cards([draft_as_json(draft, session().project_id) for draft in drafts], drafts)
    else:
        _write_cards(drafts, repair=repair, force=force)


def _write_cards(drafts: Sequence[CardDraft], *, repair: bool, force: bool) -> None:
    with open_stores() as (cards, _), cards.database.transaction():
        # In id order, so that two writers of the same cards wait for each other instead of deadlocking.
        person = force_argument(force, cards.database)
        drafts = _attribute_new_cards(cards, drafts)
        added = {
            each.card_id: cards.add(each, repair=repair, force=person)
            for each in sorted(drafts, key=attrgetter("card_id"))
        }
        repaired = [card_id for card_id, one in added.items() if one.outcome == "repaired"]
        if repaired:
            audit(cards.database, "card repair", card_ids=repaired)
        remember_made(card_id=drafts[-1].card_id if drafts else None)
    written = [added[draft.card_id] for draft in drafts]
    for one in written:
        if one.outcome != "inserted":
            announce(f"{one.outcome}: {one.card.card_id}")
    _print_cards([one.card for one in written], drafts)


def _attribute_new_cards(cards: "CardStore", drafts: Sequence[CardDraft]) -> list[CardDraft]:
    """Return the drafts; those of new cards name the turn that this process works for."""
    turn = own_turn()
    absent = set(cards.missing_ids([draft.card_id for draft in drafts])) if turn else set()
    return [attribute_to_turn(draft, turn) if draft.card_id in absent else draft for draft in drafts]


def _print_cards(cards: Sequence[Any], drafts: Sequence[CardDraft]) -> None:
    ids = [draft.card_id for draft in drafts]
    output.emit(cards[0] if len(cards) == 1 else cards, table=lambda: output.print_lines(ids), ids=ids)


def _refuse_options_of_card() -> None:
    """Raise UsageError for options that --card replaces."""
    context = click.get_current_context()
    others = (
        each for each in context.command.params if each.name not in ("card", "repair", "force", "dry_run")
    )
    given = [each.opts[0] for each in others if context.params.get(each.name or "") is not None]
    if given:
        raise UsageError(conflict_message("--card", given[0]), hint=f"remove {', '.join(given)}")


def _content(card_type: str, text: str | None, json_: str | None, file: str | None) -> Content:
    if sum(value is not None for value in (text, json_, file)) != 1:
        raise UsageError(
            "a card takes exactly one of --text, --json and --file",
            hint="for example --text 'Refund order 118'",
        )
    if file is not None:
        return _text_content(card_type, read_text(file))
    if text is not None:
        return _text_content(card_type, text)
    value = parse_json(json_ or "", "--json")
    if isinstance(value, dict) and "__type__" in value:
        return parse_content(value)
    if not isinstance(value, dict | list):
        raise InvalidInput(
            f"--json must be an object or a list, not {json_type(value)}",
            hint="use --text for a string or a number",
        )
    try:
        return card_type_named(card_type).content_of(value)
    except InvalidCard as exc:
        raise InvalidCard(f"--json: {exc.message}") from exc


def _text_content(card_type: str, text: str) -> Content:
    """Return the content of a text. Raises InvalidCard for a type whose cards hold a list."""
    try:
        card_type_named(card_type).content_of(text)
    except InvalidCard as exc:
        hint = "pass the list as --json, or as --json @FILE"
        raise InvalidCard(f"the content of a {card_type} card {exc.message}", hint=hint) from exc
    return TextContent(text)


def _parse_option(text: str | None, option: str, required: type | UnionType, noun: str) -> Any:
    value = None if text is None else parse_json(text, option)
    if text is not None and not isinstance(value, required):
        raise InvalidInput(f"{option} must be {noun}, not {json_type(value)}")
    return value


def _whole_cards(path: str) -> list[CardDraft]:
    from cardbox_cli.cli.options.conversation_files import open_file
    from cardbox_cli.conversations.json_documents import JsonDocuments, JsonSource, load_lazy_lists

    hint = "give a card as `cbx card show -o json` prints it, a list of cards, or one card per line"
    with open_file(path) as file:
        source = JsonSource(file, source_name(path), refuse_with=InvalidInput, hint=hint)
        values = [(place, load_lazy_lists(value)) for place, value in JsonDocuments(source)]
    if len(values) == 1 and isinstance(values[0][1], list):
        [(place, cards)] = values
        values = [(f"{place}[{index}]", card) for index, card in enumerate(cards)]
    return [_whole_card(value, place) for place, value in values]


def _whole_card(value: Any, place: str) -> CardDraft:
    try:
        return draft_from_mapping(value)
    except InvalidCard as exc:
        raise InvalidCard(f"{place}: {exc.message}", hint=exc.hint) from exc


@verb(
    "edit",
    "cbx card edit 5f0c2a91",
    "cbx card edit 5f0c2a91 --box 8b1f22c0 -o id | xargs cbx box diff 8b1f22c0",
    "EDITOR='code --wait' cbx card edit 5f0c2a91",
    "cbx card edit 5f0c2a91 --text 'Refund order 119'",
)
def edit_card(
    card_id: CardId,
    boxes: Annotated[
        list[str] | None,
        Option("--box", click_type=BOX, help="Copy this box and replace the card in the copy. Repeatable."),
    ] = None,
    text: Annotated[
        str | None,
        Option(metavar="TEXT", help="The new text, without an editor. JSON if the content is JSON."),
    ] = None,
    file: Annotated[
        str | None, Option("--file", "-f", click_type=FILE, help="A file with the new text; - for stdin.")
    ] = None,
    author: Annotated[str, Option(metavar="ID", help="The author_id.")] = OPERATOR,
) -> None:
    """Edit a card's text in VISUAL or EDITOR. Cards are immutable, so this creates a new card.

    Its metadata stores the old id as edited_from. Boxes do not change; --box creates changed copies.
    """
    from cardbox_cli.context.repair.changes import editable_text, edited_content
    from cardbox_cli.context.sources import same_json

    if text is not None and file is not None:
        raise UsageError(conflict_message("--text", "--file"), hint="remove one of them")
    with open_stores() as (cards, box_store), cards.database.snapshot():
        card = cards.get(cards.resolve(card_id))
        box_ids = unique(map(box_store.resolve, boxes or []))
        old_boxes = [box_store.get(box_id) for box_id in box_ids]
        before = editable_text(card)
        _check_lone_result(cards, card)
    _check_membership(card, old_boxes)
    by_editor = text is None and file is None
    with _new_text(card, before, text, file, box_ids, author) as new:
        is_new = new.text != before
        # As in git, an empty file cancels the edit.
        is_canceled = is_new and by_editor and not new.text.strip()
        outcome = _EditOutcome(card, old_boxes, [])
        if is_new and not is_canceled:
            content = edited_content(card, new.text, new.source)
            is_new = not same_json(card.content, content)
            outcome = _write_card(card, content, author, old_boxes) if is_new else outcome
    if is_canceled:
        decline("canceled: the text is empty; --text '' writes an empty text")
    if not is_new:
        announce(f"unchanged: {card.card_id}")
    new_ids = [box.box_id for box in outcome.boxes]
    output.emit(
        {"card": outcome.card, "edited_card_id": card.card_id, "boxes": outcome.boxes},
        table=lambda: output.print_lines([outcome.card.card_id, *new_ids]),
        ids=new_ids or [outcome.card.card_id],
    )
    for note in outcome.notes:
        announce(note)


class _EditOutcome(NamedTuple):
    """The card and the boxes that contain the new text, with notes for the person."""

    card: Card
    boxes: "Sequence[Box]"
    notes: Sequence[str]


def _write_card(card: Card, content: Content, author: str, old_boxes: "Sequence[Box]") -> _EditOutcome:
    """Write the new card, and a copy of each box that contains it instead of the old one."""
    from cardbox_cli.cli.options.editor import box_change_notes
    from cardbox_cli.context.repair.changes import edited_card, replace_id

    draft = attribute_to_turn(edited_card(card, content, author_id=author), own_turn())
    notes = _lost_original_notes(card)
    copies = []
    with open_stores() as (cards, boxes), cards.database.transaction():
        new = cards.add(draft).card
        for box in old_boxes:
            copies.append(boxes.derive(box, replace_id(box.card_ids, card.card_id, new.card_id)))
            notes += box_change_notes(boxes, box.box_id, hash_ids(box.card_ids), copies[-1])
        if not copies:
            notes += _holding_notes(card, boxes.count_refs(card.card_id))
        remember_made(card_id=new.card_id, box_id=copies[-1].box_id if copies else None)
    return _EditOutcome(new, copies, notes)


def _check_lone_result(cards: "CardStore", card: Card) -> None:
    if card.type == TOOL_RESULT and card.tool_call_id and cards.database.unique_tool_results:
        raise CardConflict(
            f"card {card.card_id!r} is the only result allowed for tool call {card.tool_call_id!r}",
            hint="this database allows one result per call: overwrite the card with `cbx card add "
            "--card - --repair`",
        )


def _check_membership(card: Card, boxes: "Sequence[Box]") -> None:
    for box in boxes:
        if card.card_id not in box.card_ids:
            raise InvalidInput(
                f"box {box.box_id} does not contain card {card.card_id!r}",
                hint=f"`cbx card refs {quote_argument(card.card_id)}` lists the boxes that contain it",
            )


@contextmanager
def _new_text(
    card: Card, before: str, text: str | None, file: str | None, box_ids: Sequence[str], author: str
) -> "Iterator[EditedText]":
    from cardbox_cli.cli.options.editor import EditedText, edit_text, read_edited

    if text is not None:
        yield EditedText(text, "--text")
    elif file is not None:
        yield EditedText(read_edited(file, before), source_name(file))
    else:
        options = [word for box_id in box_ids for word in ("--box", box_id)]
        options += [] if author == OPERATOR else ["--author", author]
        remedy = ["card", "edit", card.card_id, *options, "--file"]
        suffix = ".md" if isinstance(card.content, TextContent) else ".json"
        with edit_text(before, name=short_id(card.card_id), suffix=suffix, remedy=remedy) as new:
            yield new


def _lost_original_notes(card: Card) -> list[str]:
    from cardbox_cli.context.sources import originals

    keys = originals(card)
    return [f"note: the new card lacks the imported original ({', '.join(keys)})"] if keys else []


def _holding_notes(card: Card, holding: int) -> list[str]:
    if not holding:
        return []
    verb = "contains" if holding == 1 else "contain"
    refs = f"cbx card refs {quote_argument(card.card_id)}"
    return [
        f"note: {format_count(holding, 'box')} still {verb} the old card (`{refs}`); "
        "--box copies a box with the new card"
    ]


@verb("delete", "cbx card delete 5f0c2a91 --yes")
def delete_cards(
    card_ids: CardIds,
    yes: Yes = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be deleted.")] = False,
    force: ForceCard = False,
) -> None:
    """Hide cards from readers. The cards stay in the database, and boxes keep their ids.

    Refuses cards that an unfinished turn sees. Does not work inside a turn's command.
    """
    refuse_inside_turn("delete cards")
    with open_stores() as (cards, _):
        full_ids = unique(map(cards.resolve, card_ids))
        if not dry_run:
            confirm(
                f"Delete {format_count(len(full_ids), 'card')} ({', '.join(map(short_id, full_ids))})?",
                yes=yes,
            )
        database = cards.database
        with database.rolled_back() if dry_run else database.transaction():
            deleted = cards.delete(full_ids, force=force_argument(force, database))
            if deleted:
                audit(database, "card delete", card_ids=deleted)
    answer = {"deleted_card_ids": deleted, "dry_run": dry_run}
    verb = "would delete" if dry_run else "deleted"
    names = ", ".join(map(escape_line, deleted)) or "nothing"
    output.emit(answer, table=lambda: output.print_text(f"{verb} {names}"), ids=deleted)
