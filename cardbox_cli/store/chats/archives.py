"""The archived contexts of chats: rows that say what each holds, beside the box that holds it.

Never changed once written. Methods take part in the caller's transaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from cardbox_cli.errors import NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.chats import Archive, Findable
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import Dated, ProjectStore, paged, place
from cardbox_cli.store.connection.short_ids import like_escape, the_one
from cardbox_cli.text import argument

_BY_AGE = {"key": "context_id", "time": "archived_at"}
_COUNTED = 10_000


class ArchiveStore(ProjectStore):
    """The archived contexts of the chats of one project."""

    def add(
        self,
        archive: Archive,
        *,
        search_text: str,
        terms: Sequence[int],
        layout: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write an archived context; False where the chat has it already.

        `layout` is what the file that it was imported from says besides.
        """
        row = {**msgspec.structs.asdict(archive), "search_text": search_text, "terms": list(terms)}
        kept = None if layout is None else jsonb(dict(layout))
        return self._run("insert_chat_context", **row, layout=kept) > 0

    def layouts(self, chat_key: str) -> dict[str, Any]:
        """What the files say besides that archived contexts were imported from, by the ids of these."""
        rows = self._rows("chat_context_layouts", chat_key=chat_key)
        kept = ((context_id, exact_json.decode_stored(layout)) for context_id, layout in rows)
        return {context_id: layout for context_id, layout in kept if isinstance(layout, dict)}

    def find(self, chat_key: str, context_id: str) -> Archive | None:
        """The archived context of this id."""
        return self._one(Archive, "chat_context", chat_key=chat_key, context_id=context_id)

    def get(self, chat_key: str, wanted: str) -> Archive:
        """The archived context of an id, or of a unique beginning or end of one.

        Raises NotFound, AmbiguousId.
        """
        whole = self.find(chat_key, wanted)
        if whole is not None:
            return whole
        found = self.find(chat_key, self._resolved(chat_key, wanted))
        # Nothing is ever taken out of the table.
        assert found is not None
        return found

    def newest(self, chat_key: str, *, limit: int | None = None) -> Iterator[Archive]:
        """The archived contexts of a chat, newest first, read in pages."""
        return paged(partial(self._page, chat_key), limit=limit)

    def count(self, chat_key: str) -> int:
        """How many archived contexts a chat has; counts up to 10,000."""
        return int(self._value("count_chat_contexts", chat_key=chat_key, limit=_COUNTED))

    def with_terms(self, chat_key: str, terms: Sequence[int], limit: int) -> list[str]:
        """The ids of the newest archived contexts that have all of these terms."""
        return self._column("newest_with_terms", chat_key=chat_key, all_of=list(terms), limit=limit)

    def findable(self, chat_key: str, context_ids: Sequence[str]) -> list[Findable]:
        """What a search ranks these archived contexts by, newest first."""
        asked = list(context_ids)
        return self._all(Findable, "findable_chat_contexts", chat_key=chat_key, context_ids=asked)

    def _resolved(self, chat_key: str, wanted: str) -> str:
        piece = like_escape(wanted)
        begins = piece if wanted.startswith("ctx_") else f"ctx\\_{piece}"
        patterns = {"beginning": f"{begins}%", "ending": f"%{piece}"}
        found = self._column("find_chat_contexts", chat_key=chat_key, **patterns)
        if not found:
            raise NotFound(
                f"chat {chat_key!r} has no archived context {wanted!r}",
                hint=f"`cbx chat list {argument(chat_key)}` lists them",
            )
        return the_one("chat context", wanted, found, self.project_id)

    def _page(self, chat_key: str, after: Archive | None, size: int) -> list[Archive]:
        asked = place(Dated(), after, size, **_BY_AGE)
        return self._all(Archive, "list_chat_contexts", chat_key=chat_key, **asked)
