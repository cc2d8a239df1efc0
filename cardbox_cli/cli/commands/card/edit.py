"""What `cbx card edit` does: a new card in the place of an old one, and new boxes that hold it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from cardbox_cli.cli.parameters.editor import Edited, changed_meanwhile, edited, taken_from
from cardbox_cli.cli.parameters.inputs import decline, source_name
from cardbox_cli.cli.parameters.options import CardId
from cardbox_cli.cli.parameters.types import BOX, FILE
from cardbox_cli.cli.parameters.worker_environment import own_turn
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.repair.changes import editable_text, edited_card, edited_content, replace_id
from cardbox_cli.context.sources import originals, same_json
from cardbox_cli.errors import CardConflict, InvalidInput, UsageError
from cardbox_cli.model.boxes import Box
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import OPERATOR, Card, written_by
from cardbox_cli.model.content import Content, TextContent
from cardbox_cli.model.ids import hash_ids, short_id, unique
from cardbox_cli.model.text.command_lines import argument
from cardbox_cli.model.text.quantities import count

if TYPE_CHECKING:
    from cardbox_cli.store.cards import CardStore


@verb(
    "cbx card edit 5f0c2a91",
    "cbx card edit 5f0c2a91 --box 8b1f22c0 -o id | xargs cbx box diff 8b1f22c0",
    "EDITOR='code --wait' cbx card edit 5f0c2a91",
    "cbx card edit 5f0c2a91 --text 'Refund order 119'",
)
def command(
    card_id: CardId,
    boxes: Annotated[
        list[str] | None,
        Option(
            "--box", click_type=BOX, help="Make a new box, with the new card in place of the old. Repeatable."
        ),
    ] = None,
    text: Annotated[
        str | None, Option(metavar="S", help="The new text; no editor. JSON where the content is.")
    ] = None,
    file: Annotated[
        str | None, Option("--file", "-f", click_type=FILE, help="A file with the new text; - for stdin.")
    ] = None,
    author: Annotated[str, Option(metavar="A", help="author_id, for audit.")] = OPERATOR,
) -> None:
    """Edit a card's text in VISUAL or EDITOR. Cards are immutable, so this makes a new one.

    Its metadata names the old one as edited_from. Boxes stay as they are; --box makes new ones.
    """
    if text is not None and file is not None:
        raise UsageError("--text and --file both bring the new text", hint="give one of them")
    with session().stores() as (cards, box_store), cards.database.snapshot():
        card = cards.get(cards.resolve(card_id))
        wanted = unique(map(box_store.resolve, boxes or []))
        read = [box_store.get(box_id) for box_id in wanted]
        before = editable_text(card)
        _check_lone_answer(cards, card)
    _check_held(card, read)
    by_editor = text is None and file is None
    with _new_text(card, before, text, file, wanted, author) as new:
        is_new = new.text != before
        # As in git, who empties the file wants out.
        left = is_new and by_editor and not new.text.strip()
        outcome = _Outcome(card, read, [])
        if is_new and not left:
            content = edited_content(card, new.text, new.source)
            is_new = not same_json(card.content, content)
            outcome = _written(card, content, author, read) if is_new else outcome
    if left:
        decline("the text is empty: nothing was done; --text '' makes it so")
    if not is_new:
        announce(f"unchanged: {card.card_id}")
    _emit(outcome, card)
    for note in outcome.news:
        announce(note)


class _Outcome(NamedTuple):
    """The card and the boxes that hold the text now, and what there is to say of them."""

    card: Card
    boxes: Sequence[Box]
    news: Sequence[str]


def _written(card: Card, content: Content, author: str, read: Sequence[Box]) -> _Outcome:
    """The new card, and a new box for each that was read."""
    draft = written_by(edited_card(card, content, author_id=author), own_turn())
    news = _forgotten(card)
    made = []
    with session().stores() as (cards, boxes), cards.database.transaction():
        new = cards.add(draft).card
        for box in read:
            made.append(boxes.derive(box, replace_id(box.card_ids, card.card_id, new.card_id)))
            news += changed_meanwhile(boxes, box.box_id, hash_ids(box.card_ids), made[-1])
        if not made:
            news += _still_held(card, boxes.count_refs(card.card_id))
        session().made(card_id=new.card_id, box_id=made[-1].box_id if made else None)
    return _Outcome(new, made, news)


def _check_lone_answer(cards: "CardStore", card: Card) -> None:
    if card.type == TOOL_RESULT and card.tool_call_id and cards.database.unique_tool_results:
        raise CardConflict(
            f"card {card.card_id!r} answers the tool call {card.tool_call_id!r}, and no other card can",
            hint="this database allows one result per call; `cbx card add --card - --repair` overwrites",
        )


def _check_held(card: Card, boxes: Sequence[Box]) -> None:
    for box in boxes:
        if card.card_id not in box.card_ids:
            raise InvalidInput(
                f"box {box.box_id} does not hold card {card.card_id!r}",
                hint=f"`cbx card refs {argument(card.card_id)}` lists the boxes that do",
            )


@contextmanager
def _new_text(
    card: Card, before: str, text: str | None, file: str | None, box_ids: Sequence[str], author: str
) -> Iterator[Edited]:
    if text is not None:
        yield Edited(text, "--text")
    elif file is not None:
        yield Edited(taken_from(file, before), source_name(file))
    else:
        options = [word for box_id in box_ids for word in ("--box", box_id)]
        options += [] if author == OPERATOR else ["--author", author]
        remedy = ["card", "edit", card.card_id, *options, "--file"]
        suffix = ".md" if isinstance(card.content, TextContent) else ".json"
        with edited(before, name=short_id(card.card_id), suffix=suffix, remedy=remedy) as new:
            yield new


def _forgotten(card: Card) -> list[str]:
    keys = originals(card)
    return [f"left behind in the old card, which remembers its original: {', '.join(keys)}"] if keys else []


def _still_held(card: Card, holding: int) -> list[str]:
    if not holding:
        return []
    verb = "holds" if holding == 1 else "hold"
    refs = f"cbx card refs {argument(card.card_id)}"
    return [
        f"{count(holding, 'box')} still {verb} the old card: `{refs}` lists them, "
        "and --box makes a new one with the new card"
    ]


def _emit(outcome: _Outcome, old: Card) -> None:
    card, boxes, _ = outcome
    answer: dict[str, Any] = {"card": card, "edited_card_id": old.card_id, "boxes": boxes}
    box_ids = [box.box_id for box in boxes]
    table = partial(output.print_lines, [card.card_id, *box_ids])
    output.emit(answer, table=table, ids=box_ids or [card.card_id])
