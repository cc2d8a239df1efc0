"""`cbx card import`: conversation files become cards and boxes, once or as a file grows."""

import os
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.escaping import flat
from cardbox_cli.cli.parameters.inputs import source_name
from cardbox_cli.cli.parameters.large_files import end_of_lines, open_file
from cardbox_cli.cli.parameters.options import AUTO, ConversationFile, MessagesKey, SourceFormat
from cardbox_cli.cli.parameters.types import OneOf
from cardbox_cli.cli.parameters.worker_environment import own_turn
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import count
from cardbox_cli.cli.terminal.progress import bar
from cardbox_cli.cli.terminal.tables import Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.conversations.conversation import Conversation
from cardbox_cli.conversations.formats import choose_format, format_named
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.json_window import Source
from cardbox_cli.errors import InvalidConversation, UsageError
from cardbox_cli.model.ids import unique

if TYPE_CHECKING:
    from cardbox_cli.conversations.importing import Imported, ImportedBox


# How often a followed file is looked at, in seconds, and which part of the time importing it may take.
_LOOK_EVERY = 0.5
_SHARE = 0.25


@verb(
    "cbx card import chat.json --from openai",
    "cbx card import runs.json --from openai --at traj -o id | head -1 | xargs cbx box show",
    "cbx card import ~/.claude/projects/shop/5c03.jsonl --follow",
    "curl … | cbx card import - --from auto",
)
def command(
    file: ConversationFile,
    from_: SourceFormat = AUTO,
    at: MessagesKey = None,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Go on importing a JSONL file as it grows, until Ctrl-C.")
    ] = False,
    on_bad_text: Annotated[
        str,
        Option(
            click_type=OneOf(lambda: ("fail", "replace"), what="way"),
            help="What to do about NUL characters and lone surrogates, which Postgres cannot hold.",
        ),
    ] = "fail",
    remap_tool_ids: Annotated[
        bool, Option("--remap-tool-ids", help="Give tool calls ids that are unique in the project.")
    ] = False,
) -> None:
    """Import conversations: cards, and a box each. Importing again adds only what is new."""
    wanted = None if from_ == AUTO else from_
    command = _Import(file, wanted, at, remap_tool_ids, replace_bad_text=on_bad_text == "replace")
    if follow:
        _check_can_follow(file)
        command.follow()
    else:
        command.once()


def _check_can_follow(file: str) -> None:
    if file == "-" or (os.path.exists(file) and not os.path.isfile(file)):
        name = "standard input" if file == "-" else repr(file)
        raise UsageError(f"--follow needs a file that grows, not {name}", hint="name such a file")
    if session().format.kind == "document":
        raise UsageError(
            f"--follow prints as it goes, which -o {session().output} cannot", hint="use -o jsonl"
        )


class _Import:
    """The import of one file, once or as often as it grows."""

    def __init__(
        self, file: str, wanted: str | None, at: str | None, remap_tool_ids: bool, *, replace_bad_text: bool
    ) -> None:
        self._file = file
        self._name = source_name(file)
        self._format = wanted
        self._at = at
        self._remap_tool_ids = remap_tool_ids
        self._replace_bad_text = replace_bad_text
        self._taken_as: str | None = None
        self._said: set[str] = set()

    def once(self) -> None:
        """Import the whole file."""
        try:
            with (
                open_file(self._file) as file,
                bar("importing", os.fstat(file.fileno()).st_size, in_bytes=True) as heard,
            ):
                imported = self._take(Source(file, self._name, heard=heard))
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing is half-done; the same command imports the file") from None
        self._show(imported.boxes)
        self._sum_up(imported)

    def follow(self) -> None:
        """Import the lines that are complete, and again whenever there are others."""
        with session().database():
            pass  # what keeps it from being used is reported at once, not at the first line
        known: set[str] = set()
        for source in self._growing():
            try:
                imported = self._take(source, follows=True)
            except _TooYoung as exc:
                self._announce_once(str(exc))
                continue
            changed = [box for box in imported.boxes if box.new_cards or box.box_id not in known]
            known.update(box.box_id for box in changed)
            if changed:
                self._show(changed)
                self._sum_up(imported)

    def _growing(self) -> Iterator[Source]:
        """The complete lines of the file, each time that there are others than before."""
        before, waiting = (0, 0), 0
        while True:
            began = monotonic()
            with open_file(self._file) as file:
                status, end = os.fstat(file.fileno()), end_of_lines(file)
                if end and (status.st_ino, end) != before:
                    yield Source(file, self._name, size=end)
                    before = (status.st_ino, end)
            if end < status.st_size == waiting:
                self._announce_once("the last line has no line break yet; it is left out until it has")
            waiting = status.st_size
            sleep(max(_LOOK_EVERY, (monotonic() - began) * (1 / _SHARE - 1)))

    def _announce_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            announce(message)

    def _take(self, source: Source, *, follows: bool = False) -> "Imported":
        from cardbox_cli.conversations.importing import import_conversations

        documents = Documents(source)
        if follows and documents.is_blank:
            raise _TooYoung(f"{self._name} is empty so far")
        module, evidence = choose_format(self._format, documents)
        self._taken_as = module.name if evidence is None else f"{module.name}: {evidence}"
        conversations = module.read(documents, at=self._at)
        with session().database() as database:
            imported = import_conversations(
                database,
                session().project_id,
                _with_ids(conversations) if follows else conversations,
                remap_tool_ids=self._remap_tool_ids,
                replace_bad_text=self._replace_bad_text,
                turn=own_turn(),
            )
            if imported.boxes:
                session().made(card_id=imported.last_card_id, box_id=imported.boxes[-1].box_id)
        return imported

    def _show(self, boxes: "Sequence[ImportedBox]") -> None:
        output.emit(
            {"boxes": boxes},
            table=lambda: print_table(_IMPORTED, boxes),
            ids=unique(box.box_id for box in boxes),
        )

    def _sum_up(self, imported: "Imported") -> None:
        if self._format is None:
            announce(f"taken as {self._taken_as}")
        boxes = imported.boxes
        total, new = sum(box.cards for box in boxes), sum(box.new_cards for box in boxes)
        announce(f"{count(len(boxes), 'conversation')}, {count(total, 'card')}, {new} new")
        if imported.replaced_characters:
            announce(f"{count(imported.replaced_characters, 'character')} replaced by U+FFFD")


_IMPORTED = (
    Column("BOX", lambda box: box.box_id),
    Column("CARDS", lambda box: str(box.cards), right=True),
    Column("NEW", lambda box: str(box.new_cards), right=True),
    Column("TITLE", lambda box: flat(box.title or "")),
)


class _TooYoung(Exception):
    """A followed file does not say enough yet."""


def _with_ids(conversations: Iterable[Conversation]) -> Iterator[Conversation]:
    """`conversations`, if each can be told from the others when it has grown."""
    for conversation in conversations:
        if conversation.own_id is None and format_named(conversation.format).names_itself_later:
            raise _TooYoung("waiting for a line that names the session")
        if conversation.own_id is None:
            raise InvalidConversation(
                f"{conversation.place}: without an id of its own --follow could not tell that this grew",
                hint="put a conversation_id beside its messages, or import it once it is complete",
            )
        yield conversation
