"""From locks to the session at the root of each: one that waits for another is never the culprit. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from cardbox_cli.model.execution.situations import Held, Lock, Session

# What only reading survives: it conflicts with every other lock.
_BARS_READING = "AccessExclusiveLock"
_COMMENT = re.compile(r"\s+|--[^\n]*(?:\n|$)|/\*.*?\*/|\(", re.DOTALL)
_WORD = re.compile(r"[^\W\d][\w.$]*")
_WORDS = 3


def rooted(held: Sequence[Held], sessions: Mapping[int, Session]) -> tuple[Lock, ...]:
    """The locks in the way, each with the session at its root. Each root is named once for a table or row."""
    found = dict[tuple[str, str | None, int], Lock]()
    for lock in held:
        holder = sessions.get(lock.pid) or _unseen(lock.pid)
        for chain in _chains(holder, sessions):
            made = _lock(lock, chain, sessions)
            found.setdefault((made.table, made.row, made.session.pid), made)
    return tuple(found.values())


def bars_reading(lock: Held) -> bool:
    """Whether nobody can read the table of this lock, be it held or wanted."""
    return lock.row is None and lock.mode == _BARS_READING


def command(query: str | None) -> str | None:
    """The first words of a statement, which hold no value that somebody wrote; None where there are none."""
    words = list[str]()
    place = 0
    text = query or ""
    while len(words) < _WORDS:
        while skipped := _COMMENT.match(text, place):
            place = skipped.end()
        word = _WORD.match(text, place)
        if word is None or text[word.end() : word.end() + 1] in ("'", "&"):
            break
        words.append(word[0])
        place = word.end()
    return " ".join(words) or None


def _unseen(pid: int) -> Session:
    return Session(pid, None, None, None, None, None, [], None, None)


def _chains(holder: Session, sessions: Mapping[int, Session]) -> Iterator[tuple[Session, ...]]:
    """From a session to each one that it waits for at last, by the shortest way."""
    ways: list[tuple[Session, ...]] = [(holder,)]
    seen = {holder.pid}
    for way in ways:
        if not way[-1].blocked_by:
            yield way
        for pid in way[-1].blocked_by:
            if pid not in seen:
                seen.add(pid)
                ways.append((*way, sessions.get(pid) or _unseen(pid)))


def _lock(lock: Held, chain: tuple[Session, ...], sessions: Mapping[int, Session]) -> Lock:
    root = chain[-1]
    last = chain[-2] if len(chain) > 1 else None
    # What the last of those who wait wants of the root, which may be another table than was asked about.
    table = (last.waits_for if last is not None else None) or lock.table
    return Lock(
        table=table,
        row=lock.row if table == lock.table else "a row",
        mode=lock.mode,
        session=root,
        seconds=_in_the_way(lock, chain, sessions),
        blocked=sum(root.pid in _roots(each, sessions) for each in sessions.values()),
        waiting=last,
        bars_reading=bars_reading(lock),
    )


def _in_the_way(lock: Held, chain: tuple[Session, ...], sessions: Mapping[int, Session]) -> float:
    """For how long: no longer than the youngest of the chain's transactions and waits."""
    ages = [chain[-1].seconds]
    if len(chain) > 1:
        ages.append(chain[0].seconds if lock.granted else chain[0].waited)
    known = [age for age in ages if age is not None]
    waits = [each.waited for each in sessions.values() if chain[-1].pid in each.blocked_by]
    return min(known, default=max((wait for wait in waits if wait is not None), default=0))


def _roots(session: Session, sessions: Mapping[int, Session]) -> set[int]:
    if not session.blocked_by:
        return set()
    return {chain[-1].pid for chain in _chains(session, sessions)}
