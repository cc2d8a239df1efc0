"""Internal handlers: functions that a model calls as tools, and that the worker itself answers.

Owns the record of a handler, and finding one by its name: first those that are passed in, then those of
installed packages, by entry point. They are loaded when a profile names them.
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
from cardbox_cli.text import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "cardbox_cli.handlers"
"""The group of entry points by which packages add handlers, each under its handler's name."""


class Awaiting(msgspec.Struct, frozen=True):
    """What a handler answers whose call is answered later, by a report: after so many seconds at most.

    Raises ValueError for what is no time that a turn may wait.
    """

    seconds: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not (is_number and 0 <= self.seconds <= TOOL_WAIT.upper):
            most = f"{TOOL_WAIT.upper:,.0f}"
            raise ValueError(f"the seconds of Awaiting are a number from 0 to {most}, not {self.seconds!r}")


class Ending(msgspec.Struct, frozen=True):
    """What a handler answers whose call ends the turn: the result of the call, and the turn's deliverable."""

    result: Any
    deliverable: dict[str, Any] | list[Any]


# Called with a `Runtime`, a `Caller` and the arguments. Those classes are above this module.
Function: TypeAlias = Callable[[Any, Any, dict[str, Any]], Any]
Fitting: TypeAlias = Callable[[Sequence[FieldSchema]], dict[str, Any]]


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A function that models may call by `name`. `parameters` is the JSON Schema of its arguments, `fitted`
    that for a turn which is asked for these result fields, where it depends on them.

    `function` gets the `Runtime` of the project, the `Caller` and the arguments as the model wrote them, in a
    transaction of the worker's that ends with the call's result being stored. It answers a JSON value, or
    Awaiting if the calling turn must wait. What it raises is the call's failure, and nothing of what it wrote
    stays. It keeps nothing between calls, the next of which may reach another process, and it is quick: the
    turn's agent is held meanwhile.
    `ends_turn`: it answers Ending, and is called alone; beside it, no call of an answer is made.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Function
    fitted: Fitting | None = None
    ends_turn: bool = False

    def tool(self, asked: Sequence[FieldSchema] = ()) -> HandlerTool:
        """The handler as the model of a turn sees it that is asked for these result fields."""
        return HandlerTool(
            tool_name=self.name,
            description=self.description,
            parameters=_as_stored(self.parameters if self.fitted is None else self.fitted(asked)),
            target_subject=None,
            after_execution="terminate" if self.ends_turn else None,
            options={},
        )


class Handlers:
    """The handlers that can be called: those that `load` returns, then those of installed packages.

    `load` is called, and packages are searched, when a name is first asked for.
    """

    def __init__(self, load: Callable[[], Iterable[Handler]] = tuple) -> None:
        self._load = load
        self._of_packages: dict[str, Handler] = {}

    @cached_property
    def own(self) -> Mapping[str, Handler]:
        """The handlers that were passed in, by name."""
        return {each.name: each for each in self._load()}

    @cached_property
    def installed(self) -> Mapping[str, "EntryPoint"]:
        """The entry points of packages that add handlers, by name, as they were when first asked for."""
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=GROUP)}

    @property
    def names(self) -> list[str]:
        """The names of all handlers, sorted."""
        return sorted({*self.own, *self.installed})

    def find(self, name: str) -> Handler:
        """The handler of this name. Raises NotFound, and InvalidInput for one whose package is broken."""
        if name in self.own:
            return self.own[name]
        if name not in self.installed:
            known = self.names
            hint = f"there are {', '.join(known)}"
            raise NotFound(f"no handler {name!r}{did_you_mean(name, known)}", hint=hint)
        if name not in self._of_packages:
            self._of_packages[name] = _loaded(name, self.installed[name])
        return self._of_packages[name]

    def tools(self, names: Iterable[str], asked: Sequence[FieldSchema] = ()) -> list[HandlerTool]:
        """The handlers of these names as tools of a turn that must return the fields `asked`.

        Leaves out those that cannot be used.
        """
        tools = []
        for name in names:
            try:
                tools.append(self.find(name).tool(asked))
            except Exception:  # a package's `fitted` may fail in any way
                continue
        return tools

    def warnings(self, names: Iterable[str]) -> list[str]:
        """A warning for each of these names that a profile may have, though no handler has it."""
        wanted = [name for name in names if name not in INTERNAL_TOOLS]
        known = self.names if wanted else []
        unknown = [name for name in wanted if name not in known]
        return [f"no handler {name!r} is installed here{did_you_mean(name, known)}" for name in unknown]


def _loaded(name: str, point: "EntryPoint") -> Handler:
    try:
        return _checked(name, point.load())
    except (Exception, SystemExit) as exc:
        raise InvalidInput(
            f"the handler {name!r} of {point.value!r} cannot be used: {text_of(exc)}",
            hint="mend or uninstall the package that brings it",
        ) from exc


def text_of(exc: BaseException) -> str:
    """The text of an error of a package, whose `__str__` may fail, too."""
    try:
        return str(exc)
    except Exception:
        return "it cannot be told"


def _checked(name: str, found: object) -> Handler:
    """What an entry point leads to. Raises ValueError, or InvalidInput, unless it is that handler."""
    if not isinstance(found, Handler):
        raise ValueError(f"it is a {type(found).__name__}, no Handler")
    if found.name != name:
        raise ValueError(f"it calls itself {found.name!r}")
    if not isinstance(found.parameters, dict) or found.parameters.get("type") != "object":
        raise ValueError("its parameters are no JSON Schema of type object")
    if not callable(found.function):
        raise ValueError(f"its function is a {type(found.function).__name__}")
    exact_json.check_storable([found.description, found.parameters], "its description and parameters")
    if name not in INTERNAL_TOOLS:
        check_tool_name(name)
    return found


def _as_stored(schema: Any) -> Any:
    """The schema with its keys in the order of jsonb: what is stored of a request is what was sent."""
    if isinstance(schema, dict):
        keys = sorted(schema, key=lambda key: (len(key.encode()), key.encode()))
        return {key: _as_stored(schema[key]) for key in keys}
    if isinstance(schema, list):
        return [_as_stored(item) for item in schema]
    return schema
