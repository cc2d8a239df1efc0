"""A turn that another turn has replaced: it is not retried again, and no list of failures shows it."""

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.commands.test_worker import Dispatch, dispatch, shown, work
from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

__all__ = ["dispatch", "shown"]

FAILING = "cat >/dev/null; echo boom >&2; exit 7"

REPEATS: dict[str, tuple[str, ...]] = {
    "retry": ("turn", "retry", "TURN"),
    "inbox retry": ("inbox", "retry", "TURN"),
    "replay": ("turn", "replay", "TURN", "--no-wait"),
}


@pytest.fixture
def failed(cbx: Cbx, dispatch: Dispatch) -> str:
    turn = dispatch()
    work(cbx, FAILING)
    return turn


def repeat(cbx: Cbx, how: str, turn: str) -> None:
    succeed(cbx(*(turn if word == "TURN" else word for word in REPEATS[how])))


@pytest.mark.parametrize("how", REPEATS)
def test_a_turn_that_was_repeated_with_success_is_not_retried_again(
    cbx: Cbx, failed: str, shown: Callable[[str], Any], how: str
) -> None:
    repeat(cbx, how, failed)
    [new] = set(lines(cbx("turn", "list", "-o", "id"))) - {failed}
    work(cbx, "echo done")
    refused = cbx("turn", "retry", failed, "-o", "json")
    assert (refused.code, refused.error["message"]) == (
        5,
        f"turn {failed} is replaced by turn {new}, which ended in success",
    )
    row = cbx("inbox", "retry", failed)
    assert (row.code, row.err.splitlines()[0]) == (5, f"error: {refused.error['message']}")
    assert len(lines(cbx("turn", "list", "-o", "id"))) == 2
    assert lines(cbx("turn", "list", "--end", "failed", "-o", "id")) == []
    every = cbx("turn", "list", "--end", "failed", "--all")
    assert every.out.splitlines()[0].split()[-2:] == ["REPLACED", "BY"]
    assert every.out.splitlines()[1].split()[-1] == new[-8:]
    assert shown(failed)["replaced_by"] == new
    why = cbx("why", failed, "-o", "json").json()
    assert why["next_actor"] == f"no one: turn {new} replaces it, as `cbx why {new}` shows"
    hint = refused.error["hint"].split("`")[1]
    assert cbx(*shlex.split(hint)[1:]).code == 0
    assert len(lines(cbx("turn", "list", "-o", "id"))) == 3


def test_a_retry_that_has_not_ended_refuses_another(cbx: Cbx, failed: str) -> None:
    repeat(cbx, "retry", failed)
    new = lines(cbx("turn", "show", "@last", "-o", "id"))[0]
    refused = cbx("turn", "retry", failed)
    assert (refused.code, refused.err.splitlines()[0]) == (
        5,
        f"error: turn {failed} is replaced by turn {new}, which has not ended",
    )
    assert lines(cbx("turn", "list", "--end", "failed", "-o", "id")) == []


def test_of_a_chain_of_retries_only_the_last_failure_is_listed(cbx: Cbx, failed: str) -> None:
    repeat(cbx, "retry", failed)
    second = lines(cbx("turn", "show", "@last", "-o", "id"))[0]
    work(cbx, FAILING)
    assert lines(cbx("turn", "list", "--end", "failed", "-o", "id")) == [second]
    repeat(cbx, "retry", second)
    work(cbx, "echo done")
    assert lines(cbx("turn", "list", "--end", "failed", "-o", "id")) == []
    assert cbx("turn", "retry", failed).code == 5
    listed = cbx("turn", "list", "--end", "failed", "--all", "-o", "json").json()
    assert [each["agent_turn_id"] for each in listed] == [second, failed]
    assert len({each["replaced_by"] for each in listed}) == 1


def test_a_replay_that_failed_replaces_nothing(cbx: Cbx, failed: str) -> None:
    repeat(cbx, "replay", failed)
    work(cbx, FAILING)
    assert failed in lines(cbx("turn", "list", "--end", "failed", "-o", "id"))
    assert cbx("turn", "retry", failed).code == 0
