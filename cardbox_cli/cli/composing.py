"""The options that say how a request is composed, and the wishes that they come to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cardbox_cli.cli.inputs import check_choice, read_text
from cardbox_cli.errors import UsageError
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

if TYPE_CHECKING:
    from cardbox_cli.context.request import Wishes

Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="NAME[=TEXT|=@FILE]",
        help="A layer with this text in place of what would be collected; the name alone takes it in even "
        "where layers are not shared. Names end in __context. Repeat for several.",
    ),
]
Experience = Annotated[
    bool, typer.Option("--experience", help="Add what earlier turns with the same profile delivered.")
]
KnowledgeQuery = Annotated[
    str | None,
    typer.Option(metavar="WORDS", help="Add what a search of the project's cards finds."),
]
Query = Annotated[
    str | None, typer.Option(metavar="TEXT|@FILE", help="What the user asks last, after the history.")
]
ProcessKind = Annotated[
    str | None,
    typer.Option("--process", metavar="|".join(PROCESS_NAMES), help="Default: the profile's, or react."),
]
Share = Annotated[
    bool | None,
    typer.Option(
        "--share/--no-share",
        help="Whether layers besides the framework's are taken in. Default: the project's setting, or the "
        "kind of process.",
    ),
]
LayoutName = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="|".join(LAYOUTS),
        help="cache puts experience, knowledge and todo behind the history. Default: the profile's.",
    ),
]


def wishes(
    *,
    model: str | None = None,
    layers: Sequence[str] | None = None,
    experience: bool = False,
    knowledge_query: str | None = None,
    query: str | None = None,
    process: str | None = None,
    share: bool | None = None,
    layout: str | None = None,
) -> "Wishes":
    """The wishes that the options spell.

    Raises UsageError, and InvalidInput for a name that is no layer's.
    """
    from cardbox_cli.context.request import Wishes

    if process is not None:
        check_choice(process, "--process", PROCESS_NAMES, what="kind")
    if layout is not None:
        check_choice(layout, "--layout", LAYOUTS, what="layout")
    return Wishes(
        model=model,
        process=cast("ProcessName | None", process),
        share=share,
        layout=cast("Layout | None", layout),
        asked=_asked(layers or [], experience=experience, knowledge_query=knowledge_query),
        query=None if query is None else _not_blank(_text(query), "--query"),
    )


def _asked(layers: Sequence[str], *, experience: bool, knowledge_query: str | None) -> Asked:
    texts: dict[str, str] = {}
    to_collect = {EXPERIENCE} if experience else set()
    for option in layers:
        name, is_text, text = option.partition("=")
        check_layer(name)
        if name in texts or (name in to_collect and is_text):
            raise UsageError(f"--layer: {name!r} is given twice", hint="give each layer one text")
        if is_text:
            texts[name] = _text(text)
        else:
            to_collect.add(name)
    words = None if knowledge_query is None else _not_blank(knowledge_query, "--knowledge-query")
    if KNOWLEDGE in to_collect and words is None:
        raise UsageError(f"--layer {KNOWLEDGE} needs words to search for", hint="add --knowledge-query WORDS")
    if KNOWLEDGE in texts and words is not None:
        raise UsageError(f"--knowledge-query and --layer {KNOWLEDGE}=… exclude each other", hint="name one")
    return Asked(texts=texts, to_collect=frozenset(to_collect), knowledge=words)


def _text(given: str) -> str:
    return read_text(given[1:]) if given.startswith("@") else given


def _not_blank(text: str, option: str) -> str:
    if not text.strip():
        raise UsageError(f"{option} is blank", hint="is the shell variable set? leave it out for none")
    return text
