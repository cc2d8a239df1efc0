"""Nothing that the user has set for other servers bends the way to this one, or the server itself."""

import os
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import pq

from cardbox_cli.store.embedded import EmbeddedServer
from tests.store.embedded.helpers import value

HOSTILE = {
    "PGCHANNELBINDING": "require",
    "PGCLIENTENCODING": "SQL_ASCII",
    "PGCONNECT_TIMEOUT": "soon",
    "PGDATABASE": "nix",
    "PGGSSDELEGATION": "1",
    "PGGSSENCMODE": "require",
    "PGHOST": "db.invalid",
    "PGHOSTADDR": "192.0.2.1",
    "PGLOADBALANCEHOSTS": "nonsense",
    "PGMAXPROTOCOLVERSION": "9.9",
    "PGMINPROTOCOLVERSION": "9.9",
    "PGOPTIONS": "-c default_transaction_read_only=on",
    "PGPASSFILE": "/nonexistent",
    "PGPASSWORD": "wrong",
    "PGPORT": "1",
    "PGREQUIREAUTH": "scram-sha-256",
    "PGREQUIREPEER": "mallory",
    "PGREQUIRESSL": "1",
    "PGSERVICEFILE": "/nonexistent",
    "PGSSLCERT": "/nonexistent",
    "PGSSLCERTMODE": "require",
    "PGSSLCOMPRESSION": "nonsense",
    "PGSSLCRL": "/nonexistent",
    "PGSSLCRLDIR": "/nonexistent",
    "PGSSLKEY": "/nonexistent",
    "PGSSLMAXPROTOCOLVERSION": "nonsense",
    "PGSSLMINPROTOCOLVERSION": "nonsense",
    "PGSSLMODE": "verify-full",
    "PGSSLNEGOTIATION": "direct",
    "PGSSLROOTCERT": "system",
    "PGSSLSNI": "nonsense",
    "PGTARGETSESSIONATTRS": "standby",
    "PGUSER": "mallory",
}
# No connection parameter overrules these.
HOSTILE_TO_CONNINFO = {
    "PGDATESTYLE": "SQL, DMY",
    "PGGEQO": "nonsense",
    "PGSERVICE": "nix",
    "PGTZ": "Asia/Tokyo",
}
HARMLESS = {"PGAPPNAME", "PGKRBSRVNAME", "PGGSSLIB"}


def test_every_environment_variable_of_libpq_is_covered() -> None:
    known = {option.envvar.decode() for option in pq.Conninfo.get_defaults() if option.envvar}
    assert known <= HOSTILE.keys() | HOSTILE_TO_CONNINFO.keys() | HARMLESS


def test_hostile_variables_do_not_affect_a_connection(
    shared: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("transaction_read_only", "timezone", "datestyle", "client_encoding")
    usual = [value(shared, f"SHOW {setting}") for setting in settings]
    hostile = HOSTILE | HOSTILE_TO_CONNINFO
    for name, setting in hostile.items():
        monkeypatch.setenv(name, setting)
    assert [value(shared, f"SHOW {setting}") for setting in settings] == usual
    assert {name: os.environ[name] for name in hostile} == hostile


def test_hostile_variables_do_not_affect_the_conninfo_string(
    shared: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, setting in HOSTILE.items():
        monkeypatch.setenv(name, setting)
    psycopg.connect(shared.conninfo()).close()


def test_the_server_does_not_inherit_hostile_variables(
    made_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = HOSTILE | HOSTILE_TO_CONNINFO | {"PGDATA": "/nonexistent", "SECRET": "s3cret"}
    for name, setting in foreign.items():
        monkeypatch.setenv(name, setting)
    server = EmbeddedServer(made_home)
    server.start()
    inherited = psutil.Process(server.status().pid).environ()
    assert not foreign.items() & inherited.items()
    assert "SECRET" not in inherited
