"""What every use case of chats stands on: the stores of one project on one database."""

from cardbox_cli.settings import Settings, settings_from
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.chats.archives import ArchiveStore
from cardbox_cli.store.chats.heads import ChatStore
from cardbox_cli.store.chats.runs import ChatRunStore
from cardbox_cli.store.connection.database import Database


class Room:
    """The chats of one project. Raises SchemaMissing where the database has no tables for chats.

    A use case is one transaction: it holds the head of its chat first.
    """

    def __init__(self, database: Database, project_id: str, settings: Settings | None = None) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings or settings_from()
        self.chats = ChatStore(database, project_id)
        self.archives = ArchiveStore(database, project_id)
        self.runs = ChatRunStore(database, project_id)
        self.cards = CardStore(database, project_id)
        self.boxes = BoxStore(database, project_id)
        self.transaction = database.transaction
        self.snapshot = database.snapshot
