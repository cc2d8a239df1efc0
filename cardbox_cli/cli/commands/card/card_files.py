"""`cbx card import` and `export`: conversations in files."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Exit, Option

from cardbox_cli.cli.actor import own_turn
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options import conversation_files
from cardbox_cli.cli.options.input_files import open_input, source_name, write_text
from cardbox_cli.cli.options.shared_options import AUTO, ConversationFiles, MessagesKey, SourceFormat
from cardbox_cli.cli.options.value_types import BOX, FILE, OneOf
from cardbox_cli.cli.project_database import open_database, open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.progress_bar import bar
from cardbox_cli.cli.terminal.table_layout import Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.conversations.formats.registry import (
    choose_format,
    export_format_names,
    find_exporter,
    find_format,
)
from cardbox_cli.errors import InvalidCard, InvalidConversation, UsageError
from cardbox_cli.model.ids import unique
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.text.escaping import flatten
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.conversations.conversation import Conversation
    from cardbox_cli.conversations.importing import ConversationImport, ImportedBox
    from cardbox_cli.conversations.json_documents import JsonSource
    from cardbox_cli.model.cards import Card
    from cardbox_cli.store.boxes import BoxStore


# Seconds between two polls of a followed file, and the share of the time that importing it may take.
_POLL_INTERVAL = 0.5
_MAX_BUSY_SHARE = 0.25


@verb(
    "import",
    "cbx card import chat.json --from openai",
    "cbx card import runs.json --from openai --at traj -o id | head -1 | xargs cbx box show",
    "cbx card import ~/.claude/projects/shop/5c03.jsonl --follow",
    "cbx card import logs/ more.jsonl.gz --keep-going",
    "curl … | cbx card import - --from auto",
)
def import_cards(
    files: ConversationFiles,
    from_: SourceFormat = AUTO,
    at: MessagesKey = None,
    follow: Annotated[
        bool, Option("--follow", help="Keep importing a JSONL file as it grows, until Ctrl-C.")
    ] = False,
    on_bad_text: Annotated[
        str,
        Option(
            click_type=OneOf(lambda: ("fail", "replace"), what="value"),
            help="Refuse or replace NUL characters and lone surrogates, which Postgres cannot store.",
        ),
    ] = "fail",
    remap_tool_ids: Annotated[
        bool, Option("--remap-tool-ids", help="Give tool calls new ids that are unique in the project.")
    ] = False,
    only: Annotated[
        int | None,
        Option("--only", metavar="N", min=0, help="Import only conversation N of the file, counted from 0."),
    ] = None,
    keep_going: Annotated[
        bool, Option("--keep-going", "-k", help="Continue with the other files if a file is refused.")
    ] = False,
) -> None:
    """Import conversations as cards, with a box for each. Importing again adds only what is new.

    Each file is imported completely or not at all. The first file that is refused ends the command, unless
    you pass --keep-going.
    """
    if only is not None and (follow or len(files) > 1 or os.path.isdir(files[0])):
        raise UsageError(
            "--only requires exactly one file and cannot be combined with --follow",
            hint="pass the one file that contains the conversation",
        )
    if follow and len(files) > 1:
        raise UsageError("--follow takes one file", hint="run one command for each file")
    options = _ImportOptions(
        None if from_ == AUTO else from_, at, remap_tool_ids, on_bad_text == "replace", only
    )
    if follow:
        _check_can_follow(files[0])
        _CardImport(files[0], options).follow()
    else:
        paths = conversation_files.conversation_files(files)
        if len(paths) == 1:
            importing = _CardImport(paths[0], options)
            imported = importing.once()
            _emit_imported(imported.boxes)
            importing.sum_up(imported)
        else:
            _import_all(paths, options, keep_going=keep_going)


class _ImportOptions(NamedTuple):
    """The options that apply to every file."""

    format: str | None
    at: str | None
    remap_tool_ids: bool
    replace_bad_text: bool
    only: int | None


def _import_all(files: Sequence[str], options: _ImportOptions, *, keep_going: bool) -> None:
    boxes: list[ImportedBox] = []

    def take(file: str, which: str) -> None:
        importing = _CardImport(file, options)
        imported = importing.once(which)
        boxes.extend(imported.boxes)
        importing.sum_up(imported, named=True)

    def refuse(refused: conversation_files.RefusedFile) -> bool:
        if keep_going:
            announce(f"error: {refused.error.message}")
        return keep_going

    refused = conversation_files.take_each(files, take, refuse=refuse)
    _emit_imported(boxes, refused)
    if refused and not keep_going:
        imported = f"; {format_count(len(boxes), 'conversation')} before it imported" if boxes else ""
        announce(
            f"{source_name(refused[0].file)} is refused{imported}; --keep-going continues with the rest of "
            f"{len(files)} files"
        )
        raise refused[0].error
    if refused:
        announce(f"{format_count(len(refused), 'file')} of {len(files)} refused and not imported")
        raise Exit(refused[0].error.exit_code)


def _check_can_follow(file: str) -> None:
    if file == "-" or (os.path.exists(file) and not os.path.isfile(file)):
        name = "standard input" if file == "-" else repr(file)
        raise UsageError(
            f"--follow requires a file that can grow, not {name}", hint="pass the path of a JSONL file"
        )
    if os.path.isfile(file):
        with open_input(file) as packed:
            if conversation_files.is_packed(packed):
                raise UsageError(
                    f"--follow cannot read the compressed file {file!r}", hint="decompress the file first"
                )
    if session().format.kind == "document":
        raise UsageError(f"--follow and -o {session().output} cannot be combined", hint="use -o jsonl")


class _CardImport:
    """The import of one file, once or each time that it grows."""

    def __init__(self, file: str, options: _ImportOptions) -> None:
        self._file = file
        self._name = source_name(file)
        self._options = options
        self._detected_format: str | None = None
        self._announced: set[str] = set()

    def once(self, which: str = "") -> "ConversationImport":
        """Import the whole file. `which` is its place among several, for the progress bar."""
        from cardbox_cli.conversations.containers.packed_files import open_log
        from cardbox_cli.conversations.json_documents import JsonSource

        try:
            with (
                conversation_files.open_file(self._file) as plain,
                open_log(plain, self._name) as file,
                bar(f"importing {which}".strip(), os.fstat(file.fileno()).st_size, in_bytes=True) as heard,
            ):
                return self._import_source(JsonSource(file, self._name, heard=heard))
        except (InvalidConversation, InvalidCard) as exc:
            nothing = "nothing of this file was imported" if which else "nothing was imported"
            exc.hint = exc.hint and f"{exc.hint}; {nothing}"
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was imported; run the same command again") from None

    def follow(self) -> None:
        """Import the complete lines, and again each time that there are more."""
        with open_database():
            pass  # report an unusable database now, not at the first line
        known_ids: set[str] = set()
        for source in self._read_growing_file():
            try:
                imported = self._import_source(source, follows=True)
            except _IncompleteFile as exc:
                self._announce_once(str(exc))
                continue
            changed = [box for box in imported.boxes if box.new_cards or box.box_id not in known_ids]
            known_ids.update(box.box_id for box in changed)
            if changed:
                _emit_imported(changed)
                self.sum_up(imported)

    def _read_growing_file(self) -> "Iterator[JsonSource]":
        """Yield the complete lines of the file, each time that they have changed."""
        from cardbox_cli.conversations.json_documents import JsonSource

        before, waiting = (0, 0), 0
        while True:
            began = monotonic()
            with conversation_files.open_file(self._file) as file:
                status, end = os.fstat(file.fileno()), conversation_files.end_of_lines(file)
                if end and (status.st_ino, end) != before:
                    yield JsonSource(file, self._name, size=end)
                    before = (status.st_ino, end)
            if end < status.st_size == waiting:
                self._announce_once("the last line is incomplete (no line break): waiting for the rest")
            waiting = status.st_size
            sleep(max(_POLL_INTERVAL, (monotonic() - began) * (1 / _MAX_BUSY_SHARE - 1)))

    def _announce_once(self, message: str) -> None:
        if message not in self._announced:
            self._announced.add(message)
            announce(message)

    def _import_source(self, source: "JsonSource", *, follows: bool = False) -> "ConversationImport":
        from cardbox_cli.conversations.importing import import_conversations
        from cardbox_cli.conversations.json_documents import JsonDocuments

        documents = JsonDocuments(source)
        if follows and documents.is_blank:
            raise _IncompleteFile(f"{self._name} is empty so far")
        module, evidence = choose_format(self._options.format, documents)
        self._detected_format = module.name if evidence is None else f"{module.name}: {evidence}"
        conversations = module.read(documents, at=self._options.at)
        with open_database() as database:
            imported = import_conversations(
                database,
                session().project_id,
                _require_ids(conversations) if follows else conversations,
                remap_tool_ids=self._options.remap_tool_ids,
                replace_bad_text=self._options.replace_bad_text,
                turn=own_turn(),
                only=self._options.only,
            )
            if imported.boxes:
                remember_made(card_id=imported.last_card_id, box_id=imported.boxes[-1].box_id)
        return imported

    def sum_up(self, imported: "ConversationImport", *, named: bool = False) -> None:
        """Print a summary on stderr; `named` adds the name of the file."""
        lead = f"{self._name}: " if named else ""
        if self._options.format is None:
            announce(f"{lead}recognized as {self._detected_format}")
        boxes = imported.boxes
        total, new = sum(box.cards for box in boxes), sum(box.new_cards for box in boxes)
        announce(
            f"{lead}{format_count(len(boxes), 'conversation')}, {format_count(total, 'card')}, {new} new"
        )
        conversation_files.announce_left_out(imported.left_out, lead)
        if imported.replaced_characters:
            announce(f"{format_count(imported.replaced_characters, 'character')} replaced by U+FFFD")


def _emit_imported(
    boxes: "Sequence[ImportedBox]", refused: Sequence[conversation_files.RefusedFile] = ()
) -> None:
    output.emit(
        {"boxes": boxes, "failed": [each.error_fields for each in refused]},
        table=lambda: print_table(_IMPORTED_COLUMNS, boxes),
        ids=unique(box.box_id for box in boxes),
    )


_IMPORTED_COLUMNS = (
    Column("#", lambda box: str(box.index), right=True),
    Column("BOX", lambda box: box.box_id),
    Column("CARDS", lambda box: str(box.cards), right=True),
    Column("NEW", lambda box: str(box.new_cards), right=True),
    Column("TITLE", lambda box: flatten(box.title or "")),
)


class _IncompleteFile(Exception):
    """A followed file that does not contain enough yet."""


def _require_ids(conversations: "Iterable[Conversation]") -> "Iterator[Conversation]":
    """Yield the conversations. Raises if one has no id that identifies it after it has grown."""
    for conversation in conversations:
        if conversation.own_id is None and find_format(conversation.format).names_itself_later:
            raise _IncompleteFile("waiting for a line that names the session")
        if conversation.own_id is None:
            raise InvalidConversation(
                f"{conversation.place}: --follow requires a conversation with an id",
                hint="add a conversation_id next to its messages, or import the complete file "
                "without --follow",
            )
        yield conversation


@verb(
    "export",
    "cbx card export --box 8b1f22c0 --to openai > chat.json",
    "cbx card export --box 8b1f22c0 --to claude-code > session.jsonl",
    pages=True,
    reads=True,
)
def export_cards(
    box: Annotated[
        str,
        Option(click_type=BOX, help="The box: full id, or a unique part at its start or end, or @last."),
    ],
    to: Annotated[
        str, Option(click_type=OneOf(export_format_names, what="format"), help="The format to write.")
    ] = DEFAULT,
    out: Annotated[
        Path | None, Option("--out", click_type=FILE, help="Write to a file instead of stdout.")
    ] = None,
) -> None:
    """Print a box as a conversation. Imported messages are exported unchanged."""
    from cardbox_cli.conversations.conversation import Rereadable

    with open_stores() as (_, boxes), boxes.database.snapshot():
        box_id = boxes.resolve(box)
        boxes.require(box_id)
        gone: dict[str, None] = {}
        cards = Rereadable(partial(_visible_cards, boxes, box_id, gone))
        text = find_exporter(to)(cards)
        if out is None or str(out) == "-":
            output.write_pieces(text)
        else:
            write_text(out, chain(text, "\n"))
    for card_id in gone:
        announce(f"warning: card {card_id} is gone and was left out")


def _visible_cards(boxes: "BoxStore", box_id: str, gone: dict[str, None]) -> "Iterator[Card]":
    """Yield the visible cards of the box in order; `gone` collects the ids of the others."""
    for slot in boxes.stream(box_id):
        if slot.card is not None and slot.state == "present":
            yield slot.card
        else:
            gone[slot.card_id] = None
