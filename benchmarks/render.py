"""From the rows of cards to the body of a request, in process, against decoding and encoding the same rows.

The rows are the JSON texts that a box is read as; linting comes on top of rendering.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import msgspec

from benchmarks.material import drafts, imported_drafts
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.context.lint.rule import lint
from cardbox_cli.context.request import Request, RequestEntry, request_of
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import CardDraft, decode_card
from cardbox_cli.providers.registry import provider_named
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore

_CARDS = 10_000
# A run takes a tenth of a second, and the ratios are near their targets: few rounds would decide by chance.
_ROUNDS = 40

# Makes the rows of cards once for all rows of this module that read them.
Made = Callable[[Workbench], AbstractContextManager[list[str]]]


def _rows(bench: Workbench, cards: Sequence[CardDraft]) -> list[str]:
    """The cards as the store reads them of a box."""
    with bench.database() as database:
        CardStore(database, PROJECT).add_many(cards)
        settle(database)
        store = BoxStore(database, PROJECT)
        box = store.create([card.card_id for card in cards])
        with database.snapshot():
            return [text for _, text in store.json_lines(box.box_id) if text is not None]


def _render(rows: Sequence[str], provider: str) -> tuple[list[RequestEntry], Request]:
    """Make the body's bytes, and give back what a lint of them needs."""
    entries = [
        RequestEntry(slot=Slot(place, card.card_id, card, "present"), box_id="box")
        for place, card in enumerate(map(decode_card, rows))
    ]
    record = provider_named(provider)
    request = request_of(entries, encode=record.encode)
    exact_json.encode(record.body(request))
    return entries, request


def _lint(rows: Sequence[str], provider: str) -> object:
    """Check what was rendered, and hold it: who renders ten times less should find no memory warm."""
    rendered = _render(rows, provider)
    return rendered, lint(*rendered, provider_named(provider))


def _copy(rows: Sequence[str]) -> None:
    msgspec.json.encode([msgspec.json.decode(row) for row in rows])


def _plain_rows(bench: Workbench) -> AbstractContextManager[list[str]]:
    return nullcontext(_rows(bench, drafts(_CARDS)))


def _imported_rows(bench: Workbench) -> AbstractContextManager[list[str]]:
    return nullcontext(_rows(bench, imported_drafts(_CARDS)))


@contextmanager
def _against_copying(bench: Workbench, made: Made) -> Iterator[tuple[Side, Side]]:
    rows = bench.shared(made)
    yield Side(run=lambda: _render(rows, "openai")), Side(run=lambda: _copy(rows))


@contextmanager
def _against_rendering(bench: Workbench, provider: str) -> Iterator[tuple[Side, Side]]:
    rows = bench.shared(_plain_rows)
    yield Side(run=lambda: _lint(rows, provider)), Side(run=lambda: _render(rows, provider))


ROWS = [
    Row(
        name="render-openai",
        what="10,000 cards from their rows to the body for OpenAI",
        against="the same rows decoded and encoded again by msgspec",
        felt_by="an agent with a long history, at each of its steps",
        target=at_most(1.5),
        rounds=_ROUNDS,
        prepare=partial(_against_copying, made=_plain_rows),
    ),
    Row(
        name="render-imported",
        what="the same of 10,000 cards that keep their originals",
        against="the same rows decoded and encoded again by msgspec",
        felt_by="an agent that continues a long imported conversation, at each of its steps",
        target=at_most(1.5),
        rounds=_ROUNDS,
        prepare=partial(_against_copying, made=_imported_rows),
    ),
    Row(
        name="lint-openai",
        what="10,000 cards rendered and checked for OpenAI",
        against="rendered alone",
        felt_by="an agent with a long history, at each of its steps",
        target=at_most(1.5),
        rounds=_ROUNDS,
        prepare=partial(_against_rendering, provider="openai"),
    ),
    Row(
        name="lint-anthropic",
        what="10,000 cards rendered and checked for Anthropic",
        against="rendered alone",
        felt_by="an agent with a long history, at each of its steps",
        target=at_most(1.5),
        rounds=_ROUNDS,
        prepare=partial(_against_rendering, provider="anthropic"),
    ),
]
