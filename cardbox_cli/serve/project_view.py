"""One project within one snapshot: the source of every API response, page and tool result."""

from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import cached_property

from cardbox_cli.diagnosis.diagnoser import Diagnoser, Survey
from cardbox_cli.inspect.batches import BatchReader
from cardbox_cli.inspect.costs import CostReader
from cardbox_cli.inspect.requests import Requests
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.serve.page.links import Links
from cardbox_cli.settings import Settings
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import require_known
from cardbox_cli.store.roster import AgentStore
from cardbox_cli.store.views.batch_views import BatchViews
from cardbox_cli.store.views.turn_views import TurnViews


@dataclass(eq=False)
class ProjectView:
    """A project within the caller's snapshot, for one request or one tool call.

    For a page, `here` is its path and query, and `asks_for_tokens` is true if the reader has logged in.
    """

    database: Database
    project_id: str
    _: KW_ONLY
    settings: Settings
    here: str = ""
    asks_for_tokens: bool = False

    @property
    def project_option(self) -> tuple[str, ...]:
        """The options of printed commands: readers paste them where another project may be the usual one."""
        return ("--project", self.project_id, *self.database.target.comment)

    @cached_property
    def links(self) -> Links:
        return Links(self.project_id)

    @property
    def now(self) -> datetime:
        """The database's time. Ages are relative to it."""
        return self.database.now()

    @property
    def diagnoser(self) -> Diagnoser:
        return Diagnoser(self.database, self.project_id, self.settings, HANDLERS)

    @property
    def boxes(self) -> BoxStore:
        return BoxStore(self.database, self.project_id)

    @property
    def cards(self) -> CardStore:
        return CardStore(self.database, self.project_id)

    @property
    def turns(self) -> TurnViews:
        return TurnViews(self.database, self.project_id)

    @property
    def chat_stores(self) -> ChatStores:
        return ChatStores(self.database, self.project_id, self.settings)

    @property
    def agents(self) -> AgentStore:
        return AgentStore(self.database, self.project_id)

    def requests(self, *, format: str | None = None, profile: str | None = None) -> Requests:
        return Requests(self.boxes, self.turns, format=format, profile=profile)

    def costs(self, *, profile: str | None = None, since: str | None = None) -> CostReader:
        return CostReader(self.boxes, self.turns, profile=profile, since=since)

    @property
    def batches(self) -> BatchViews:
        return BatchViews(self.database, self.project_id)

    def batch_reader(self) -> BatchReader:
        return BatchReader(self.batches, self.settings, self.project_option)

    def survey(self) -> Survey:
        """Return all problems of the project. Raises NotFound for an unknown project."""
        survey = self.diagnoser.survey()
        if not (survey.problems or survey.looked_at):
            require_known(self.database, self.project_id)
        return survey
