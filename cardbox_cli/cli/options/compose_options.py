"""Options for composing a request: model, layers, query, layout and token limit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

from typer import Option

from cardbox_cli.cli.options.input_files import text_or_file
from cardbox_cli.cli.options.shared_options import MAX_COUNT
from cardbox_cli.cli.options.value_types import STRATEGY, OneOf
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.errors import UsageError
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import (
    EXPERIENCE,
    KNOWLEDGE,
    LAYOUTS,
    PROCESS_NAMES,
    LayerRequest,
    Layout,
    ProcessName,
    check_layer,
)
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.quantities import format_count, format_tokens

if TYPE_CHECKING:
    from cardbox_cli.context.repair.fit import FittedRequest, Strategy

_COMPOSE, _FIT = "Compose", "Fit"

Model = Annotated[
    str | None,
    Option(
        metavar="MODEL", rich_help_panel=_COMPOSE, help="The request's model. Default: the profile's model."
    ),
]
Layers = Annotated[
    list[str] | None,
    Option(
        "--layer",
        metavar="NAME[=TEXT|=@FILE]",
        rich_help_panel=_COMPOSE,
        help="Include this layer, even if layers are not shared. TEXT replaces its content. Names end "
        "in __context. Repeatable.",
    ),
]
Experience = Annotated[
    bool,
    Option(
        "--experience",
        rich_help_panel=_COMPOSE,
        help="Add deliverables of earlier turns with the same profile.",
    ),
]
KnowledgeQuery = Annotated[
    str | None, Option(metavar="TEXT", rich_help_panel=_COMPOSE, help="Add the cards that match this search.")
]
Query = Annotated[
    str | None,
    Option(metavar="TEXT|@FILE", rich_help_panel=_COMPOSE, help="Add a user message after the history."),
]
ProcessKind = Annotated[
    str | None,
    Option(
        "--process",
        click_type=OneOf(lambda: PROCESS_NAMES, what="kind"),
        rich_help_panel=_COMPOSE,
        help="The type of process. Default: the profile's type, else react.",
    ),
]
Share = Annotated[
    bool | None,
    Option(
        "--share/--no-share",
        rich_help_panel=_COMPOSE,
        help="Include shared layers, or only the framework layer. Default: the project's setting, else "
        "the default of the process type.",
    ),
]
LayoutName = Annotated[
    str | None,
    Option(
        "--layout",
        click_type=OneOf(lambda: LAYOUTS, what="layout"),
        rich_help_panel=_COMPOSE,
        help="cache moves experience, knowledge and todo after the history. Default: the profile's layout.",
    ),
]


def options(
    *,
    model: str | None = None,
    layers: Sequence[str] | None = None,
    experience: bool = False,
    knowledge_query: str | None = None,
    query: str | None = None,
    process: str | None = None,
    share: bool | None = None,
    layout: str | None = None,
    is_composed: bool = True,
) -> ComposeOptions:
    """Return the compose options. `is_composed` is False if the request may have been sent before.

    Raises UsageError, and InvalidInput for an unknown layer.
    """
    chosen = ComposeOptions(
        model=None if model is None else _require_text(model, "--model"),
        process=cast("ProcessName | None", process),
        share=share,
        layout=cast("Layout | None", layout),
        asked=_requested_layers(layers or [], experience=experience, knowledge_query=knowledge_query),
        query=None if query is None else _require_text(text_or_file(query), "--query"),
    )
    if is_composed:
        from cardbox_cli.inspect.requests import check_words

        check_words(chosen)
    return chosen


def _requested_layers(
    layers: Sequence[str], *, experience: bool, knowledge_query: str | None
) -> LayerRequest:
    texts: dict[str, str] = {}
    to_collect = {EXPERIENCE} if experience else set()
    for option in layers:
        name, is_text, text = option.partition("=")
        check_layer(name)
        if name in texts or (name in to_collect and is_text):
            raise UsageError(f"--layer: {name!r} is given twice", hint="pass each layer once")
        if is_text:
            texts[name] = text_or_file(text)
        else:
            to_collect.add(name)
    search = None if knowledge_query is None else _require_text(knowledge_query, "--knowledge-query")
    if KNOWLEDGE in texts and search is not None:
        raise UsageError(
            conflict_message("--knowledge-query", f"--layer {KNOWLEDGE}=…"), hint="remove one of them"
        )
    return LayerRequest(texts=texts, to_collect=frozenset(to_collect), knowledge=search)


def _require_text(text: str, option: str) -> str:
    if not text.strip():
        raise UsageError(f"{option} is empty", hint="is the shell variable set?")
    return text


# --- the token limit

MaxTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        max=MAX_COUNT,
        rich_help_panel=_FIT,
        help="Leave out history until the request has at most N tokens. System text and the last user "
        "message always stay.",
    ),
]
FitStrategy = Annotated[
    str | None,
    Option(
        "--fit",
        click_type=STRATEGY,
        rich_help_panel=_FIT,
        help="With --max-tokens: drop the oldest messages first (default), or replace the largest or the "
        "duplicate results with a note.",
    ),
]

# The maximum number of dropped cards that a note names.
_MAX_NAMED = 3


class TokenBudget(NamedTuple):
    most: int
    strategy: "Strategy"


def token_budget(max_tokens: int | None, fit: str | None) -> TokenBudget | None:
    """Return the budget of the options, or None without --max-tokens. Raises UsageError for --fit alone."""
    if max_tokens is None and fit is not None:
        raise UsageError("--fit requires --max-tokens", hint="add --max-tokens N, or remove --fit")
    return None if max_tokens is None else TokenBudget(max_tokens, cast("Strategy", fit or "oldest"))


def fit_notes(fitted: "FittedRequest") -> list[str]:
    """Return a note on the dropped cards and the saved tokens, or an empty list if all cards fit."""
    if not fitted.changes:
        return []
    dropped = [change.card_id for change in fitted.changes if change.kind == "dropped"]
    rewritten = [change.card_id for change in fitted.changes if change.kind == "rewritten"]
    became = "became a note" if len(rewritten) == 1 else "became notes"
    changes = ", ".join(
        f"{format_count(len(ids), 'card')} {outcome} ({_first_ids(ids)})"
        for ids, outcome in ((dropped, "left out"), (rewritten, became))
        if ids
    )
    before, after = (format_tokens(each, exact=fitted.exact) for each in (fitted.before, fitted.after))
    return [f"{after} tokens instead of {before}: {changes}"]


def _first_ids(ids: list[str]) -> str:
    more = [f"and {len(ids) - _MAX_NAMED} more"] if len(ids) > _MAX_NAMED else []
    return ", ".join([*map(short_id, ids[:_MAX_NAMED]), *more])
