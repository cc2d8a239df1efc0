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
_PASSED = pytest.StashKey[bool]()


def pytest_configure() -> None:
    begin = psycopg.Connection.__init__

    def begin_and_note(self: psycopg.Connection[Any], *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        _opened.append(weakref.ref(self))

    psycopg.Connection.__init__ = begin_and_note  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    # What fixtures opened they close, some of them after other tests.
    _opened.clear()
    item.stash[_PASSED] = False
    result = yield
    item.stash[_PASSED] = True
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    passed = item.stash.get(_PASSED, None)
    if passed is not None:
        left = _left_open() if passed else _still_open()
        for connection in left:
            connection.close()
        assert not (passed and left), f"the test left connections open: {left}"
    return result


def _left_open() -> list[psycopg.Connection[Any]]:
    deadline = time.monotonic() + _PATIENCE
    while (left := _still_open()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _still_open() -> list[psycopg.Connection[Any]]:
    found = (reference() for reference in _opened)
    return [each for each in found if each is not None and not each.closed]
