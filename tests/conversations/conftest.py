"""Importing as a command does, without one."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.conversations.importing import ImportedBox, import_conversations
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from tests.conversations.reading import documents_in

ImportText = Callable[..., list[ImportedBox]]
Export = Callable[[str, str], str]


@pytest.fixture
def import_text(database: Database) -> ImportText:
    """Import the text of a file `f` in the format of this name."""

    def run(source_format: str, text: str, project: str = "p", **options: Any) -> list[ImportedBox]:
        conversations = find_format(source_format).read(documents_in(text))
        return import_conversations(database, project, conversations, **options).boxes

    return run


@pytest.fixture
def export(boxes: BoxStore) -> Export:
    """The text of a box in the format of this name."""
    return lambda box_id, name: "".join(find_format(name).export(boxes.view(box_id).cards))
