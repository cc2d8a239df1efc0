"""One project within one snapshot: the source of every API response, page and tool result."""

from datetime import datetime
from functools import cached_property

from cardbox_cli.diagnosis.diagnoser import Diagnoser, Survey
from cardbox_cli.orchestration.handlers import HANDLERS
from cardbox_cli.serve.page.links import Links
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import require_known


class Project:
    """A project within the caller's snapshot, for one request or one tool call.

    `usual` is the project that commands use without `--project`. For a page, `here` is its path and query,
    and `asks_for_tokens` is true if the reader has logged in.
    """

    def __init__(
        self,
        database: Database,
        project_id: str,
        *,
        settings: Settings,
        usual: str,
        here: str = "",
        asks_for_tokens: bool = False,
    ) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings
        self.usual = usual
        self.here = here
        self.asks_for_tokens = asks_for_tokens

    @property
    def project_option(self) -> tuple[str, ...]:
        """The `--project` option of printed commands, if they need one."""
        return () if self.project_id == self.usual else ("--project", self.project_id)

    @cached_property
    def links(self) -> Links:
        """The addresses of the project's pages."""
        return Links(self.project_id)

    @property
    def now(self) -> datetime:
        """The database's time, from which ages are counted."""
        return self.database.now()

    @property
    def diagnoser(self) -> Diagnoser:
        """The diagnosis of this project's turns."""
        return Diagnoser(self.database, self.project_id, self.settings, HANDLERS)

    def survey(self) -> Survey:
        """Return all problems of the project. Raises NotFound for an unknown project."""
        survey = self.diagnoser.survey()
        if not (survey.problems or survey.looked_at):
            require_known(self.database, self.project_id)
        return survey
