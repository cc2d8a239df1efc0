"""API tokens of HTTP clients: one project's view of `cbx.api_tokens`. Stores only hashes of tokens."""

import hmac
from datetime import timedelta

from cardbox_cli.errors import Conflict
from cardbox_cli.model.identity import ApiToken, new_token, token_hash
from cardbox_cli.model.ids import new_card_id
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.tables import TOKENS

_NO_TOKEN = "`cbx token list` shows them"


class ApiTokenStore(ProjectStore):
    def create(self, *, label: str, actor: str, lasts: timedelta | None) -> tuple[str, ApiToken]:
        """Create a token, without expiry if `lasts` is None. Returns its text, never stored, and its row."""
        self.database.require(TOKENS)
        token = new_token(self.project_id)
        key = {"token_id": new_card_id()[-12:], "token_sha256": token_hash(token)}
        columns = {"label": label, "actor": actor, "lasts": lasts, "now": self.database.now()}
        row = self._one(ApiToken, "insert_api_token", **key, **columns)
        if row is None:
            raise Conflict("the id of the new token is taken", hint="run the command again")
        return token, row

    def all(self) -> list[ApiToken]:
        """Return all tokens of the project, including revoked and expired ones, oldest first."""
        self.database.require(TOKENS)
        return self._all(ApiToken, "api_tokens")

    def revoke(self, token_id: str) -> ApiToken:
        """Revoke a token. Has no effect on a token that is already revoked. Raises NotFound."""
        self.database.require(TOKENS)
        now = self.database.now()
        revoked = self._one(ApiToken, "revoke_api_token", token_id=token_id, now=now)
        return self._require_item(revoked, "token", token_id, _NO_TOKEN)

    def find_valid(self, token: str) -> str | None:
        """Return the id of the valid token with this text, or None. Compares every hash in constant time."""
        wanted, matching_id = token_hash(token), None
        for token_id, stored in self._valid_tokens():
            if hmac.compare_digest(bytes(stored), wanted):
                matching_id = token_id
        return matching_id

    def is_valid(self, token_id: str) -> bool:
        return any(each == token_id for each, _ in self._valid_tokens())

    def _valid_tokens(self) -> list[tuple[str, bytes]]:
        if TOKENS not in self.database.tables:
            return []
        tokens = self._rows("api_tokens_not_revoked")
        # Most tokens never expire, and then the time of the database is not needed.
        now = self.database.now() if any(ends for _, _, ends in tokens) else None
        return [(each, sha256) for each, sha256, ends in tokens if ends is None or now is None or ends > now]
