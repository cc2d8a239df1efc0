"""cbx: inspect, pack and render the contexts of LLM agents that are stored as cards and boxes in Postgres.

This module exports the Python API; everything else is internal. Names are loaded on first use, so that
`import cardbox_cli` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cardbox_cli.model.boxes import Box as Box
    from cardbox_cli.model.cards import Card as Card
    from cardbox_cli.model.cards import CardDraft as CardDraft
    from cardbox_cli.packing.pack import pack_context as pack_context
    from cardbox_cli.store.boxes import BoxStore as BoxStore
    from cardbox_cli.store.cards import CardStore as CardStore
    from cardbox_cli.store.connection.database import Database as Database
    from cardbox_cli.store.profiles import ProfileStore as ProfileStore

_EXPORTS = {
    "Box": "cardbox_cli.model.boxes",
    "BoxStore": "cardbox_cli.store.boxes",
    "Card": "cardbox_cli.model.cards",
    "CardDraft": "cardbox_cli.model.cards",
    "CardStore": "cardbox_cli.store.cards",
    "Database": "cardbox_cli.store.connection.database",
    "ProfileStore": "cardbox_cli.store.profiles",
    "pack_context": "cardbox_cli.packing.pack",
}


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
