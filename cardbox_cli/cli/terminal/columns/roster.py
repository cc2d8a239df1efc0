"""Columns of what a project has: profiles, agents, tools and tokens; and of projects."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cardbox_cli.cli.terminal.columns.shared import aged
from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column
from cardbox_cli.cli.terminal.tables.shown import Columns
from cardbox_cli.model.identity import ApiToken, RosterEntry, Tool
from cardbox_cli.model.ids import short_id
from cardbox_cli.text import flat, format_time

if TYPE_CHECKING:
    from cardbox_cli.store.profiles import ProfileEntry


def _tags(entry: "ProfileEntry | RosterEntry") -> str:
    return ", ".join(map(str, entry.tags)) or NOTHING


PROFILE: Columns = (
    Column("NAME", lambda entry: entry.name),
    Column("BOX", lambda entry: short_id(entry.profile_box_id)),
    Column("FULL ID", lambda entry: entry.profile_box_id, extra=True),
    Column("WORKER TARGET", lambda entry: entry.worker_target),
    Column("TAGS", _tags, spare=3),
    aged("updated_at"),
    Column("UPDATED", lambda entry: format_time(entry.updated_at) or NOTHING, extra=True),
)


PROJECT: Columns = (
    Column("PROJECT", lambda project: project.project_id),
    Column("STATUS", lambda project: project.status),
    Column("OWNER", lambda project: project.owner_id, spare=3),
    aged("created_at"),
    Column("CREATED", lambda project: format_time(project.created_at) or NOTHING, extra=True),
    Column("UPDATED", lambda project: format_time(project.updated_at) or NOTHING, extra=True),
    Column("TITLE", lambda project: flat(project.title)),
)


def _of_head(name: str) -> Callable[[RosterEntry], str]:
    def text(entry: RosterEntry) -> str:
        value = None if entry.head is None else getattr(entry.head, name)
        return NOTHING if value is None else str(value)

    return text


AGENT: Columns = (
    Column("AGENT", lambda entry: entry.agent_id),
    Column("STATUS", _of_head("status")),
    Column("TURN", _of_head("active_agent_turn_id"), extra=True),
    Column("EPOCH", _of_head("turn_epoch"), right=True, extra=True),
    Column("PROFILE", lambda entry: entry.profile_name or short_id(entry.profile_box_id)),
    Column("PROFILE BOX", lambda entry: short_id(entry.profile_box_id), extra=True),
    Column("WORKER TARGET", lambda entry: entry.worker_target),
    Column("TAGS", _tags, spare=3),
    Column("OWNER", lambda entry: entry.owner_agent_id or NOTHING, extra=True),
    Column("ROSTER", lambda entry: entry.status, extra=True),
    aged("created_at"),
    Column("CREATED", lambda entry: format_time(entry.created_at) or NOTHING, extra=True),
    Column("DISPLAY NAME", lambda entry: flat(entry.display_name or NOTHING), extra=True),
)


def _timeout(tool: Tool) -> str:
    return NOTHING if tool.timeout_seconds is None else f"{tool.timeout_seconds:g}s"


TOOL: Columns = (
    Column("NAME", lambda tool: tool.tool_name),
    Column("COMMAND", lambda tool: flat(tool.command or NOTHING)),
    Column("TIMEOUT", _timeout, spare=1),
    Column("AFTER", lambda tool: tool.after_execution or NOTHING, spare=2),
    Column("SUBJECT", lambda tool: tool.target_subject or NOTHING, extra=True),
    Column("DESCRIPTION", lambda tool: flat(tool.description or "")),
)


def _state(token: ApiToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    is_over = token.expires_at is not None and token.expires_at <= datetime.now(UTC)
    return "expired" if is_over else "in force"


TOKEN: Columns = (
    Column("ID", lambda token: token.token_id),
    Column("STATE", _state),
    aged("created_at"),
    Column("CREATED", lambda token: format_time(token.created_at) or NOTHING, extra=True),
    Column("EXPIRES", lambda token: format_time(token.expires_at) or NOTHING, spare=2),
    Column("BY", lambda token: flat(token.created_by), extra=True),
    Column("LABEL", lambda token: flat(token.label)),
)
