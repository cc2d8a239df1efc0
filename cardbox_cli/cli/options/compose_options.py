"""Options for composing a request: model, layers, query, layout, and how many tokens it may have."""

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
    Asked,
    Layout,
    ProcessName,
    check_layer,
)
from cardbox_cli.text import format_count, format_tokens

if TYPE_CHECKING:
    from cardbox_cli.context.repair.fit import Fitted, Strategy


Model = Annotated[str | None, Option(metavar="MODEL", help="The model. Default: the profile's.")]
Layers = Annotated[
    list[str] | None,
    Option(
        "--layer",
        metavar="NAME[=TEXT|=@FILE]",
        help="A layer with this text in place of what would be collected; the name alone takes it in even "
        "where layers are not shared. Names end in __context. Repeat for several.",
    ),
]
Experience = Annotated[
    bool, Option("--experience", help="Add what earlier turns with the same profile delivered.")
]
KnowledgeQuery = Annotated[
    str | None, Option(metavar="TEXT", help="Add what a search of the project's cards finds.")
]
Query = Annotated[
    str | None, Option(metavar="TEXT|@FILE", help="What the user asks last, after the history.")
]
ProcessKind = Annotated[
    str | None,
    Option(
        "--process",
        click_type=OneOf(lambda: PROCESS_NAMES, what="kind"),
        help="Default: the profile's, or react.",
    ),
]
Share = Annotated[
    bool | None,
    Option(
        "--share/--no-share",
        help="Whether layers besides the framework's are taken in. Default: the project's setting, or the "
        "kind of process.",
    ),
]
LayoutName = Annotated[
    str | None,
    Option(
        "--layout",
        click_type=OneOf(lambda: LAYOUTS, what="layout"),
        help="cache puts experience, knowledge and todo behind the history. Default: the profile's.",
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
    """The compose options that they come to. `is_composed` False: perhaps for a request that was sent before.

    Raises UsageError, and InvalidInput for a name that is no layer's.
    """
    chosen = ComposeOptions(
        model=None if model is None else _not_blank(model, "--model"),
        process=cast("ProcessName | None", process),
        share=share,
        layout=cast("Layout | None", layout),
        asked=_asked(layers or [], experience=experience, knowledge_query=knowledge_query),
        query=None if query is None else _not_blank(text_or_file(query), "--query"),
    )
    if is_composed:
        from cardbox_cli.inspect.requests import check_words

        check_words(chosen)
    return chosen


def _asked(layers: Sequence[str], *, experience: bool, knowledge_query: str | None) -> Asked:
    texts: dict[str, str] = {}
    to_collect = {EXPERIENCE} if experience else set()
    for option in layers:
        name, is_text, text = option.partition("=")
        check_layer(name)
        if name in texts or (name in to_collect and is_text):
            raise UsageError(f"--layer: {name!r} is given twice", hint="give each layer one text")
        if is_text:
            texts[name] = text_or_file(text)
        else:
            to_collect.add(name)
    words = None if knowledge_query is None else _not_blank(knowledge_query, "--knowledge-query")
    if KNOWLEDGE in texts and words is not None:
        raise UsageError(f"--knowledge-query and --layer {KNOWLEDGE}=… exclude each other", hint="name one")
    return Asked(texts=texts, to_collect=frozenset(to_collect), knowledge=words)


def _not_blank(text: str, option: str) -> str:
    if not text.strip():
        raise UsageError(f"{option} is blank", hint="is the shell variable set? leave it out for none")
    return text


# --- within a number of tokens, and what that leaves out

MaxTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        max=MAX_COUNT,
        help="Leave out history until the request has at most so many tokens: calls with their results, "
        "never system text or what is asked.",
    ),
]
FitStrategy = Annotated[
    str | None,
    Option(
        "--fit",
        click_type=STRATEGY,
        help="With --max-tokens, what goes first: the oldest messages (default), or of results the largest, "
        "or those that are said again, for which a note stands.",
    ),
]

# How many of the cards that go are named.
_NAMED = 3


class TokenBudget(NamedTuple):
    """How many tokens a request may have, and what goes first."""

    most: int
    strategy: "Strategy"


def token_budget(max_tokens: int | None, fit: str | None) -> TokenBudget | None:
    """What the options say; None without them. Raises UsageError for --fit alone."""
    if max_tokens is None and fit is not None:
        raise UsageError("--fit is for --max-tokens", hint="add --max-tokens N, or leave --fit out")
    return None if max_tokens is None else TokenBudget(max_tokens, cast("Strategy", fit or "oldest"))


def fit_notes(fitted: "Fitted") -> list[str]:
    """What went, and what that saved; nothing where all fits."""
    if not fitted.changes:
        return []
    gone = [change.card_id for change in fitted.changes if change.kind == "dropped"]
    noted = [change.card_id for change in fitted.changes if change.kind == "rewritten"]
    went = [
        f"{format_count(len(ids), 'card')} {what} ({_some(ids)})"
        for ids, what in ((gone, "left out"), (noted, "became a note" if len(noted) == 1 else "became notes"))
        if ids
    ]
    before, after = (format_tokens(each, exact=fitted.exact) for each in (fitted.before, fitted.after))
    return [f"{after} tokens instead of {before}: {', '.join(went)}"]


def _some(ids: list[str]) -> str:
    more = [f"and {len(ids) - _NAMED} more"] if len(ids) > _NAMED else []
    return ", ".join([*map(short_id, ids[:_NAMED]), *more])
