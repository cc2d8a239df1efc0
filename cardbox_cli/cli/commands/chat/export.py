"""`cbx chat export`: a chat as files of the on-disk layout."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from cardbox_cli.chat.layout import folders, names
from cardbox_cli.chat.layout.writing import files_of
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import FOLDER
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.text.escaping import spelled


@verb(
    "export",
    "cbx chat export telegram-chat-42 ~/bot",
    "cbx chat export telegram-chat-42 backup --replace -o json | jq '.changed'",
    reads=True,
)
def export_chat(
    key: ChatKey,
    folder: Annotated[
        Path, Argument(click_type=FOLDER, help="The folder that shall hold .ship, or .ship itself.")
    ],
    replace: Annotated[
        bool, Option("--replace", help="Replace files even where they hold what this chat does not have.")
    ] = False,
) -> None:
    """Write a chat as files of the on-disk layout: its transcript, its active and its archived contexts.

    What was imported comes out as it went in. Files that are so already are left alone.
    """
    from cardbox_cli.chat.exchange import exporting
    from cardbox_cli.chat.room import Room
    from cardbox_cli.chat.texts import personas

    root, place = folders.root_of(folder), f"{names.CHATS}/{_name_of(key)}"
    with open_database() as database, database.snapshot():
        room = Room(database, session().project_id)
        exported = exporting.export_chat(room, key)
        texts = {names.profile_file(str(each.name)): each.text for each in personas(room)}
    files = {names.PROFILES: _of_folders(texts), place: files_of(exported.files)}
    changed = {
        below: folders.changes_of(root / below, root, texts, replace=replace)
        for below, texts in files.items()
    }
    for below, texts in changed.items():
        folders.write_files(root / below, root, texts)
    for card_id in exported.gone:
        announce(f"warning: card {card_id} is gone and was left out")
    for context_id in exported.unnamed:
        announce(f"warning: no file can be called after {spelled(context_id)}, which was left out")
    done = {
        "chat_key": key,
        "folder": str(root / place),
        "files": _paths(files),
        "changed": _paths(changed),
    }
    output.emit(done, table=lambda: _print_text(done), ids=[str(root / place)])


def _of_folders(texts: dict[str, str]) -> dict[str, str]:
    """The texts whose names files can have."""
    for name in texts:
        if not names.is_file_name(name):
            announce(f"warning: no file can be called {spelled(name)}, which was left out")
    return {name: text for name, text in texts.items() if names.is_file_name(name)}


def _paths(files: Mapping[str, Mapping[str, str]]) -> list[str]:
    return [f"{folder}/{name}" for folder, below in files.items() for name in below]


def _name_of(key: str) -> str:
    name = names.folder_of(key)
    if name is None:
        raise InvalidInput(f"no folder can be called after the chat {key!r}", hint="choose another key")
    return name


def _print_text(done: dict[str, Any]) -> None:
    files, changed = len(done["files"]), set(done["changed"])
    for name in done["files"]:
        output.print_text(f"{'written  ' if name in changed else 'unchanged'}  {name}")
    announce(f"{done['folder']}: {len(changed)} of {files} files written")
