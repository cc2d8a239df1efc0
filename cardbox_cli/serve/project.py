"""One project, as one look sees it: what every answer is read from, whoever asks."""

from cardbox_cli.diagnosis.diagnose import Diagnoser
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database


class Project:
    """A project within the caller's snapshot. `usual` is the one that commands mean without being told."""

    def __init__(self, database: Database, project_id: str, *, settings: Settings, usual: str) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings
        self.usual = usual

    @property
    def project_option(self) -> tuple[str, ...]:
        """What commands that are shown must name besides."""
        return () if self.project_id == self.usual else ("--project", self.project_id)

    @property
    def diagnoser(self) -> Diagnoser:
        """`why` of this project."""
        return Diagnoser(self.database, self.project_id, self.settings)
