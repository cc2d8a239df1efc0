"""One project, as one look sees it: what every answer is read from, whoever asks."""

from cardbox_cli.diagnosis.diagnose import Diagnoser, Survey
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import require_known


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

    def survey(self) -> Survey:
        """All that is not well. Raises NotFound for a project that is not there: that nothing is stuck is no
        answer about it."""
        survey = self.diagnoser.survey()
        if not (survey.problems or survey.looked_at):
            require_known(self.database, self.project_id)
        return survey
