"""Tools in Postgres: one project's view of `resource.tools`.

What a tool may be is for `model/identity.py` to say. Other programs keep options and subjects of their own
there: a tool that is replaced keeps those.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.model.identity import Tool, check_tool
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import Names, ProjectStore
from cardbox_cli.store.connection.queries import decoded
from cardbox_cli.store.projects import ensure_project

_TABLE = "resource.tools"
# The options that cbx gives a meaning to, and sets.
_OWN_OPTIONS = ("exec", "timeout_seconds")
_NO_TOOL = "`cbx tool list` shows the names, `cbx tool add` adds one"
_NAMES = Names("tool_names_like", _TABLE)


class Added(NamedTuple):
    """A tool as it is stored now, what that took, and what stood there before."""

    tool: Tool
    action: Literal["added", "replaced", "unchanged"]
    before: Tool | None = None


class ToolStore(ProjectStore):
    """The tools of one project. Names are exact."""

    def add(self, tool: Tool, *, actor: str, replace: bool = False) -> Added:
        """Register a tool. The same again is unchanged; another of its name is replaced only if asked to.

        Raises InvalidInput for what providers would not take, Conflict for a taken name; nothing is written.
        """
        check_tool(tool)
        self.database.require(_TABLE)
        with self.database.transaction():
            ensure_project(self.database, self.project_id, actor)
            made = self._one(Tool, "insert_tool", **_written(tool))
            if made is not None:
                return Added(made, "added")
            stored = self._one(Tool, "lock_tool", tool_name=tool.tool_name)
            if stored is None:
                raise Conflict(f"tool {tool.tool_name!r} was removed meanwhile", hint="add it again")
            return self._replace(stored, tool, replace=replace)

    def _replace(self, stored: Tool, tool: Tool, *, replace: bool) -> Added:
        changed = _with_what_others_keep(tool, stored)
        if changed == stored:
            return Added(stored, "unchanged")
        if not replace:
            raise Conflict(
                f"there is another tool {tool.tool_name!r} in project {self.project_id!r}",
                hint="`cbx tool show` shows it, --replace replaces it",
            )
        return Added(decoded(Tool, self._value("update_tool", **_written(changed))), "replaced", stored)

    def remove(self, tool_name: str) -> None:
        """Remove a tool. Raises NotFound."""
        self.database.require(_TABLE)
        if not self._run("delete_tool", tool_name=tool_name):
            raise self._absent("tool", tool_name, _NO_TOOL, names=_NAMES)

    def get(self, tool_name: str) -> Tool:
        """The tool of this name. Raises NotFound."""
        return self._found(self.find(tool_name), "tool", tool_name, _NO_TOOL, names=_NAMES)

    def find(self, tool_name: str) -> Tool | None:
        """The tool of this name, or None."""
        self.database.require(_TABLE)
        return self._one(Tool, "tool_by_name", tool_name=tool_name)

    def all(self) -> list[Tool]:
        """All tools of the project by name."""
        return self._list(None)

    def names(self) -> set[str]:
        """The names of all tools of the project; none where the database has no table for tools."""
        return {tool.tool_name for tool in self.all()} if _TABLE in self.database.tables else set()

    def get_many(self, tool_names: Iterable[str]) -> list[Tool]:
        """Those tools of these names that there are, by name."""
        return self._list(list(tool_names))

    def _list(self, names: list[str] | None) -> list[Tool]:
        self.database.require(_TABLE)
        return self._all(Tool, "list_tools", names=names)


def _with_what_others_keep(tool: Tool, stored: Tool) -> Tool:
    theirs = {name: value for name, value in stored.options.items() if name not in _OWN_OPTIONS}
    subject = tool.target_subject or stored.target_subject
    return msgspec.structs.replace(tool, target_subject=subject, options={**theirs, **tool.options})


def _written(tool: Tool) -> dict[str, Any]:
    values = msgspec.structs.asdict(tool)
    return {**values, "parameters": jsonb(tool.parameters), "options": jsonb(tool.options)}
