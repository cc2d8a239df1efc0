"""Traces locks to their root sessions. A root session does not wait for another session. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from cardbox_cli.model.execution.situations import BlockingLock, DatabaseSession, HeldLock

# The mode that conflicts with every other lock, even that of a reader.
_BARS_READING = "AccessExclusiveLock"
_COMMENT = re.compile(r"\s+|--[^\n]*(?:\n|$)|/\*.*?\*/|\(", re.DOTALL)
_WORD = re.compile(r"[^\W\d][\w.$]*")
_MAX_WORDS = 3


def find_root_locks(
    held: Sequence[HeldLock], sessions: Mapping[int, DatabaseSession]
) -> tuple[BlockingLock, ...]:
    """Return the blocking locks with their root sessions. Each root appears once for a table or row."""
    blocking_locks = dict[tuple[str, str | None, int], BlockingLock]()
    for lock in held:
        holder = sessions.get(lock.pid) or _unknown_session(lock.pid)
        for chain in _chains(holder, sessions):
            blocking = _blocking_lock(lock, chain, sessions)
            blocking_locks.setdefault((blocking.table, blocking.row, blocking.session.pid), blocking)
    return tuple(blocking_locks.values())


def bars_reading(lock: HeldLock) -> bool:
    """Return True if this lock, held or waited for, prevents everyone from reading its table."""
    return lock.row is None and lock.mode == _BARS_READING


def first_words(query: str | None) -> str | None:
    """Return the first words of a statement, up to the first literal, or None if there are no words."""
    words = list[str]()
    position = 0
    text = query or ""
    while len(words) < _MAX_WORDS:
        while skipped := _COMMENT.match(text, position):
            position = skipped.end()
        word = _WORD.match(text, position)
        if word is None or text[word.end() : word.end() + 1] in ("'", "&"):
            break
        words.append(word[0])
        position = word.end()
    return " ".join(words) or None


def _unknown_session(pid: int) -> DatabaseSession:
    return DatabaseSession(pid, None, None, None, None, None, [], None, None)


def _chains(
    holder: DatabaseSession, sessions: Mapping[int, DatabaseSession]
) -> Iterator[tuple[DatabaseSession, ...]]:
    """Yield the shortest chain from a session to each root that it waits for."""
    paths: list[tuple[DatabaseSession, ...]] = [(holder,)]
    seen = {holder.pid}
    for path in paths:
        if not path[-1].blocked_by:
            yield path
        for pid in path[-1].blocked_by:
            if pid not in seen:
                seen.add(pid)
                paths.append((*path, sessions.get(pid) or _unknown_session(pid)))


def _blocking_lock(
    lock: HeldLock, chain: tuple[DatabaseSession, ...], sessions: Mapping[int, DatabaseSession]
) -> BlockingLock:
    root = chain[-1]
    last = chain[-2] if len(chain) > 1 else None
    # The root may block the last waiting session on another table than the one this lock is on.
    table = (last.waits_for if last is not None else None) or lock.table
    return BlockingLock(
        table=table,
        row=lock.row if table == lock.table else "a row",
        mode=lock.mode,
        session=root,
        seconds=_blocked_seconds(lock, chain, sessions),
        blocked=sum(root.pid in _roots(each, sessions) for each in sessions.values()),
        waiting=last,
        bars_reading=bars_reading(lock),
    )


def _blocked_seconds(
    lock: HeldLock, chain: tuple[DatabaseSession, ...], sessions: Mapping[int, DatabaseSession]
) -> float:
    """Return an upper limit of the seconds of blocking: the age of the youngest transaction or wait."""
    ages = [chain[-1].seconds]
    if len(chain) > 1:
        ages.append(chain[0].seconds if lock.granted else chain[0].waited)
    known = [age for age in ages if age is not None]
    waits = [each.waited for each in sessions.values() if chain[-1].pid in each.blocked_by]
    return min(known, default=max((wait for wait in waits if wait is not None), default=0))


def _roots(session: DatabaseSession, sessions: Mapping[int, DatabaseSession]) -> set[int]:
    return {chain[-1].pid for chain in _chains(session, sessions)} if session.blocked_by else set()
