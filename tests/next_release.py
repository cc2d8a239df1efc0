"""An artificial next release: its `schema.sql`, two numbered files, and databases that it upgrades.

The first file is a transaction that makes a table and changes others, one of which a card-box library may have
made. The second builds indexes while writers continue.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.migrations import files
from cardbox_cli.store.migrations.upgrade import add_missing_tables
from tests.databases import Databases

BEFORE = files.newest()
AFTER = BEFORE + 2
PARCELS, WEIGHTS = f"{BEFORE + 1:04}_parcels.sql", f"{AFTER:04}_weights.sql"

# The release of this checkout, which a test may replace.
SCHEMA = files.SCHEMA.read_text(encoding="utf-8")
_FOLDER = Path(files.FOLDER)

# `schema.sql` before the first numbered file. As long as there is none, it is today's.
_KEPT = Path(__file__).parent / "store" / "migrations" / "baseline.sql"
BASELINE_SCHEMA = _KEPT.read_text(encoding="utf-8") if _KEPT.exists() else SCHEMA

_TABLE = """\
CREATE TABLE IF NOT EXISTS cbx.parcels (
    project_id text COLLATE "C" NOT NULL,
    parcel_id  text COLLATE "C" NOT NULL,
    PRIMARY KEY (project_id, parcel_id)
);
"""
_OF_TURNS = "CREATE UNIQUE INDEX IF NOT EXISTS uniq_turns_parcel ON cbx.turns (project_id, parcel_id);\n"
_OF_CARDS = """\
CREATE INDEX IF NOT EXISTS idx_cards_weight ON public.cards (tenant_id, (metadata ->> 'weight'));
CREATE INDEX IF NOT EXISTS idx_cards_parcel ON public.cards (tenant_id, (metadata ->> 'parcel_id'));
"""
_OF_INBOX = (
    "CREATE INDEX IF NOT EXISTS idx_inbox_parcel ON state.agent_inbox (project_id, right(inbox_id, 3));\n"
)
_FUNCTION = """\
CREATE OR REPLACE FUNCTION cbx.heavier(bigint, bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT $1 > $2 $$;
"""

_CHANGES = {
    PARCELS: f"""\
-- Parcels, and how much a card weighs.

-- makes: cbx.parcels
{_TABLE}
-- changes: public.cards
ALTER TABLE public.cards ADD COLUMN IF NOT EXISTS weight bigint;

-- changes: cbx.turns
ALTER TABLE cbx.turns ADD COLUMN IF NOT EXISTS parcel_id text;
{_OF_TURNS}""",
    WEIGHTS: f"""\
-- Cards by weight and parcel.
-- no-transaction: public.idx_cards_weight public.idx_cards_parcel
-- no-transaction: state.idx_inbox_parcel

-- changes: public.cards
{_OF_CARDS.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY")}
-- changes: state.agent_inbox
{_OF_INBOX.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY")}
-- changes: cbx.parcels
{_FUNCTION}""",
}

_CARDS = """
INSERT INTO public.projects (project_id, title, owner_id) VALUES ('p', 'p', 't');
INSERT INTO public.cards (tenant_id, card_id, content, metadata)
    SELECT 'p', 'card-' || i, jsonb_build_object('__type__', 'TextContent', 'text', 'about ' || i),
        jsonb_build_object('type', 'chat.message', 'role', 'user', 'weight', i % 100)
    FROM generate_series(1, {rows}) AS i;
INSERT INTO public.card_boxes (tenant_id, box_id, card_ids)
    SELECT 'p', md5(i::text)::uuid, jsonb_build_array('card-' || i) FROM generate_series(1, {rows}) AS i;
INSERT INTO cbx.box_info (project_id, box_id, title) VALUES ('p', md5('1')::uuid, 'the first');
INSERT INTO resource.profiles (project_id, profile_box_id, name, worker_target)
    VALUES ('p', md5('1')::uuid, 'clerk', 'w');
INSERT INTO resource.project_agents (project_id, agent_id, profile_box_id, worker_target)
    VALUES ('p', 'clerk-1', md5('1')::uuid, 'w');
INSERT INTO state.agent_state_head (project_id, agent_id) VALUES ('p', 'clerk-1');
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, agent_turn_id, status)
    SELECT 'p', 'inbox-' || i, 'clerk-1', 'turn', 'turn-' || i, 'turn-' || i, 'consumed'
    FROM generate_series(1, {rows}) AS i;
INSERT INTO state.execution_edges (project_id, edge_id, primitive, edge_phase, correlation_id, recursion_depth)
    SELECT 'p', 'edge-' || i, 'enqueue', 'request', 'turn-' || i, 0 FROM generate_series(1, {rows}) AS i;
INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status)
    SELECT 'p', 'clerk-1', 'step-' || i, 'turn-' || i, 'completed' FROM generate_series(1, {rows}) AS i;
INSERT INTO cbx.turns (project_id, agent_turn_id, agent_id, end_status)
    SELECT 'p', 'turn-' || i, 'clerk-1', 'success' FROM generate_series(1, {rows}) AS i;
"""


def filled(schema: str, rows: int) -> str:
    """Return a script that makes these tables, with `rows` rows in each table that grows."""
    return schema + _CARDS.replace("{rows}", str(rows))


def _next_schema() -> str:
    head, *pieces = re.split(r"^-- part: ([\w.]+)\n", SCHEMA, flags=re.MULTILINE)
    parts = dict(zip(pieces[::2], pieces[1::2], strict=True))
    parts["public.cards"] = parts["public.cards"].replace("\n);", ",\n    weight bigint\n);", 1) + _OF_CARDS
    parts["cbx.turns"] = parts["cbx.turns"].replace("\n);", ",\n    parcel_id text\n);", 1) + _OF_TURNS
    parts["state.agent_inbox"] += _OF_INBOX
    versions = parts.pop("cbx.schema_version")
    parts["cbx.parcels"] = f"CREATE SCHEMA IF NOT EXISTS cbx;\n{_TABLE}{_FUNCTION}"
    parts["cbx.schema_version"] = versions.replace(f"VALUES ({BEFORE})", f"VALUES ({AFTER})")
    return head + "".join(f"-- part: {name}\n{text}" for name, text in parts.items())


@dataclass(frozen=True)
class NextRelease:
    """The release, in a folder: `schema.sql`, and the numbered files in `migrations`."""

    folder: Path
    databases: Databases

    @contextmanager
    def fresh(self) -> Iterator[Database]:
        """Connect to a new database with the tables of the release."""
        name = self.databases.make("template1")
        with Database.connect(self.databases.target(name)) as database:
            add_missing_tables(database)
            yield database
        self.databases.drop(name)


@pytest.fixture
def next_release(
    tmp_path_factory: pytest.TempPathFactory, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> NextRelease:
    """Let this process be the next release."""
    folder = tmp_path_factory.mktemp("next_release")
    shutil.copytree(
        _FOLDER, folder / "migrations", ignore=lambda _, names: {n for n in names if n[-4:] != ".sql"}
    )
    for name, text in _CHANGES.items():
        (folder / "migrations" / name).write_text(text, encoding="utf-8")
    (folder / "schema.sql").write_text(_next_schema(), encoding="utf-8")
    monkeypatch.setattr(files, "FOLDER", str(folder / "migrations"))
    monkeypatch.setattr(files, "SCHEMA", folder / "schema.sql")
    return NextRelease(folder, databases)
