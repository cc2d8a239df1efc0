"""Tokens for readers over HTTP: one project's view of `cbx.api_tokens`. No token is ever kept."""

import hmac
from datetime import timedelta

from cardbox_cli.errors import Conflict
from cardbox_cli.model.identity import ApiToken, hash_of, new_token
from cardbox_cli.model.ids import new_card_id
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.tables import TOKENS

_NO_TOKEN = "`cbx token list` shows them"


class ApiTokenStore(ProjectStore):
    """The tokens of one project."""

    def create(self, *, label: str, actor: str, lasts: timedelta | None) -> tuple[str, ApiToken]:
        """A new token, which nobody can be told again, and what is kept of it. Without `lasts` it stays."""
        self.database.require(TOKENS)
        token = new_token(self.project_id)
        kept = self._one(
            ApiToken,
            "insert_api_token",
            token_id=new_card_id()[-12:],
            label=label,
            token_sha256=hash_of(token),
            actor=actor,
            now=self.database.now(),
            lasts=lasts,
        )
        if kept is None:
            raise Conflict("the id of the token is taken", hint="try again")
        return token, kept

    def all(self) -> list[ApiToken]:
        """All of the project, revoked and expired ones too, oldest first."""
        self.database.require(TOKENS)
        return self._all(ApiToken, "api_tokens")

    def revoke(self, token_id: str) -> ApiToken:
        """Let a token open nothing from now on; harmless for one that does not. Raises NotFound."""
        self.database.require(TOKENS)
        now = self.database.now()
        revoked = self._one(ApiToken, "revoke_api_token", token_id=token_id, now=now)
        return self._found(revoked, "token", token_id, _NO_TOKEN)

    def opens(self, token: str) -> str | None:
        """The id of the token of this text that is in force; None if there is none.

        Every hash of the project is compared, each in constant time.
        """
        wanted, found = hash_of(token), None
        for token_id, kept in self._in_force():
            if hmac.compare_digest(bytes(kept), wanted):
                found = token_id
        return found

    def is_in_force(self, token_id: str) -> bool:
        """Whether a token still opens the project."""
        return any(each == token_id for each, _ in self._in_force())

    def _in_force(self) -> list[tuple[str, bytes]]:
        if TOKENS not in self.database.tables:
            return []
        known = self._rows("api_tokens_not_revoked")
        # Most never expire, and need no look at the clock.
        now = self.database.now() if any(ends for _, _, ends in known) else None
        return [(each, kept) for each, kept, ends in known if ends is None or now is None or ends > now]
