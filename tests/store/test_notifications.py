"""The doorbell of Postgres: who hears what and when, on two real connections; and what a dead one comes to."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.errors import Conflict, DatabaseUnavailable, UsageError
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.notifications import (
    MAX_PAYLOAD_BYTES,
    Listener,
    Waker,
    format_payload,
    notify,
    payload_filter,
)
from cardbox_cli.store.connection.target import Target, find_listen_target
from tests.conftest import PROJECT
from tests.databases import Databases

PATIENCE = 60
AT_ONCE = 0.0

Listen = Callable[..., Listener]


@pytest.fixture
def databases(embedded_databases: Databases) -> Databases:
    """NOTIFY is the same on every version; one server is enough."""
    return embedded_databases


@pytest.fixture
def announced() -> list[str]:
    return []


@pytest.fixture
def listen(target: Target, announced: list[str]) -> Iterator[Listen]:
    """Make a listener for a project and targets that listens already."""
    made = []

    def make(project_id: str | None = PROJECT, targets: tuple[str, ...] | None = ("writers",)) -> Listener:
        listener = Listener(target, payload_filter(project_id, targets), announced.append)
        made.append(listener)
        assert listener.wait(PATIENCE), "the first wait says that it listens"
        return listener

    yield make
    for listener in made:
        listener.close()


class TestNotify:
    def test_a_notification_is_received(self, database: Database, listen: Listen) -> None:
        listener = listen()
        notify(database, (PROJECT, "writers"))
        assert listener.wait(PATIENCE)
        assert not listener.wait(AT_ONCE)

    def test_a_notification_before_the_wait_is_received(self, database: Database, listen: Listen) -> None:
        listener = listen()
        notify(database, (PROJECT, "writers"))
        notify(database, (PROJECT, "others"))
        notify(database, (PROJECT, "done"))
        done = listen(PROJECT, ("done",))
        notify(database, (PROJECT, "done"))
        assert done.wait(PATIENCE)
        assert listener.wait(AT_ONCE)

    def test_notifying_within_a_transaction_is_refused(self, database: Database, listen: Listen) -> None:
        listener = listen()
        with database.transaction(), pytest.raises(Conflict) as refused:
            notify(database, (PROJECT, "writers"))
        assert refused.value.message == (
            "cannot notify workers within a transaction, because they would not see its rows"
        )
        assert refused.value.exit_code == 5
        assert not listener.wait(AT_ONCE)

    def test_notifying_in_a_callers_transaction_is_refused(self, target: Target) -> None:
        with psycopg.connect(target.conninfo or "") as connection, pytest.raises(Conflict):
            notify(Database.adopt(connection), (PROJECT, "writers"))

    def test_synchronous_commit_is_on_again_after_a_notification(self, database: Database) -> None:
        notify(database, (PROJECT, "writers"))
        assert database.connection.execute("SHOW synchronous_commit").fetchone() == ("on",)

    def test_one_statement_notifies_many_receivers_once(self, database: Database, target: Target) -> None:
        with psycopg.connect(target.conninfo or "", autocommit=True) as other:
            other.execute("LISTEN cbx_wakeup")
            notify(database, ("p", "b"), ("p", "a"), ("p", "b"), ("q", "a"))
            heard = [notice.payload for notice in other.notifies(timeout=PATIENCE, stop_after=3)]
        assert heard == ["p/a", "p/b", "q/a"]

    def test_a_broken_connection_is_reported(self, database: Database) -> None:
        database.close()
        with pytest.raises(DatabaseUnavailable):
            notify(database, ("p", "a"))


class TestReceivers:
    def test_another_project_does_not_receive_a_notification(
        self, database: Database, listen: Listen
    ) -> None:
        ours, theirs = listen(), listen("other")
        notify(database, ("other", "writers"))
        assert theirs.wait(PATIENCE)
        assert not ours.wait(AT_ONCE)

    def test_another_target_does_not_receive_a_notification(self, database: Database, listen: Listen) -> None:
        ours, theirs = listen(), listen(PROJECT, ("readers", "writers of books"))
        notify(database, (PROJECT, "writers of books"))
        assert theirs.wait(PATIENCE)
        assert not ours.wait(AT_ONCE)

    def test_a_listener_to_all_projects_receives_any_notification(
        self, database: Database, listen: Listen
    ) -> None:
        listener = listen(None)
        notify(database, ("any", "writers"))
        assert listener.wait(PATIENCE)

    def test_a_listener_to_all_targets_receives_any_notification(
        self, database: Database, listen: Listen
    ) -> None:
        listener = listen(PROJECT, None)
        notify(database, (PROJECT, "any"))
        assert listener.wait(PATIENCE)

    def test_a_notification_for_a_very_long_name_is_received(
        self, database: Database, listen: Listen
    ) -> None:
        name = "n" * 8000  # more than NOTIFY takes
        listener, everybody = listen(PROJECT, (name,)), listen(None, ("writers",))
        notify(database, (PROJECT, name))
        assert listener.wait(PATIENCE)
        assert everybody.wait(PATIENCE), "a digest may be meant for it"

    def test_an_interrupted_wait_ends(self, listen: Listen) -> None:
        listener = listen()
        listener.interrupt()
        assert not listener.wait(PATIENCE)


class TestPayload:
    def test_a_payload_is_readable_up_to_the_size_limit(self) -> None:
        target = "w" * (MAX_PAYLOAD_BYTES - len("p/"))
        assert format_payload("p", target) == f"p/{target}"
        assert format_payload("p", target + "w").startswith("sha256:")

    @given(st.text(), st.text() | st.text(min_size=MAX_PAYLOAD_BYTES), st.text())
    def test_a_payload_is_short_and_matches_its_receivers(self, project: str, target: str, more: str) -> None:
        said = format_payload(project, target)
        assert len(said.encode()) <= MAX_PAYLOAD_BYTES
        for projects in (project, None):
            for targets in ([target, more], None):
                assert payload_filter(projects, targets)(said)

    @given(st.text(), st.text(), st.text(), st.text())
    def test_an_exact_filter_matches_only_its_own_payload(
        self, project: str, target: str, a: str, b: str
    ) -> None:
        assert payload_filter(project, {target})(format_payload(a, b)) == (
            f"{project}/{target}" == f"{a}/{b}"
        )


class TestLostConnection:
    def test_a_lost_connection_wakes_the_listener_and_reconnects(
        self, database: Database, listen: Listen, announced: list[str]
    ) -> None:
        listener = listen()
        database.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'cbx listen' AND datname = current_database()"
        )
        assert listener.wait(PATIENCE), "something may have been missed"
        assert listener.wait(PATIENCE), "something may have been missed before it listened again"
        notify(database, (PROJECT, "writers"))
        assert listener.wait(PATIENCE)
        lost, again = announced
        assert lost.startswith("warning: no wakeups from Postgres: the connection to the database was lost: ")
        assert lost.endswith("; workers poll")
        assert again == "wakeups from Postgres arrive again"


class TestListenTarget:
    def test_cbx_listen_url_overrides_the_address_of_the_database(self, target: Target) -> None:
        assert find_listen_target(target, environ={}) is target
        named = find_listen_target(target, environ={"CBX_LISTEN_URL": "host=direct"})
        assert (named.conninfo, named.named_by) == ("host=direct", "CBX_LISTEN_URL")

    @pytest.mark.parametrize("url", ["postgresql://u:a@hunter2@h/d", "host=h password='hunter2", "hunter2"])
    def test_a_malformed_address_is_refused_without_being_shown(self, target: Target, url: str) -> None:
        with pytest.raises(UsageError) as refused:
            find_listen_target(target, environ={"CBX_LISTEN_URL": url})
        assert refused.value.message == "the connection string from CBX_LISTEN_URL is malformed"
        assert refused.value.exit_code == 2
        assert "hunter2" not in f"{refused.value.hint} {refused.value.__cause__}"

    def test_an_unreachable_address_is_announced_without_its_password(self, announced: list[str]) -> None:
        target = Target("host=127.0.0.1 port=1 user=u password=hunter2", "CBX_LISTEN_URL", Path())
        listener = Listener(target, payload_filter("p", None), announced.append)
        assert not listener.wait(0.3)
        listener.close()
        (said,) = announced
        assert said.startswith("warning: no wakeups from Postgres: cannot connect (CBX_LISTEN_URL: ")
        assert "hunter2" not in said


class TestWaker:
    def test_a_wake_lasts_until_the_next_wait(self) -> None:
        waker = Waker()
        for _ in range(100_000):
            waker.wake()
        assert waker.wait(PATIENCE)
        while waker.wait(AT_ONCE):
            pass
        assert not waker.wait(AT_ONCE)
        waker.close()
        waker.wake()
