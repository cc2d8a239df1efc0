"""Tools in Postgres: one project's view of `resource.tools`.

`model/identity.py` defines a valid tool. Other programs store their own options and subjects in these rows.
Replacing a tool preserves them.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.model.identity import Tool, check_tool
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import NameQuery, ProjectStore
from cardbox_cli.store.connection.queries import decode_row
from cardbox_cli.store.projects import ensure_project

TABLE = "resource.tools"
# Options that cbx interprets and sets.
_OWN_OPTIONS = ("exec", "timeout_seconds", "read_only")
_NO_TOOL = "`cbx tool list` shows the names"
_NAMES = NameQuery("tool_names_like", TABLE)


class ToolRegistration(NamedTuple):
    """The stored tool, the action that was needed, and the tool that was replaced."""

    tool: Tool
    action: Literal["added", "replaced", "unchanged"]
    before: Tool | None = None


class ToolStore(ProjectStore):
    """The tools of one project. Names are case-sensitive."""

    def add(self, tool: Tool, *, actor: str, replace: bool = False) -> ToolRegistration:
        """Register a tool. An equal tool stays unchanged. With `replace`, replaces a tool of the same name.

        Raises InvalidInput for a tool that providers would refuse, Conflict if a different tool has the name.
        """
        check_tool(tool)
        self.database.require(TABLE)
        with self.database.transaction():
            ensure_project(self.database, self.project_id, actor)
            made = self._one(Tool, "insert_tool", **_columns(tool))
            if made is not None:
                return ToolRegistration(made, "added")
            stored = self._one(Tool, "lock_tool", tool_name=tool.tool_name)
            if stored is None:
                what = f"tool {tool.tool_name!r} was removed at the same time"
                raise Conflict(what, hint="run the command again")
            return self._replace(stored, tool, replace=replace)

    def _replace(self, stored: Tool, tool: Tool, *, replace: bool) -> ToolRegistration:
        foreign = {name: value for name, value in stored.options.items() if name not in _OWN_OPTIONS}
        subject = tool.target_subject or stored.target_subject
        changed = msgspec.structs.replace(tool, target_subject=subject, options={**foreign, **tool.options})
        if changed == stored:
            return ToolRegistration(stored, "unchanged")
        if not replace:
            what = f"a different tool {tool.tool_name!r} exists in project {self.project_id!r}"
            raise Conflict(what, hint="pass --replace to replace the tool")
        row = self._value("update_tool", **_columns(changed))
        return ToolRegistration(decode_row(Tool, row), "replaced", stored)

    def remove(self, tool_name: str) -> None:
        """Remove a tool. Raises NotFound."""
        self.database.require(TABLE)
        if not self._run("delete_tool", tool_name=tool_name):
            raise self._not_found("tool", tool_name, _NO_TOOL, names=_NAMES)

    def get(self, tool_name: str) -> Tool:
        """Return the tool with this name. Raises NotFound."""
        return self._require_item(self.find(tool_name), "tool", tool_name, _NO_TOOL, names=_NAMES)

    def find(self, tool_name: str) -> Tool | None:
        self.database.require(TABLE)
        return self._one(Tool, "tool_by_name", tool_name=tool_name)

    def all(self) -> list[Tool]:
        """Return all tools of the project by name."""
        return self._select(None)

    def names(self) -> set[str]:
        """Return the names of all tools of the project. Empty if the database has no table for tools."""
        return {tool.tool_name for tool in self.all()} if TABLE in self.database.tables else set()

    def get_many(self, tool_names: Iterable[str]) -> list[Tool]:
        """Return the tools with these names, sorted by name. Leaves out unknown names."""
        return self._select(list(tool_names))

    def _select(self, names: list[str] | None) -> list[Tool]:
        self.database.require(TABLE)
        return self._all(Tool, "list_tools", names=names)


def _columns(tool: Tool) -> dict[str, Any]:
    values = msgspec.structs.asdict(tool)
    return {**values, "parameters": jsonb(tool.parameters), "options": jsonb(tool.options)}
