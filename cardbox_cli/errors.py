"""The kinds of failure that cbx knows, each with a stable code and an exit code.

Every layer raises these; only `cli/boundary.py` prints them. A message says what was wrong with the
value and where; the hint says one thing to do. This module imports nothing of cbx.
"""

from collections.abc import Mapping
from typing import Any


class CbxError(Exception):
    """Base of all expected failures.

    `code` is kebab-case and stable (scripts match on it), `exit_code` is what the process ends with,
    `details` holds JSON-ready values that a program may want and a sentence would bury.
    """

    code = "failure"
    exit_code = 1

    def __init__(
        self, message: str, *, hint: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})


class UsageError(CbxError):
    """The command line itself is malformed."""

    code = "usage"
    exit_code = 2


class NotFound(CbxError):
    """What was named does not exist in this project."""

    code = "not-found"
    exit_code = 3


class InvalidInput(CbxError):
    """A value was understood and refused."""

    code = "invalid-input"
    exit_code = 4


class DuplicateQuery(InvalidInput):
    """A query that the history ends with already."""

    code = "duplicate-query"


class BadRequest(InvalidInput):
    """A pack was asked for with arguments or a recipe that its rules refuse."""

    code = "bad-request"


class InvalidRecipe(InvalidInput):
    """A handover recipe does not say what a recipe may say; `details["problems"]` lists every place."""

    code = "invalid-recipe"


class InvalidCard(InvalidInput):
    """A card's content, metadata or text cannot be stored."""

    code = "invalid-card"


class InvalidConversation(InvalidInput):
    """A conversation file is not in the format it was said to be in."""

    code = "invalid-conversation"


class Conflict(CbxError):
    """The stored state is not what the request assumed; nothing was written."""

    code = "conflict"
    exit_code = 5


class CardConflict(Conflict):
    """The card id is taken: by another payload, by a deleted card, or out of this project's sight."""

    code = "card-conflict"


class BoxConflict(Conflict):
    """The box changed meanwhile, or its id is taken."""

    code = "box-conflict"


class StaleEpoch(Conflict):
    """The turn is not at this epoch any more: it ended, was stopped, or was given to somebody else."""

    code = "stale-epoch"


class LeaseLost(Conflict):
    """The inbox row is not claimed by this owner (any more)."""

    code = "lease-lost"


class CorrelationConflict(Conflict):
    """The correlation id was used for another request; `details` has the turn that has it."""

    code = "correlation-conflict"


class AmbiguousId(Conflict):
    """A short id fits several things; `details["candidates"]` lists them."""

    code = "ambiguous-id"


class NotAccepted(CbxError):
    """A dispatch was answered busy, rejected or error; `details["error_code"]` says why."""

    code = "not-accepted"
    exit_code = 6


class DatabaseUnavailable(CbxError):
    """The database cannot be reached, or refuses to work for us."""

    code = "database-unavailable"
    exit_code = 7


class SchemaMissing(DatabaseUnavailable):
    """The database lacks tables that this command needs."""

    code = "schema-missing"


class SchemaTooNew(DatabaseUnavailable):
    """The database was upgraded by a newer cbx."""

    code = "schema-too-new"


class ServiceUnavailable(CbxError):
    """A service beside the database cannot be reached, or refuses to work for us."""

    code = "service-unavailable"
    exit_code = 7


class Findings(CbxError):
    """The check ran and found something; what it found is on stdout."""

    code = "findings"
    exit_code = 8


class WaitedTooLong(CbxError):
    """What was waited for did not happen in time; it goes on."""

    code = "waited-too-long"
    exit_code = 124
