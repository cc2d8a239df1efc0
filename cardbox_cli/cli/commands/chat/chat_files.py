"""`cbx chat import` and `export`: transcript files in a .ship folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Argument, Option

from cardbox_cli.chat.files.layout_files import SkippedRecord
from cardbox_cli.cli.actor import PUT_IN_ANSWER, refuse_inside_turn
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import CHAT, FOLDER
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.text.escaping import escape_line
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.chat.files.chat_import import ImportedChat
    from cardbox_cli.store.chats import ChatStores


_TAKE = "--replace imports the file's version"
# How many skipped lines are listed one by one.
_MAX_LISTED = 20


class ImportedChats(msgspec.Struct, frozen=True, kw_only=True):
    """The imported chats, and the outcome of each persona. Paths are relative to the folder; `ignored` files
    do not belong to the layout.
    """

    chats: "list[ImportedChat]"
    personas: dict[str, str]
    skipped: list[SkippedRecord]
    ignored: list[str]


@verb(
    "import", "cbx chat import ~/bot", "cbx chat import ~/bot --chat telegram-chat-42 -o json | jq '.skipped'"
)
def import_chats(
    folder: Annotated[
        Path, Argument(click_type=FOLDER, help="The folder that contains .ship, or .ship itself.")
    ],
    chat: Annotated[
        str | None, Option("--chat", click_type=CHAT, help="Import only this chat. Default: all.")
    ] = None,
    replace: Annotated[
        bool, Option("--replace", help="Import contexts and texts that differ; old contexts are archived.")
    ] = False,
) -> None:
    """Import chats from transcript files: transcripts, active and archived contexts.

    Importing again adds only what is new. Lines that are not entries, or belong to another chat, are skipped
    and reported.
    """
    from cardbox_cli.chat.files import folders
    from cardbox_cli.store.chats import ChatStores

    refuse_inside_turn("import chats, whose memory and personas are system text", hint=PUT_IN_ANSWER)
    root = folders.project_root(folder)
    paths, ignored = folders.find_chat_folders(root)
    chosen = _choose_chats(paths, chat, root)
    for path in chosen.values():
        folders.read_files(path, root)  # find unreadable files before anything is written
    with open_database() as database:
        importing = _ChatImport(ChatStores(database, session().project_id), root, replace=replace)
        if chat is None:
            importing.take_personas()
        for chat_key, path in chosen.items():
            importing.take(chat_key, path)
    done = importing.outcome(ignored)
    output.emit(
        done,
        table=lambda: print_table(_IMPORTED_COLUMNS, done.chats),
        ids=[each.chat_key for each in done.chats],
    )
    _announce_summary(done)


def _choose_chats(paths: dict[str, Path], chat: str | None, root: Path) -> dict[str, Path]:
    from cardbox_cli.chat.files import records

    if chat is None:
        return paths
    if chat not in paths:
        where = str(root / records.CHATS)
        raise NotFound(f"no chat {chat!r} in {where!r}", hint=_chats_hint(list(paths)))
    return {chat: paths[chat]}


def _chats_hint(keys: Sequence[str]) -> str:
    if not keys:
        return "the folder contains no chats"
    shown = ", ".join(escape_line(key) for key in keys[:5])
    return f"the folder contains the chats {shown}{' and others' if len(keys) > 5 else ''}"


class _ChatImport:
    """An import of chats, one after the other."""

    def __init__(self, stores: "ChatStores", root: Path, *, replace: bool) -> None:
        self._stores = stores
        self._root = root
        self._replace = replace
        self._chats: list[ImportedChat] = []
        self._personas: dict[str, str] = {}
        self._skipped: list[SkippedRecord] = []
        self._ignored: list[str] = []

    def outcome(self, ignored: Sequence[str]) -> ImportedChats:
        return ImportedChats(
            chats=self._chats,
            personas=self._personas,
            skipped=self._skipped,
            ignored=[*ignored, *self._ignored],
        )

    def take_personas(self) -> None:
        """Import the persona texts, which all chats share."""
        from cardbox_cli.chat.files import folders, records
        from cardbox_cli.chat.files.chat_import import import_persona
        from cardbox_cli.chat.files.layout_files import read_text

        for file, data in folders.read_profiles(self._root).items():
            below = f"{records.PROFILES}/{file}"
            text = read_text(below, data, self._skipped)
            name = records.persona_name(file) or ""
            try:
                outcome = import_persona(self._stores, name, text, replace=self._replace)
            except InvalidInput as exc:
                self._skipped.append(SkippedRecord(below, None, exc.message))
            else:
                self._personas[name] = outcome

    def take(self, chat_key: str, path: Path) -> None:
        """Import one chat. Other files in its folder are kept for the report."""
        from cardbox_cli.chat.files import folders
        from cardbox_cli.chat.files.chat_import import import_chat
        from cardbox_cli.chat.files.layout_files import read_chat

        files = read_chat(chat_key, folders.read_files(path, self._root))
        below = str(path.relative_to(self._root))
        try:
            self._chats.append(import_chat(self._stores, files, replace=self._replace))
        except InvalidInput as exc:
            self._skipped.append(SkippedRecord(below, None, exc.message))
            return
        self._skipped += [
            SkippedRecord(f"{below}/{each.file}", each.line, each.reason) for each in files.skipped
        ]
        self._ignored += [f"{below}/{name}" for name in files.ignored]


def _announce_summary(done: ImportedChats) -> None:
    for each in done.skipped[:_MAX_LISTED]:
        place = each.file if each.line is None else f"{each.file}:{each.line}"
        announce(f"skipped {place}: {each.reason}")
    if len(done.skipped) > _MAX_LISTED:
        announce(f"skipped {len(done.skipped) - _MAX_LISTED} more; -o json lists all")
    for name, outcome in done.personas.items():
        if outcome == "kept":
            announce(f"the persona {escape_line(name)} differs and was not changed; {_TAKE}")
    for chat in done.chats:
        _announce_differences(chat)
    if done.ignored:
        announce(f"{format_count(len(done.ignored), 'file')} ignored; -o json lists them")
    entries = sum(chat.entries for chat in done.chats)
    new = sum(chat.new_entries for chat in done.chats)
    announce(
        f"{format_count(len(done.chats), 'chat')}, {format_count(entries, 'line')} of transcripts, "
        f"{new} new; {len(done.skipped)} skipped"
    )


def _announce_differences(chat: "ImportedChat") -> None:
    name = f"chat {escape_line(chat.chat_key)}"
    if chat.context == "kept":
        announce(f"{name} keeps a different active context; {_TAKE} and archives the old context")
    if chat.memory == "kept":
        announce(f"{name} keeps a different memory; {_TAKE}")
    for context_id in chat.differing:
        announce(f"{name} keeps a different {context_id}")


_IMPORTED_COLUMNS = (
    Column("CHAT", lambda chat: escape_line(chat.chat_key)),
    Column("ENTRIES", lambda chat: str(chat.entries), right=True),
    Column("NEW", lambda chat: str(chat.new_entries), right=True),
    Column("CONTEXT", lambda chat: chat.context),
    Column("MESSAGES", lambda chat: str(chat.messages), right=True),
    Column("ARCHIVES", lambda chat: str(chat.archives), right=True),
    Column("NEW", lambda chat: str(chat.new_archives), right=True),
)


@verb(
    "export",
    "cbx chat export telegram-chat-42 ~/bot",
    "cbx chat export telegram-chat-42 backup --replace -o json | jq '.changed'",
    reads=True,
)
def export_chat(
    key: ChatKey,
    folder: Annotated[
        Path, Argument(click_type=FOLDER, help="Target directory: the parent of .ship, or .ship itself.")
    ],
    replace: Annotated[
        bool, Option("--replace", help="Replace files even if they contain entries that this chat lacks.")
    ] = False,
) -> None:
    """Export a chat to transcript files: its transcript, and its active and archived contexts.

    Imported entries are exported unchanged. Files that are up to date are not written.
    """
    from cardbox_cli.chat.files import chat_export, folders, records
    from cardbox_cli.chat.files.layout_files import encode_files
    from cardbox_cli.chat.persona_texts import list_personas
    from cardbox_cli.store.chats import ChatStores

    name = records.chat_folder(key)
    if name is None:
        raise InvalidInput(
            f"chat key {key!r} is not a valid folder name", hint="export a chat with another key"
        )
    root, place = folders.project_root(folder), f"{records.CHATS}/{name}"
    with open_database() as database, database.snapshot():
        stores = ChatStores(database, session().project_id)
        exported = chat_export.export_chat(stores, key)
        texts = {records.profile_file(str(each.name)): each.text for each in list_personas(stores)}
    files = {records.PROFILES: _filter_names(texts), place: encode_files(exported.files)}
    changed = {
        below: folders.find_changes(root / below, root, texts, replace=replace)
        for below, texts in files.items()
    }
    for below, texts in changed.items():
        folders.write_files(root / below, root, texts)
    for card_id in exported.gone:
        announce(f"warning: card {card_id} is gone and was left out")
    for context_id in exported.unnamed:
        announce(f"warning: {escape_line(context_id)} is not a valid file name, so it was left out")
    done = {"chat_key": key, "folder": str(root / place), "files": _paths(files), "changed": _paths(changed)}
    output.emit(done, table=lambda: _print_exported(done), ids=[str(root / place)])


def _filter_names(texts: dict[str, str]) -> dict[str, str]:
    """Return the texts whose names are valid file names."""
    from cardbox_cli.chat.files import records

    for name in texts:
        if not records.is_file_name(name):
            announce(f"warning: {escape_line(name)} is not a valid file name, so it was left out")
    return {name: text for name, text in texts.items() if records.is_file_name(name)}


def _paths(files: Mapping[str, Mapping[str, str]]) -> list[str]:
    return [f"{folder}/{name}" for folder, below in files.items() for name in below]


def _print_exported(done: dict[str, Any]) -> None:
    files, changed = len(done["files"]), set(done["changed"])
    for name in done["files"]:
        output.print_text(f"{'written  ' if name in changed else 'unchanged'}  {name}")
    announce(f"{done['folder']}: {len(changed)} of {files} files written")
