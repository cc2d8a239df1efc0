"""The requests of a chat's runs as a series. Never writes; takes part in the caller's snapshot."""

import msgspec

from cardbox_cli.chat.room import Room
from cardbox_cli.chat.tools import CHAT_TOOLS
from cardbox_cli.context.cost.account import Sent
from cardbox_cli.context.cost.findings import ChatSubject
from cardbox_cli.execution.requests.series import sent_by_steps
from cardbox_cli.model.ids import unique
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import Dated, Moment


class SentByChat(msgspec.Struct, frozen=True, kw_only=True):
    """What runs of a chat have sent, so many `runs`, the oldest first, and what findings must know of it."""

    runs: int
    series: list[Sent]
    chat: ChatSubject


def sent_by_chat(
    database: Database, project_id: str, chat_key: str, *, since: Moment | None, most: int | None
) -> SentByChat:
    """The requests of the last `most` runs that began `since` then. Raises NotFound for a chat that there
    is not."""
    room = Room(database, project_id)
    active = room.chats.get(chat_key).context_box_id
    runs = room.runs.last(chat_key, most, Dated(since=since))[::-1]
    steps = [step for run in runs for step in room.runs.steps(chat_key, run.run_id)]
    of_steps = [box_id for step in steps for box_id in (step.output_box_id, step.context_box_id) if box_id]
    homes = unique([*([active] if active else []), *of_steps])
    return SentByChat(
        runs=len(runs),
        series=sent_by_steps(database, project_id, steps, homes),
        chat=ChatSubject(key=chat_key, box_id=active, tools=frozenset(CHAT_TOOLS)),
    )
