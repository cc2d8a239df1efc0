"""The failures that cbx knows, each with a stable code and an exit code.

Every layer raises these; only `cli/boundary.py` prints them. A message says what is wrong with which value;
the hint says one thing to do. This module imports nothing of cbx.
"""

from collections.abc import Mapping
from typing import Any


class CbxError(Exception):
    """Base of all expected failures.

    `code` is kebab-case and stable, because scripts match on it. `exit_code` is the exit code of the process.
    `details` holds JSON-ready values for programs.
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
    """A name or id that does not exist in this project."""


class InvalidInput(CbxError, code="invalid-input", exit_code=4):
    """A value that was parsed and refused."""


class DuplicateQuery(InvalidInput, code="duplicate-query"):
    """A query with which the history already ends."""


class BadRequest(InvalidInput, code="bad-request"):
    """A pack whose arguments or recipe break the rules of packing."""


class NotAllowed(InvalidInput, code="not-allowed"):
    """A call of an agent that its profile, or what it can see, does not allow."""


class HandlerFailed(InvalidInput, code="handler-failed"):
    """A handler of a package that raised an unexpected error or returned an invalid value."""


class InvalidRecipe(InvalidInput, code="invalid-recipe"):
    """A recipe with invalid fields; `details["problems"]` lists every one."""


class InvalidCard(InvalidInput, code="invalid-card"):
    """A card's content, metadata or text cannot be stored."""


class InvalidConversation(InvalidInput, code="invalid-conversation"):
    """A conversation file that is not in the expected format."""


class NoMessages(InvalidConversation, code="no-messages"):
    """A file whose conversations all lack messages in the expected place."""


class Conflict(CbxError, code="conflict", exit_code=5):
    """Stored state that differs from what the request assumed; nothing was written."""


class CardConflict(Conflict, code="card-conflict"):
    """A card id that is taken: by another payload, by a deleted card, or in another project."""


class BoxConflict(Conflict, code="box-conflict"):
    """A box that changed in the meantime, or whose id is taken."""


class StaleEpoch(Conflict, code="stale-epoch"):
    """A turn that is no longer at this epoch: it ended, was stopped, or was assigned again."""


class LeaseLost(Conflict, code="lease-lost"):
    """An inbox row that this owner has not claimed, or no longer has."""


class CorrelationConflict(Conflict, code="correlation-conflict"):
    """A correlation id that was used for a different dispatch; `details` names its turn."""


class AmbiguousId(Conflict, code="ambiguous-id"):
    """A short id that matches several things; `details["candidates"]` lists them."""


class NotAccepted(CbxError, code="not-accepted", exit_code=6):
    """A dispatch that ended as busy, rejected or error; `details["error_code"]` says why."""


class ChatBusy(CbxError, code="busy", exit_code=6):
    """A chat that another run has; `details` has the chat, the run and its owner."""


class DatabaseUnavailable(CbxError, code="database-unavailable", exit_code=7):
    """A database that cannot be reached, or refuses to serve us."""


class ConnectionsBusy(DatabaseUnavailable, code="all-at-work"):
    """A connection pool whose connections are all in use."""


class SchemaMissing(DatabaseUnavailable, code="schema-missing"):
    """A database without tables that this command needs."""


class MissingRight(DatabaseUnavailable, code="missing-right"):
    """A database role without the rights that this command needs."""


class SchemaTooNew(DatabaseUnavailable, code="schema-too-new"):
    """A database that a newer cbx has upgraded."""


class SchemaTooOld(DatabaseUnavailable, code="schema-too-old"):
    """A database whose tables this cbx cannot upgrade; their data must move to a new database."""


class ServiceUnavailable(CbxError, code="service-unavailable", exit_code=7):
    """A service other than the database that cannot be reached, or refuses to serve us."""


class Findings(CbxError, code="findings", exit_code=8):
    """A check that found something; the findings are on stdout."""


class WaitTimeout(CbxError, code="waited-too-long", exit_code=124):
    """An event that did not happen in time; the wait ended, the work continues."""
