"""What becomes of a batch, decided from values."""

from collections import Counter
from itertools import chain, combinations
from typing import Any

import pytest

from cardbox_cli.limits import QUOTED_SIZE
from cardbox_cli.model.content import JsonContent, TextContent
from cardbox_cli.model.execution.batches import Batch
from cardbox_cli.model.execution.turns import END_STATUSES
from cardbox_cli.orchestration.batch_ends import (
    TaskResult,
    batch_end,
    is_passing,
    joined_result,
    retry_delay,
    summary_of,
)

# How a batch ends whose children ended in just these ways.
ENDS = {
    "success": "success",
    "failed": "failed",
    "canceled": "failed",
    "timeout": "timeout",
    "partial": "partial",
    "success failed": "partial",
    "success canceled": "partial",
    "success timeout": "partial",
    "success partial": "partial",
    "failed canceled": "failed",
    "failed timeout": "failed",
    "failed partial": "failed",
    "canceled timeout": "timeout",
    "canceled partial": "partial",
    "timeout partial": "timeout",
    "success failed canceled": "partial",
    "success failed timeout": "partial",
    "success failed partial": "partial",
    "success canceled timeout": "partial",
    "success canceled partial": "partial",
    "success timeout partial": "partial",
    "failed canceled timeout": "failed",
    "failed canceled partial": "failed",
    "failed timeout partial": "failed",
    "canceled timeout partial": "timeout",
    "success failed canceled timeout": "partial",
    "success failed canceled partial": "partial",
    "success failed timeout partial": "partial",
    "success canceled timeout partial": "partial",
    "failed canceled timeout partial": "failed",
    "success failed canceled timeout partial": "partial",
}
FAILING = {"failed", "canceled", "timeout"}


def test_the_table_has_every_combination_of_ends() -> None:
    mixes = chain.from_iterable(combinations(END_STATUSES, size) for size in range(1, len(END_STATUSES) + 1))
    assert {frozenset(mix) for mix in mixes} == {frozenset(mix.split()) for mix in ENDS}


@pytest.mark.parametrize(("mix", "end"), ENDS.items())
def test_a_batch_ends_as_the_table_requires(mix: str, end: str) -> None:
    counts = Counter(mix.split())
    assert batch_end(counts, fail_fast=False) == end
    assert batch_end(counts, fail_fast=True) == ("failed" if FAILING & set(counts) else end)


@pytest.mark.parametrize("still", ["pending", "dispatched"])
@pytest.mark.parametrize("mix", ENDS)
def test_one_unfinished_child_keeps_a_batch_open_unless_it_fails_fast(mix: str, still: str) -> None:
    counts = Counter([*mix.split(), still])
    assert batch_end(counts, fail_fast=False) is None
    assert batch_end(counts, fail_fast=True) == ("failed" if FAILING & set(counts) else None)


def test_the_retry_delay_doubles_up_to_half_a_minute() -> None:
    assert [retry_delay(attempts).total_seconds() for attempts in range(1, 8)] == [2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("status", "code", "passing"),
    [
        ("busy", "agent_busy", True),
        ("error", "internal_error", True),
        ("error", "head_missing", True),
        ("rejected", "output_box_in_use", True),
        ("rejected", "agent_not_found", False),
        ("rejected", "profile_not_found", False),
        ("rejected", "recursion_depth_exceeded", False),
        ("error", "worker_target_missing", False),
    ],
)
def test_only_a_temporary_refusal_is_retried(status: str, code: str, passing: bool) -> None:
    assert is_passing(code, status) is passing


@pytest.mark.parametrize(
    ("content", "summary"),
    [
        (TextContent("All of it."), "All of it."),
        (JsonContent({"fields": [{"name": "summary", "value": "Short."}, {"name": "more", "value": "x"}]}), "Short."),
        (JsonContent({"fields": [{"name": "words", "value": 3}]}), '{"fields":[{"name":"words","value":3}]}'),
        (JsonContent({"fields": "none"}), '{"fields":"none"}'),
        (JsonContent([1]), "[1]"),
    ],
)  # fmt: skip
def test_the_summary_is_the_summary_field_or_the_whole_text(content: Any, summary: str) -> None:
    assert summary_of(content).startswith(summary)


@pytest.mark.parametrize("status", ["success", "failed"])
def test_the_total_size_of_the_joined_summaries_is_limited(status: str) -> None:
    names = dict.fromkeys(Batch.__struct_fields__)
    batch = Batch(**{**names, "status": status, "batch_id": "batch_1", "error": "it failed"})
    results = [TaskResult(task_index=index, status=status, summary="x" * 400_000) for index in range(5)]
    content = joined_result(batch, results)
    told = [each["summary"] for each in content.result["results"]]
    assert sum(map(len, told)) < QUOTED_SIZE.value * 1.01
    assert told[0].endswith("[the first 200000 of 400000 characters]")
    assert joined_result(batch, results[:1]).result["results"][0]["summary"] == "x" * 400_000
