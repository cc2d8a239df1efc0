"""Decides whose failure an unanswered step is, and whether cbx tries the step again. This module is pure.

A worker cannot see how a client talks to its provider. It reads the exit code, the end of stderr, and the
provider's error on stdout. If none of them shows another cause, the answer itself has failed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec

from cardbox_cli.execution.worker.command_processes import CommandOutcome
from cardbox_cli.model.execution.turns import STEP_ANSWERED, Step, last_lines
from cardbox_cli.text.quantities import format_count

# `answer`: the model's answer or its client failed. `refusal`: the provider refuses this request.
# `transient`: the same request may succeed later. `worker`: only this worker cannot run the step.
Cause = Literal["answer", "refusal", "transient", "worker"]

# A client exits with this code to ask for another try.
TRANSIENT_EXIT_CODE = 9
# The key of a step's metadata under which its failure is stored.
FAILURE_KEY = "failure"
# A turn fails after this number of workers could not run its step.
MAX_WORKERS = 3
WORKER_FAILED = "worker_failed"

# The shell exits with these codes if it cannot start a program, and with 128 + N if signal N killed it.
_NOT_STARTED = (126, 127)
_KILLED = range(129, 128 + 65)
# The lines at the end of stderr that may hold the error. Earlier ones may be of tries that succeeded.
_ERROR_LINES = 12

_OUT_OF_MEMORY = re.compile(r"out of memory|outofmemory|memoryerror|cannot allocate memory|bad_alloc", re.I)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance|billing|payment required", re.I)
_STATUS = r"(?:http(?:/[\d.]{1,3})?|status(?:[ _]?code)?|error(?:[ _]?code)?|code)\W{0,4}"
_TRANSIENT = re.compile(
    rf"{_STATUS}(?:408|409|425|429|5\d\d)\b|too many requests|rate[ _-]?limit|overloaded"
    r"|resource_?exhausted|throttl|temporarily unavailable|try again later|internal server error|bad gateway"
    r"|service[ _]?unavailable|model is loading|connection (?:error|refused|reset|aborted|timed out|closed)"
    r"|connection ?error|econn(?:refused|reset|aborted)|etimedout|broken pipe|remote end closed"
    r"|could not resolve|name resolution|getaddrinfo|failed to connect|network is unreachable"
    r"|timed? ?out\b|timeout\b|\bunavailable\b|unexpected eof",
    re.I,
)
_REFUSAL = re.compile(
    rf"{_STATUS}4\d\d\b|invalid_request|bad request|unauthorized|permission denied|not found", re.I
)

_RETRY_SECONDS = re.compile(
    r"retry[-_ ]?(?:after|delay)(?P<milli>[-_]ms)?[\"']?\s{0,4}[:=]?\s{0,4}[\"']?(?P<n>\d{1,9}(?:\.\d{1,9})?)"
    r"|try again in (?P<again>\d{1,9}(?:\.\d{1,9})?)(?P<unit>ms|s)",
    re.I,
)
_RETRY_DATE = re.compile(r"retry-after\W{1,4}(?P<date>\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT)", re.I)


class StepFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of a step. `retry_after` is the wait in seconds that the provider asks for, or None."""

    cause: Cause
    error_code: str
    message: str
    details: Mapping[str, Any] = {}
    retry_after: float | None = None


class RetryPolicy(msgspec.Struct, frozen=True):
    """The tries of a step with transient failures: at most `attempts`, begun within `max_elapsed_seconds`."""

    attempts: int = 3
    max_elapsed_seconds: float = 600


def retry_policy(profile: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy of a stored profile, or the default for an invalid one of another program."""
    try:
        return msgspec.convert(profile.get("retry") or {}, RetryPolicy)
    except msgspec.ValidationError:
        return RetryPolicy()


def cause_of_run(ran: CommandOutcome) -> Cause:
    """Return the cause for a client that did not succeed."""
    if ran.too_long:
        return "answer"
    if ran.timed_out:
        return "transient" if ran.fault is None else "worker"
    if ran.exit_code < 0 or ran.exit_code in _KILLED or ran.exit_code in _NOT_STARTED:
        return "worker"
    if ran.exit_code == TRANSIENT_EXIT_CODE:
        return "transient"
    error = "\n".join(last_lines(ran.stderr, _ERROR_LINES))
    if not ran.has_read or _OUT_OF_MEMORY.search(error):
        return "worker"
    return cause_of_error(error)


def cause_of_error(error: str) -> Cause:
    """Return the cause that the text of a client's or a provider's error shows, or `answer`."""
    if _NO_CREDIT.search(error):
        return "refusal"
    if _TRANSIENT.search(error):
        return "transient"
    return "refusal" if _REFUSAL.search(error) else "answer"


def retry_after(error: str, now: datetime) -> float | None:
    """Return the seconds to wait that an error names, as a header, a JSON value or a sentence, or None."""
    if found := _RETRY_SECONDS.search(error):
        seconds = float(found["n"] or found["again"])
        return seconds / 1000 if found["milli"] or found["unit"] == "ms" else seconds
    if found := _RETRY_DATE.search(error):
        return max((parsedate_to_datetime(found["date"]) - now).total_seconds(), 0)
    return None


class Postponement(msgspec.Struct, frozen=True, kw_only=True):
    """Another try of a step after `seconds`, by any worker if `is_deferred`, and by this run otherwise."""

    seconds: float
    message: str
    is_deferred: bool = True


class FailedTry(msgspec.Struct, frozen=True, kw_only=True):
    """A failed try of a step, as stored in the metadata of its row."""

    cause: Cause
    worker_id: str
    error_code: str
    message: str
    started_at: datetime | None = None


def stored_failure(failure: StepFailure, worker_id: str) -> dict[str, str]:
    """Return the JSON of a failed try, for the metadata of its step."""
    return {
        "cause": failure.cause,
        "worker_id": worker_id,
        "error_code": failure.error_code,
        "message": failure.message,
    }


def failed_tries(steps: Sequence[Step]) -> list[FailedTry]:
    """Return the failed tries after a turn's last answered step, oldest first."""
    tries: list[FailedTry] = []
    for step in steps:
        stored = step.metadata.get(FAILURE_KEY) if isinstance(step.metadata, dict) else None
        if step.status in STEP_ANSWERED:
            tries = []
        elif stored is not None:
            try:
                tries.append(msgspec.convert({**stored, "started_at": step.started_at}, FailedTry))
            except (TypeError, msgspec.ValidationError):
                continue
    return tries


def decide_retry(
    failure: StepFailure,
    tries: Sequence[FailedTry],
    *,
    policy: RetryPolicy,
    now: datetime,
    delay: Callable[[int], float],
) -> Postponement | StepFailure:
    """Return the next try of a step, or the failure that ends its run.

    `tries` are the failed tries so far, and the last one is `failure`. `delay` returns the seconds to wait
    after N failures.
    """
    same = [each for each in tries if each.cause == failure.cause]
    wait = max(delay(len(same) - 1), failure.retry_after or 0)
    if failure.cause == "worker":
        workers = {each.worker_id for each in same}
        if len(workers) < MAX_WORKERS:
            return Postponement(seconds=wait, message=f"handed back: {failure.message}")
        message = f"{len(workers)} workers could not run it; the last failure: {failure.message}"
        return msgspec.structs.replace(failure, error_code=WORKER_FAILED, message=message)
    elapsed = (now - (same[0].started_at or now)).total_seconds()
    if len(same) >= policy.attempts:
        message = f"{failure.message} ({format_count(len(same), 'attempt')} in {elapsed:.0f} s)"
    elif elapsed + wait > policy.max_elapsed_seconds:
        limit = f"{policy.max_elapsed_seconds:g} s (retry.max_elapsed_seconds)"
        message = (
            f"{failure.message} (another try would begin after {elapsed + wait:.0f} s; the limit is {limit})"
        )
    else:
        return Postponement(
            seconds=wait,
            message=f"attempt {len(same)} of {policy.attempts} failed: {failure.message}; "
            f"the next one begins in {wait:.1f} s",
        )
    return msgspec.structs.replace(failure, message=message)
