"""Internal handlers: functions that a model calls as tools, and that the worker itself answers.

Owns the record of a handler, and finding one by its name: those of cbx, then those of installed packages, by
entry point. They are loaded when a profile names them, and imported by name: execution knows none of them.
What they do is `orchestration/handlers`'s.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cardbox_cli.errors import CbxError, HandlerFailed, InvalidInput, NotFound
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.content import FieldSchema
from cardbox_cli.model.handwritten.wording import did_you_mean
from cardbox_cli.model.identity import INTERNAL_TOOLS, HandlerTool, check_tool_name
from cardbox_cli.settings import TOOL_WAIT

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime

GROUP = "cardbox_cli.handlers"
"""The group of entry points by which packages add handlers, each under its handler's name."""

_OWN = "cardbox_cli.orchestration.handlers"


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


Function: TypeAlias = "Callable[[Runtime, Caller, dict[str, Any]], Any]"
Fitting: TypeAlias = Callable[[Sequence[FieldSchema]], dict[str, Any]]


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A function that models may call by `name`. `parameters` is the JSON Schema of its arguments, `fitted`
    that for a turn which is asked for these result fields, where it depends on them.

    `function` gets the arguments as the model wrote them, in a transaction of the worker's that ends with the
    call's result being stored: it answers a JSON value, or Awaiting where the calling turn shall wait. What
    it raises is the call's failure, and nothing of what it wrote stays. It keeps nothing between calls, the
    next of which may reach another process, and it is quick: the turn's agent is held meanwhile.
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


def answer_by(handler: Handler, runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    """What a handler answers: a JSON value that can be stored, Awaiting, or Ending where it ends its turn.

    Raises what it raises of cbx's errors, and HandlerFailed for anything else, and for other answers.
    """
    try:
        answer = handler.function(runtime, caller, arguments)
        if runtime.database.spoiled:
            raise ValueError("a statement of its failed in the database, and it did not say so")
        _check_answer(handler, answer)
    except (CbxError, KeyboardInterrupt):
        raise
    except BaseException as exc:  # a package may call sys.exit(), too
        raise HandlerFailed(
            f"the handler {handler.name!r} failed: {type(exc).__name__}: {_said_by(exc)}",
            hint="mend or uninstall the package that brings it",
        ) from exc
    return answer


def _check_answer(handler: Handler, answer: Any) -> None:
    """Raise ValueError unless this handler may answer so."""
    if isinstance(answer, Ending) != handler.ends_turn:
        declared = "is declared to end its turn" if handler.ends_turn else "is not declared to end its turn"
        raise ValueError(f"it answers {type(answer).__name__}, and {declared}")
    if isinstance(answer, Awaiting):
        return
    parts = {"result": answer}
    if isinstance(answer, Ending):
        parts = {"result": answer.result, "deliverable": answer.deliverable}
        if not isinstance(answer.deliverable, dict | list):
            raise ValueError(f"the deliverable is a {type(answer.deliverable).__name__}, no object or list")
    for name, part in parts.items():
        exact_json.check_storable(part, f"the {name}")
        if len(exact_json.encode(part)) > RESULT_SIZE.value << 20:
            raise ValueError(f"the {name} is larger than {RESULT_SIZE}")


def _said_by(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:
        return "it cannot be told"


def handler_tools(names: Iterable[str], asked: Sequence[FieldSchema] = ()) -> list[HandlerTool]:
    """Those handlers of these names that can be had, as the model of a turn sees them that is asked for these
    result fields; others are not offered."""
    tools = []
    for name in names:
        try:
            tools.append(find_handler(name).tool(asked))
        except Exception:  # a package's `fitted` may fail in any way
            continue
    return tools


@cache
def find_handler(name: str) -> Handler:
    """The handler of this name. Raises NotFound, and InvalidInput for one whose package is broken."""
    own = own_handlers()
    if name in own:
        return own[name]
    points = installed()
    if name not in points:
        known = sorted({*own, *points})
        hint = f"there are {', '.join(known)}"
        raise NotFound(f"no handler {name!r}{did_you_mean(name, known)}", hint=hint)
    try:
        return _checked(name, points[name].load())
    except (Exception, SystemExit) as exc:
        raise InvalidInput(
            f"the handler {name!r} of {points[name].value!r} cannot be used: {_said_by(exc)}",
            hint="mend or uninstall the package that brings it",
        ) from exc


@cache
def installed() -> Mapping[str, EntryPoint]:
    """The entry points of packages that add handlers, by name, as they were when first asked for."""
    return {point.name: point for point in entry_points(group=GROUP)}


def handler_names() -> list[str]:
    """The names of all handlers that are installed, sorted."""
    return sorted({*own_handlers(), *installed()})


def unknown_handlers(names: Iterable[str]) -> list[str]:
    """What to say of the names of handlers that are kept in a profile, though none of that name is there."""
    wanted = [name for name in names if name not in INTERNAL_TOOLS]
    known = handler_names() if wanted else []
    unknown = [name for name in wanted if name not in known]
    return [f"no handler {name!r} is installed here{did_you_mean(name, known)}" for name in unknown]


@cache
def own_handlers() -> Mapping[str, Handler]:
    """The handlers of cbx by name."""
    return {each.name: each for each in importlib.import_module(_OWN).HANDLERS}


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
