"""The commands that mend what a finding names. None changes a card or a box."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from cardbox_cli.text import argument, quoted

# The strategies of `cbx render --fit`.
GoesFirst = Literal["oldest", "largest-results", "duplicates"]


class Mend(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a box, a turn or a tool: `without` these cards, `without-results` where their calls go
    and what is said with these stays, `fit` it or a turn's next request into `tokens` by what goes `first`,
    `compress` it but for its last messages, which to `keep`, `compare` two steps of a turn or of a chat,
    begin a chat's context `afresh`, or look at a `profile`, to be edited and imported again."""

    how: Literal[
        "without",
        "without-results",
        "fit",
        "fit-turn",
        "compress",
        "compare",
        "compare-chat",
        "afresh",
        "profile",
    ]
    name: str
    card_ids: Sequence[str] = ()
    tokens: int = 0
    keep: int = 0
    first: GoesFirst = "oldest"
    steps: tuple[str, str] = ("", "")

    def line(self, *options: str) -> str:
        """The line to be copied; `options` stand in each command of cbx."""
        return " ".join(_LINES[self.how](self, " ".join(map(quoted, options))).split())


def _without(mend: Mend, options: str) -> str:
    unwanted = " ".join(f"-e {quoted(card_id)}" for card_id in mend.card_ids)
    box = quoted(mend.name)
    ids = f"cbx box show {box} -o csv --columns full-id --no-header {options}"
    return f"{ids} | grep -vxF {unwanted} | cbx box edit {box} --file - {options}"


def _without_results(mend: Mend, options: str) -> str:
    return f"{_without(mend, options)} -o id | xargs cbx box repair --drop-orphans -o id {options}"


def _fit(mend: Mend, options: str) -> str:
    return f"cbx render --box {quoted(mend.name)} {_fitted(mend)} {options}"


def _fit_turn(mend: Mend, options: str) -> str:
    return f"cbx render --turn {quoted(mend.name)} --at next {_fitted(mend)} {options}"


def _fitted(mend: Mend) -> str:
    return f"--max-tokens {mend.tokens} --fit {mend.first}"


def _compress(mend: Mend, options: str) -> str:
    return f"cbx box compress {quoted(mend.name)} --keep {mend.keep} --summary @summary.md {options}"


def _compare(mend: Mend, options: str) -> str:
    a, b = map(quoted, mend.steps)
    return f"cbx render --turn {quoted(mend.name)} --diff {a} {b} {options}"


def _compare_chat(mend: Mend, options: str) -> str:
    a, b = map(quoted, mend.steps)
    # A key may begin as an option does.
    return f"cbx render --chat={quoted(mend.name)} --diff {a} {b} {options}"


def _afresh(mend: Mend, options: str) -> str:
    return f"cbx chat new {options} {argument(mend.name)}"


def _profile(mend: Mend, options: str) -> str:
    return f"cbx profile show {quoted(mend.name)} -o yaml {options}"


_LINES = {
    "without": _without,
    "without-results": _without_results,
    "fit": _fit,
    "fit-turn": _fit_turn,
    "compress": _compress,
    "compare": _compare,
    "compare-chat": _compare_chat,
    "afresh": _afresh,
    "profile": _profile,
}
