"""The library's side: its own storage adapter, answering one request per line, JSON in and JSON out.

Runs in the library's environment and knows nothing of cbx. A request is {"do": NAME, ...arguments}; the
answer {"answer": VALUE}, or {"error": "CLASS: message"} for what the library raised. Opening the database
lets the library make its tables and indexes there, as it does unless told otherwise.
"""

import asyncio
import json
import sys
from typing import Any

from cardbox.adapters.async_storage import AsyncPostgresStorageAdapter
from cardbox.config import PostgresStorageAdapterSettings
from cardbox.structures import Card, CardBox


class Requests:
    """What can be asked of the adapter; a method for each request."""

    def __init__(self, adapter: AsyncPostgresStorageAdapter) -> None:
        self.adapter = adapter

    async def open(self, auto_bootstrap: bool = True) -> None:
        """Open the pool, and by default make what is missing."""
        self.adapter.config.auto_bootstrap = auto_bootstrap
        await self.adapter.open()

    async def add_cards(self, project: str, cards: list[dict[str, Any]]) -> list[str]:
        """Write cards one by one, as the library does; their ids."""
        made = [Card.from_dict(card) for card in cards]
        for card in made:
            await self.adapter.add_card(card, project)
        return [card.card_id for card in made]

    async def get_cards(self, project: str, card_ids: list[str]) -> list[dict[str, Any] | None]:
        """The cards of these ids in this order; null for one that the library does not see."""
        found = [await self.adapter.get_card(card_id, project) for card_id in card_ids]
        return [None if card is None else card.to_dict() for card in found]

    async def list_cards(self, project: str, metadata: dict[str, str]) -> list[str]:
        """The ids of the cards with these metadata, newest first."""
        return [card.card_id for card in await self.adapter.list_cards(project, metadata_filters=metadata)]

    async def results_of_call(self, project: str, tool_call_id: str) -> list[str]:
        """The ids of the cards that answer a tool call."""
        found = await self.adapter.list_cards_by_tool_call_ids(project, tool_call_ids=[tool_call_id])
        return [card.card_id for card in found]

    async def save_box(
        self,
        project: str,
        card_ids: list[str],
        box_id: str | None = None,
        parent_ids: list[str] | None = None,
    ) -> str:
        """Make a box, or set the ids of an existing one; its id."""
        box = CardBox(card_ids=card_ids, box_id=box_id, parent_ids=parent_ids)
        return str(await self.adapter.save_card_box(box, project))

    async def append(self, project: str, box_id: str, card_ids: list[str]) -> str:
        """Append ids in one statement."""
        return str(await self.adapter.append_to_box(box_id, project, card_ids))

    async def append_each(self, project: str, box_id: str, card_ids: list[str]) -> int:
        """Append ids one by one, all at once on the connections of the pool."""
        appends = (self.adapter.append_to_box(box_id, project, [card_id]) for card_id in card_ids)
        return len(await asyncio.gather(*appends))

    async def load_box(self, project: str, box_id: str) -> dict[str, Any] | None:
        """A box as the library sees it."""
        box = await self.adapter.load_card_box(box_id, project)
        return None if box is None else {"card_ids": box.card_ids, "parent_ids": box.parent_ids}


async def _answer(requests: Requests, line: str) -> dict[str, Any]:
    request = json.loads(line)
    try:
        return {"answer": await getattr(requests, request.pop("do"))(**request)}
    except Exception as exc:
        return {"error": f"{type(exc).__name__}: {exc}"}


async def main(url: str) -> None:
    """Answer the lines of standard input until it ends."""
    adapter = AsyncPostgresStorageAdapter(PostgresStorageAdapterSettings(dsn=url))
    requests = Requests(adapter)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await _answer(requests, line)), flush=True)
    await adapter.close()


asyncio.run(main(sys.argv[1]))
