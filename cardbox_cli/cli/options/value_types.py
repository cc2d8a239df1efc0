"""The types of values on a command line: their metavars, their valid values and their completion.

An option of such a type needs no metavar. Only completion reads the database, in a read-only transaction.
"""

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from cardbox_cli.cli.common_options import WORDS
from cardbox_cli.cli.session import Session
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import SETTINGS

# The completion type of files in the scripts of `cbx completion`.
FILES = "file"
# The longest duration, about thirty years.
MAX_SECONDS = 1e9
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Pairs = Iterable[tuple[str, str]]


class CompletedType(click.ParamType[str]):
    """A string with completion. `name` is its metavar, and `offer` returns values with descriptions."""

    def __init__(
        self, name: str, offer: Callable[[Session, str], Pairs] = lambda *_: (), *, files: bool = False
    ) -> None:
        self.name = name
        self._offer = offer
        self.takes_files = files

    def matches(self, ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
        """Return the values that begin with `incomplete`. typer's `autocompletion` calls this, too."""
        pairs = self._offer(ctx.find_root().obj, incomplete)
        return [(value, text) for value, text in pairs if value.startswith(incomplete)]

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the values that begin with `incomplete`, and files if the value can be one."""
        items = [CompletionItem(value, help=text) for value, text in self.matches(ctx, incomplete)]
        return [*items, CompletionItem("", type=FILES)] if self.takes_files else items


class OneOf(CompletedType):
    """One of several values. `what` is the noun for a value in errors, or None if other values are valid."""

    def __init__(self, words: Callable[[], Iterable[str]], *, what: str | None) -> None:
        super().__init__("WORD", lambda *_: ((word, "") for word in words()))
        self._words = words
        self._what = what

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(self._words())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        known = tuple(self._words())
        if self._what is not None and value not in known:
            from cardbox_cli.text.error_messages import unknown_message

            option = _typed_name(param, ctx) if param else ""
            raise UsageError(
                f"{option}: {unknown_message(self._what, str(value), known)}",
                hint=f"{_plural(self._what)} are {', '.join(known)}",
            )
        return value


def _typed_name(param: click.Parameter, ctx: click.Context | None) -> str:
    """Return the name of a parameter. An option has the name that was typed."""
    words = ctx.meta.get(WORDS, ()) if ctx is not None and isinstance(param, click.Option) else ()
    typed = [
        name
        for word in words
        for name in param.opts
        if word.partition("=")[0] == name or (len(name) == 2 and word.startswith(name))
    ]
    return typed[-1] if typed else param.opts[0]


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeou" else f"{noun}s"


class Seconds(click.FloatRange):
    """A duration: a number of seconds, or a number with a unit, for example 90s, 5m or 2h."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (unit := value[-1:]) in _UNIT_SECONDS:
            if not value[:-1].replace(".", "", 1).isdecimal():
                self.fail("a duration is a number of seconds, or for example 90s, 5m or 2h.", param, ctx)
            value = float(value[:-1]) * _UNIT_SECONDS[unit]
        seconds = super().convert(value, param, ctx)
        if not seconds <= MAX_SECONDS:
            self.fail(f"{seconds} is not a duration of at most {MAX_SECONDS:,.0f} seconds.", param, ctx)
        return seconds


def _complete_query(
    query: str, *, short: bool = False, narrowed: bool = False
) -> Callable[[Session, str], Pairs]:
    """Return the completion of a query of `store.views.completion`.

    `short` offers short ids, unless a full id is typed. `narrowed` passes the typed text to the query.
    """

    def offer(session: Session, given: str) -> Pairs:
        from cardbox_cli.cli.project_database import database_target
        from cardbox_cli.model.ids import short_id
        from cardbox_cli.store.views import completion

        with session.process.completion_database(database_target(session)) as database:
            pairs: Pairs = getattr(completion, query)(
                database, session.project_id, *([given] if narrowed else [])
            )
        if not short:
            return pairs
        ids = ((full, short_id(full), text) for full, text in pairs)
        return ((brief if brief.startswith(given) else full, text) for full, brief, text in ids)

    return offer


_boxes, _turns = _complete_query("recent_boxes", short=True), _complete_query("recent_turns", short=True)
_agents, _profiles = _complete_query("agent_ids", narrowed=True), _complete_query("profile_names")


def _handlers(*_: object) -> Pairs:
    from cardbox_cli.orchestration.handler_registry import HANDLERS

    return ((name, "") for name in HANDLERS.names)


def _card_types(*_: object) -> Pairs:
    from cardbox_cli.model.card_types import CARD_TYPES

    return ((name, "") for name in CARD_TYPES)


def _recipes(*_: object) -> Pairs:
    from cardbox_cli.packing.recipe_files import recipe_files, recipe_folders

    return ((name, str(path)) for name, path in recipe_files(recipe_folders()).items())


def _request_formats() -> Iterable[str]:
    from cardbox_cli.providers.formats import format_names

    return format_names()


def _providers() -> Iterable[str]:
    from cardbox_cli.providers.registry import PROVIDERS

    return PROVIDERS


def _strategies() -> Iterable[str]:
    from cardbox_cli.context.repair.fit import STRATEGIES

    return STRATEGIES


def _execution_pairs() -> Iterable[str]:
    from cardbox_cli.model.identity import AFTER_EXECUTION

    return AFTER_EXECUTION


AFTER = OneOf(_execution_pairs, what="value")
AGENT = CompletedType("AGENT", _agents)
BATCH = CompletedType("BATCH", _complete_query("recent_batches", short=True))
BOX = CompletedType("BOX", _boxes)
BOX_OR_TURN = CompletedType("BOX", lambda session, given: [*_boxes(session, given), *_turns(session, given)])
CHAT = CompletedType("KEY", _complete_query("chat_keys", narrowed=True))
CARD = CompletedType("CARD", _complete_query("recent_cards", short=True))
CARD_TYPE = CompletedType("TYPE", _card_types)
FILE = CompletedType("FILE", files=True)
FOLDER = CompletedType("DIR", files=True)
HANDLER = CompletedType("HANDLER", _handlers)
INBOX_ROW = CompletedType("INBOX", _complete_query("recent_inbox", short=True))
PROFILE = CompletedType("PROFILE", _profiles)
PROJECT = CompletedType("ID", _complete_query("project_ids"))
PROVIDER = OneOf(_providers, what="provider")
RECIPE = CompletedType("FILE|NAME", _recipes, files=True)
REQUEST_FORMAT = OneOf(_request_formats, what="format")
HTML = "html"
RENDERED_FORMAT = OneOf(lambda: [*_request_formats(), HTML], what="format")
SETTING = CompletedType("NAME", lambda *_: ((setting.name, setting.help) for setting in SETTINGS))
STEP = CompletedType("STEP", lambda *_: [("next", "the step that has not begun")])
TARGET = CompletedType(
    "PROFILE|AGENT", lambda session, given: [*_profiles(session, given), *_agents(session, given)]
)
STRATEGY = OneOf(_strategies, what="strategy")
TOOL = CompletedType("TOOL", _complete_query("tool_names"))
TURN = CompletedType("TURN", _turns)
