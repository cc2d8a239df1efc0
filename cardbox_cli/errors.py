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

    def __init_subclass__(cls, *, code: str, exit_code: int | None = None) -> None:
        super().__init_subclass__()
        cls.code, cls.exit_code = code, exit_code or cls.exit_code

    def __init__(
        self, message: str, *, hint: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})


class UsageError(CbxError, code="usage", exit_code=2):
    """The command line itself is malformed."""


class NotFound(CbxError, code="not-found", exit_code=3):
    """What was named does not exist in this project."""


class InvalidInput(CbxError, code="invalid-input", exit_code=4):
    """A value was understood and refused."""


class DuplicateQuery(InvalidInput, code="duplicate-query"):
    """A query that the history ends with already."""


class BadRequest(InvalidInput, code="bad-request"):
    """A pack was asked for with arguments or a recipe that its rules refuse."""


class NotAllowed(InvalidInput, code="not-allowed"):
    """An agent asked for what its profile, or what it can see, does not allow."""


class HandlerFailed(InvalidInput, code="handler-failed"):
    """The handler of a package raised what it may not raise, or answered what it may not answer."""


class InvalidRecipe(InvalidInput, code="invalid-recipe"):
    """A handover recipe does not say what a recipe may say; `details["problems"]` lists every place."""


class InvalidCard(InvalidInput, code="invalid-card"):
    """A card's content, metadata or text cannot be stored."""


class InvalidConversation(InvalidInput, code="invalid-conversation"):
    """A conversation file is not in the format it was said to be in."""


class NoMessages(InvalidConversation, code="no-messages"):
    """None of the conversations of a file has a message where they are looked for."""


class Conflict(CbxError, code="conflict", exit_code=5):
    """The stored state is not what the request assumed; nothing was written."""


class CardConflict(Conflict, code="card-conflict"):
    """The card id is taken: by another payload, by a deleted card, or out of this project's sight."""


class BoxConflict(Conflict, code="box-conflict"):
    """The box changed meanwhile, or its id is taken."""


class StaleEpoch(Conflict, code="stale-epoch"):
    """The turn is not at this epoch any more: it ended, was stopped, or was given to somebody else."""


class LeaseLost(Conflict, code="lease-lost"):
    """The inbox row is not claimed by this owner (any more)."""


class CorrelationConflict(Conflict, code="correlation-conflict"):
    """The correlation id was used for another request; `details` has the turn that has it."""


class AmbiguousId(Conflict, code="ambiguous-id"):
    """A short id fits several things; `details["candidates"]` lists them."""


class NotAccepted(CbxError, code="not-accepted", exit_code=6):
    """A dispatch was answered busy, rejected or error; `details["error_code"]` says why."""


class ChatBusy(CbxError, code="busy", exit_code=6):
    """A run has the chat, and nobody wants to wait; `details` has the chat, the run and its owner."""


class DatabaseUnavailable(CbxError, code="database-unavailable", exit_code=7):
    """The database cannot be reached, or refuses to work for us."""


class AllAtWork(DatabaseUnavailable, code="all-at-work"):
    """Each connection that a server may have to the database is at work for somebody else."""


class SchemaMissing(DatabaseUnavailable, code="schema-missing"):
    """The database lacks tables that this command needs."""


class MissingRight(DatabaseUnavailable, code="missing-right"):
    """The database's role may not do what this command needs."""


class SchemaTooNew(DatabaseUnavailable, code="schema-too-new"):
    """The database was upgraded by a newer cbx."""


class SchemaTooOld(DatabaseUnavailable, code="schema-too-old"):
    """The database has tables that this cbx cannot upgrade; their data must move to a new database."""


class ServiceUnavailable(CbxError, code="service-unavailable", exit_code=7):
    """A service beside the database cannot be reached, or refuses to work for us."""


class Findings(CbxError, code="findings", exit_code=8):
    """The check ran and found something; what it found is on stdout."""


class WaitedTooLong(CbxError, code="waited-too-long", exit_code=124):
    """What was waited for did not happen in time; it goes on."""
