"""Finds the connections that a test opens and leaves open.

Python reports them when it collects them as garbage, which is in the middle of a later test.
"""

import time
import weakref
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

# Seconds in which a thread of the test may come to close its own.
_PATIENCE = 60.0

_opened: list["weakref.ref[psycopg.Connection[Any]]"] = []
_FAILED = pytest.StashKey[bool]()


def pytest_configure() -> None:
    begin = psycopg.Connection.__init__

    def begin_and_note(self: psycopg.Connection[Any], *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        _opened.append(weakref.ref(self))

    psycopg.Connection.__init__ = begin_and_note  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    # What fixtures opened before they close.
    _opened.clear()
    try:
        return (yield)
    except BaseException:
        item.stash[_FAILED] = True
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    failed = item.stash.get(_FAILED, False)
    deadline = time.monotonic() + (0 if failed else _PATIENCE)
    while (left := _still_open()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for connection in left:
        connection.close()
    assert failed or not left, f"the test left connections open: {left}"
    return result


def _still_open() -> list[psycopg.Connection[Any]]:
    found = (reference() for reference in _opened)
    return [each for each in found if each is not None and not each.closed]
