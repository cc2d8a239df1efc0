"""Candidates of shell completion: recent ids and existing names.

Starts no server, creates no table, writes nothing and hardly waits. Returns pairs of a value and its
description.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from cardbox_cli.store.boxes import BoxInfoStore
from cardbox_cli.store.chats import ChatStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.execution.batch_store import BatchFilter
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.batch_views import BatchViews
from cardbox_cli.store.views.inbox_views import InboxViews
from cardbox_cli.store.views.turn_views import TurnViews
from cardbox_cli.text.times import format_time

RECENT = 50

Pairs = list[tuple[str, str]]


@contextmanager
def completion_snapshot(target: Target, *, milliseconds: int) -> Iterator[Database]:
    """Yield a read-only snapshot of the database. Each statement may take `milliseconds`.

    Raises DatabaseUnavailable if the database does not run. On a silent network, connecting may take 2 s.
    """
    with Database.connect(target, timeout=2, start=False) as database, database.snapshot():
        database.value("give_up_after", limit=f"{milliseconds}ms")
        yield database


def recent_boxes(database: Database, project_id: str) -> Pairs:
    """Return the ids of the last changed boxes, each with its title or the time of the change."""
    rows = database.rows("recent_boxes", project_id=project_id, limit=RECENT)
    titles = BoxInfoStore(database, project_id).titles([box_id for box_id, _ in rows])
    return [(box_id, titles.get(box_id) or f"changed {format_time(changed)}") for box_id, changed in rows]


def recent_cards(database: Database, project_id: str) -> Pairs:
    """Return the ids of the newest cards, each with its type and the beginning of its text."""
    rows = database.rows("recent_cards", project_id=project_id, limit=RECENT)
    return [(card_id, f"{card_type}  {text}".rstrip()) for card_id, card_type, text in rows]


def project_ids(database: Database, _: str) -> Pairs:
    """Return the ids of the projects, each with its title."""
    return [(project_id, title or "") for project_id, title in database.rows("project_ids", limit=RECENT)]


def profile_names(database: Database, project_id: str) -> Pairs:
    """Return the names of the profiles, each with its worker target."""
    return [(row[0], row[2]) for row in database.rows("list_profiles", project_id=project_id)]


def agent_ids(database: Database, project_id: str, beginning: str) -> Pairs:
    """Return the first agents whose ids begin with `beginning`, each with its worker target."""
    return database.rows("agent_ids_beginning", project_id=project_id, beginning=beginning, limit=RECENT)


def chat_keys(database: Database, project_id: str, beginning: str) -> Pairs:
    """Return the chats whose keys begin with `beginning`, last used first, each with the time of use."""
    chats = ChatStore(database, project_id).find_by_prefix(beginning, limit=RECENT)
    return [(chat.chat_key, f"changed {format_time(chat.updated_at)}") for chat in chats]


def recent_turns(database: Database, project_id: str) -> Pairs:
    """Return the ids of the newest turns, each with its agent and its state."""
    turns = TurnViews(database, project_id).newest(limit=RECENT)
    return [(turn.agent_turn_id, f"{turn.agent_id}  {turn.status}") for turn in turns]


def recent_batches(database: Database, project_id: str) -> Pairs:
    """Return the ids of the newest batches, each with its state and the number of ended children."""
    batches = BatchViews(database, project_id).newest(BatchFilter(), limit=RECENT)
    return [(each.batch_id, f"{each.status}  {each.ended_count} of {each.task_count}") for each in batches]


def recent_inbox(database: Database, project_id: str) -> Pairs:
    """Return the ids of the newest inbox rows, each with its agent, type and status."""
    rows = InboxViews(database, project_id).newest(limit=RECENT)
    return [(row.inbox_id, f"{row.agent_id}  {row.message_type}  {row.status}") for row in rows]


def tool_names(database: Database, project_id: str) -> Pairs:
    """Return the names of the tools, each with its description."""
    tools = ToolStore(database, project_id).all()
    return [(tool.tool_name, tool.description or tool.command or "") for tool in tools]
