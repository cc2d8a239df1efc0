"""A connection that is kept for the next command is lent where a fresh one would lead to the same place only."""

from pathlib import Path

import psycopg
import pytest

from cardbox_cli.store.connection.connection_pool import CachedDatabase
from cardbox_cli.store.connection.target import Target
from tests.databases import Databases


def name_of(cached: CachedDatabase, target: Target) -> tuple[str, int]:
    with cached.borrow(target) as database:
        return database.connection.info.dbname, database.connection.info.backend_pid


def write_service(file: Path, target: Target) -> None:
    address = psycopg.conninfo.conninfo_to_dict(target.conninfo or "")
    file.write_text("\n".join(["[here]", *(f"{name}={value}" for name, value in address.items())]))


def test_a_changed_service_file_opens_a_new_connection(
    databases: Databases, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = databases.target(databases.make())
    file = tmp_path / "services"
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    service, cached = Target("service=here", "the test", target.home), CachedDatabase()
    write_service(file, target)
    first = name_of(cached, service)
    assert name_of(cached, service) == first
    write_service(file, other)
    assert name_of(cached, service)[0] != first[0]
    cached.close()
    databases.drop(psycopg.conninfo.conninfo_to_dict(other.conninfo or "")["dbname"])


def test_a_cached_connection_is_reused_only_in_its_environment(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = CachedDatabase()
    monkeypatch.setenv("PGAPPNAME", "one")
    with cached.borrow(target) as first:
        monkeypatch.setenv("PGAPPNAME", "two")
        with cached.borrow(target) as second:
            assert second is not first
    with cached.borrow(target) as third:
        assert third is second
    monkeypatch.setenv("PGAPPNAME", "one")
    with cached.borrow(target) as fourth:
        assert fourth is not second
    cached.close()
