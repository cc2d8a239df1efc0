"""Internal handlers: functions that a model calls as tools and that the worker itself runs.

cbx finds a handler by name. It searches the handlers that `load` returns, then the entry points of installed
packages. It imports a package's handler only when a profile names it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.content import FieldSchema
from cardbox_cli.model.identity import INTERNAL_TOOLS, HandlerTool, check_tool_name
from cardbox_cli.settings import TOOL_WAIT
from cardbox_cli.text.error_messages import did_you_mean, unknown_message

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "cardbox_cli.handlers"
"""The entry point group of handlers. The name of an entry point is the name of its handler."""


class Awaiting(msgspec.Struct, frozen=True):
    """The value that a handler returns if a report will answer the call later, within `seconds`.

    Raises ValueError for an invalid number of seconds.
    """

    seconds: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not (is_number and 0 <= self.seconds <= TOOL_WAIT.upper):
            limit = f"{TOOL_WAIT.upper:,.0f}"
            raise ValueError(f"the seconds of Awaiting are a number from 0 to {limit}, not {self.seconds!r}")


class Ending(msgspec.Struct, frozen=True):
    """The value that a handler returns to end the turn: the call's result and the turn's deliverable."""

    result: Any
    deliverable: dict[str, Any] | list[Any]


# A function of a `Runtime`, a `Caller` and the arguments. This module cannot import those two classes.
Function: TypeAlias = Callable[[Any, Any, dict[str, Any]], Any]
Fitting: TypeAlias = Callable[[Sequence[FieldSchema]], dict[str, Any]]


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A function that models may call by `name`. `parameters` is the JSON Schema of its arguments.

    If the schema depends on the result fields of a turn, `fitted` returns the schema for these fields.
    `function` gets the project's `Runtime`, the `Caller`, and the arguments as the model wrote them. It
    returns a JSON value, or Awaiting if the calling turn must wait. The worker calls it in the transaction
    that stores the result. If it raises, the call fails and all its writes are rolled back. It must have no
    state, because the next call may run in another process. It must be quick, because the agent's head is
    locked. A handler with `ends_turn` returns Ending. If the model calls it together with other tools, all
    calls of that answer fail.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Function
    fitted: Fitting | None = None
    ends_turn: bool = False

    def tool(self, asked: Sequence[FieldSchema] = ()) -> HandlerTool:
        """Return the handler as a tool for a turn with these result fields."""
        return HandlerTool(
            tool_name=self.name,
            description=self.description,
            parameters=_sort_keys(self.parameters if self.fitted is None else self.fitted(asked)),
            target_subject=None,
            after_execution="terminate" if self.ends_turn else None,
            options={},
        )


class Handlers:
    """The available handlers: the handlers that `load` returns, then the handlers of installed packages.

    If two have the same name, the one from `load` is used. The first lookup calls `load`.
    """

    def __init__(self, load: Callable[[], Iterable[Handler]] = tuple) -> None:
        self._load = load
        self._package_handlers: dict[str, Handler] = {}

    @cached_property
    def passed_in(self) -> Mapping[str, Handler]:
        return {each.name: each for each in self._load()}

    @cached_property
    def installed(self) -> Mapping[str, "EntryPoint"]:
        """The entry points of packages that add handlers, by name, as of the first access."""
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}

    @property
    def names(self) -> list[str]:
        return sorted({*self.passed_in, *self.installed})

    def find(self, name: str) -> Handler:
        """Return the handler of this name. Raises NotFound, or InvalidInput if its package is broken."""
        if name in self.passed_in:
            return self.passed_in[name]
        if name not in self.installed:
            hint = f"handlers are {', '.join(self.names)}"
            raise NotFound(unknown_message("handler", name, self.names), hint=hint)
        if name not in self._package_handlers:
            self._package_handlers[name] = _load_handler(name, self.installed[name])
        return self._package_handlers[name]

    def tools(self, names: Iterable[str], asked: Sequence[FieldSchema] = ()) -> list[HandlerTool]:
        """Return the named handlers as tools of a turn that must deliver the result fields `asked`.

        Handlers that cannot be used are omitted.
        """
        tools = []
        for name in names:
            try:
                tools.append(self.find(name).tool(asked))
            except Exception:  # `fitted` of another package may raise anything
                continue
        return tools

    def warnings(self, names: Iterable[str]) -> list[str]:
        """Return a warning for each of these names that no installed handler has."""
        others = [name for name in names if name not in INTERNAL_TOOLS]
        known = self.names if others else []
        unknown = [name for name in others if name not in known]
        return [f"no handler {name!r} is installed here{did_you_mean(name, known)}" for name in unknown]


def _load_handler(name: str, point: "EntryPoint") -> Handler:
    try:
        return _check_handler(name, point.load())
    except (Exception, SystemExit) as exc:
        raise InvalidInput(
            f"the handler {name!r} of {point.value!r} cannot be used: {exception_text(exc)}",
            hint="fix or uninstall the package that provides this handler",
        ) from exc


def exception_text(exc: BaseException) -> str:
    """Return the message of an exception of another package, even if its `__str__` raises."""
    try:
        return str(exc)
    except Exception:
        return "its message cannot be read"


def _check_handler(name: str, handler: object) -> Handler:
    """Return the object if it is a valid handler. Raises ValueError or InvalidInput if it is not."""
    if not isinstance(handler, Handler):
        raise ValueError(f"it is not a Handler but a {type(handler).__name__}")
    if handler.name != name:
        raise ValueError(f"its name is {handler.name!r}")
    if not isinstance(handler.parameters, dict) or handler.parameters.get("type") != "object":
        raise ValueError("its parameters are not a JSON Schema of type object")
    if not callable(handler.function):
        raise ValueError(f"its function is not callable but a {type(handler.function).__name__}")
    exact_json.check_storable([handler.description, handler.parameters], "its description and parameters")
    if name not in INTERNAL_TOOLS:
        check_tool_name(name)
    return handler


def _sort_keys(schema: Any) -> Any:
    """Return the schema with its keys in jsonb's order, so that the stored request equals the sent one."""
    if isinstance(schema, dict):
        keys = sorted(schema, key=lambda key: (len(key.encode()), key.encode()))
        return {key: _sort_keys(schema[key]) for key in keys}
    if isinstance(schema, list):
        return [_sort_keys(item) for item in schema]
    return schema
