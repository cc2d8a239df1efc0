"""Notifiers and listeners as a dispatch and a worker use them, on real Postgres and a real nats-server."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace
from nats.aio.client import Client

from cardbox_cli.errors import UsageError
from cardbox_cli.execution.notifications.nats import Nats
from cardbox_cli.execution.notifications.notifier import Notifiers, end_event, state_event, step_event
from cardbox_cli.execution.notifications.service import (
    PostgresNotifier,
    PostgresSubscription,
    WakeupListener,
    Wakeups,
)
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.crash.processes import until
from tests.databases import Databases
from tests.execution.notifications.conftest import PATIENCE, NatsServer
from tests.execution.notifications.test_protocol import TURN, WAKEUP
from tests.pooled.pooler import PooledDatabases

AT_ONCE = 0.0
BLOCKED = 10  # seconds: bounded, with room for a slow machine

Open = Callable[[str | None], Wakeups]


@pytest.fixture
def heard(databases: Databases, target: Target) -> Target:
    """Where to listen: the database itself, also where the tests reach it through a pooler."""
    return databases.direct(target) if isinstance(databases, PooledDatabases) else target


@pytest.fixture
def open_wakeups(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, announced: list[str]
) -> Iterator[Open]:
    """Open wakeups with CBX_NATS_URL as given, and behind a pooler with CBX_LISTEN_URL as documented."""
    opened = []
    listen_url = None
    if "target" in request.fixturenames:
        target, heard = (request.getfixturevalue(name) for name in ("target", "heard"))
        listen_url = None if heard is target else heard.conninfo

    def make(url: str | None) -> Wakeups:
        for name, value in (("CBX_LISTEN_URL", listen_url), ("CBX_NATS_URL", url)):
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        opened.append(Wakeups(announced.append))
        return opened[-1]

    yield make
    for wakeups in opened:
        wakeups.close()


@contextmanager
def nats_listener(
    nats: Nats, project_id: str | None = "p", target: str = "writers"
) -> Iterator[WakeupListener]:
    """A listener for NATS alone, that listens already."""
    with WakeupListener() as listener:
        listening = nats.subscribe(project_id, [target], listener.wake)
        assert listening is not None
        listener.callback(listening)
        assert listener.wait(PATIENCE)
        yield listener


def kept(server: NatsServer, subject: str) -> tuple[dict[str, str], Any, Any]:
    """The last message on `subject` that a stream keeps: its headers and its body; and that stream."""

    async def read() -> tuple[dict[str, str], Any, Any]:
        client = Client()
        await client.connect(server.url)
        try:
            streams = client.jetstream()
            name = await streams.find_stream_name_by_subject(subject)
            message = await streams.get_last_msg(name, subject)
            return (
                message.headers or {},
                json.loads(message.data or b""),
                (await streams.stream_info(name)).config,
            )
        finally:
            await client.close()

    return asyncio.run(read())


class TestPostgresAlone:
    def test_a_notification_wakes_a_listener_after_the_commit(
        self, open_wakeups: Open, database: Database, target: Target, announced: list[str]
    ) -> None:
        wakeups = open_wakeups(None)
        notifiers = wakeups.notifiers(database)
        with wakeups.listener(target, project_id="p", worker_targets=["writers"]) as listener:
            assert listener.wait(PATIENCE), "listening from now on"
            with database.transaction():
                database.run("notify", payloads=["p/writers"])
                assert not listener.wait(AT_ONCE)
            assert listener.wait(PATIENCE)
            notifiers.notify(WAKEUP)
            assert listener.wait(PATIENCE)
        assert announced == []

    def test_a_failing_notifier_prints_one_warning_and_raises_no_error(
        self, open_wakeups: Open, database: Database, announced: list[str]
    ) -> None:
        notifiers = open_wakeups(None).notifiers(database)
        with database.transaction():
            notifiers.notify(WAKEUP)
            notifiers.notify(WAKEUP)
        assert announced == [
            "warning: no wakeup by Postgres: cannot notify workers within a transaction, because they would "
            "not see its rows; workers find the work when they poll"
        ]
        notifiers.notify(WAKEUP)
        with database.transaction():
            notifiers.notify(WAKEUP)
        assert len(announced) == 2, "it had gone well meanwhile"

    def test_an_empty_notification_does_not_use_the_database(
        self, database: Database, announced: list[str]
    ) -> None:
        database.close()
        Notifiers([], announced.append).notify(WAKEUP)
        Wakeups(announced.append).notifiers(database).notify()
        assert announced == []

    def test_events_are_not_published_without_nats(self, open_wakeups: Open) -> None:
        assert open_wakeups(None).publish is None

    def test_the_nats_library_is_not_imported_without_an_address(self) -> None:
        code = (
            "import os, sys; os.environ.pop('CBX_NATS_URL', None)\n"
            "from cardbox_cli.execution.notifications.service import Wakeups\n"
            "Wakeups(print).close(); print('nats' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"

    def test_a_listener_without_subscriptions_only_waits(self) -> None:
        with WakeupListener() as listener:
            assert not listener.wait(0.01)
            listener.wake()
            assert listener.wait(PATIENCE)

    def test_a_malformed_listen_address_is_refused(
        self, open_wakeups: Open, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wakeups = open_wakeups(None)
        monkeypatch.setenv("CBX_LISTEN_URL", "nonsense")
        with pytest.raises(UsageError):
            wakeups.listener(target, project_id="p", worker_targets=None)


class TestNats:
    def test_a_wakeup_arrives_and_is_stored_as_the_protocol_requires(
        self, open_wakeups: Open, database: Database, shared_nats: NatsServer, announced: list[str]
    ) -> None:
        nats = Nats(shared_nats.url, announced.append)
        with (
            nats_listener(nats) as listener,
            nats_listener(nats) as second,
            nats_listener(nats, "other") as other,
        ):
            open_wakeups(shared_nats.url).notifiers(database).notify(WAKEUP)
            assert listener.wait(PATIENCE)
            assert second.wait(PATIENCE), "every worker of the target hears it"
            assert not other.wait(AT_ONCE)
        nats.close()
        headers, body, stream = kept(shared_nats, "cg.v1r4.p.public.cmd.agent.writers.wakeup")
        assert headers["CG-Agent-Id"] == "writer"
        assert headers["CG-Turn-Epoch"] == "3"
        assert not {"CG-Recursion-Depth", "CG-Step-Id"} & set(headers)
        assert body == {"inbox_id": "turn_1", "reason": "dispatch_next"}
        assert (stream.name, stream.subjects) == ("cg_cmd_v1r4", ["cg.v1r4.*.*.cmd.>"])
        assert stream.max_age == 24 * 3600
        assert announced == []

    def test_a_closed_subscription_receives_no_more_wakeups(
        self, open_wakeups: Open, shared_nats: NatsServer, announced: list[str]
    ) -> None:
        nats = Nats(shared_nats.url, announced.append)
        heard: list[int] = []
        with nats_listener(nats) as listener:
            listening = nats.subscribe("p", ["writers"], lambda: heard.append(1))
            assert listening is not None
            listening()
            nats.notify([WAKEUP])
            assert listener.wait(PATIENCE)
        nats.close()
        assert len(heard) <= 1, "as it began to listen, and never again"

    def test_events_are_stored_for_a_week(
        self, open_wakeups: Open, shared_nats: NatsServer, announced: list[str]
    ) -> None:
        publish = open_wakeups(shared_nats.url).publish
        assert publish is not None
        publish(end_event(TURN, "failed", "box", "card", error="it broke", error_code="broken"))
        publish(step_event(TURN, "step_1", "completed", ("c1", "c2")))
        moment = datetime(2026, 3, 1, 13, 0, 0, 5000, tzinfo=timezone(timedelta(hours=1)))
        publish(state_event(TURN, "running", moment, activity="thinking"))

        place = "cg.v1r4.p.public.evt.agent.writer"
        headers, task, stream = kept(shared_nats, f"{place}.task")
        assert task == {
            "agent_turn_id": "turn_1",
            "status": "failed",
            "output_box_id": "box",
            "deliverable_card_id": "card",
            "error": "it broke",
            "error_code": "broken",
        }
        assert headers["CG-Turn-Id"] == "turn_1"
        assert (stream.name, stream.max_age) == ("cg_evt_v1r4", 7 * 24 * 3600)
        assert kept(shared_nats, f"{place}.step")[1] == {
            "agent_turn_id": "turn_1",
            "step_id": "step_1",
            "phase": "completed",
            "metadata": {},
            "new_card_ids": ["c1", "c2"],
        }
        assert kept(shared_nats, f"{place}.state")[1] == {
            "agent_id": "writer",
            "agent_turn_id": "turn_1",
            "status": "running",
            "turn_epoch": 3,
            "updated_at": "2026-03-01T12:00:00.005000Z",
            "metadata": {"activity": "thinking"},
        }
        assert announced == []

    def test_wakeups_arrive_again_after_a_server_restart(
        self, start_nats: Callable[..., NatsServer], announced: list[str]
    ) -> None:
        server = start_nats()
        nats = Nats(server.url, announced.append)
        with nats_listener(nats) as listener:
            server.stop()
            assert listener.wait(PATIENCE), "something may have been missed"
            server.start()
            until(lambda: "wakeups by NATS arrive again" in announced)
            while listener.wait(AT_ONCE):
                pass
            nats.notify([WAKEUP])
            assert listener.wait(PATIENCE)
        nats.close()
        assert announced[0].startswith(f"warning: no wakeups by NATS: {server.url}: ")
        assert announced[0].endswith("; workers poll")

    def test_unroutable_names_are_reported_and_the_others_are_notified(
        self, open_wakeups: Open, database: Database, shared_nats: NatsServer, announced: list[str]
    ) -> None:
        nats = Nats(shared_nats.url, announced.append)
        with nats_listener(nats) as listener:
            odd = replace(WAKEUP, project_id="a.b")
            open_wakeups(shared_nats.url).notifiers(database).notify(odd, WAKEUP)
            assert listener.wait(PATIENCE)
            assert nats.subscribe("p", ["a b"], listener.wake) is None
        nats.close()
        assert announced == [
            "warning: no wakeup by NATS: project 'a.b' cannot be part of a NATS subject; "
            "workers find the work when they poll",
            "warning: no wakeups by NATS: worker target 'a b' cannot be part of a NATS subject; workers poll",
        ]


class TestNatsInTrouble:
    def test_an_unreachable_server_is_reported_soon(
        self, open_wakeups: Open, database: Database, heard: Target, announced: list[str]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        wakeups = open_wakeups(f"nats://u:hunter2@127.0.0.1:{port}")
        self.notify_in_vain(wakeups, database, heard, announced)
        assert announced[0].startswith(f"warning: no wakeup by NATS: nats://127.0.0.1:{port}: ")
        assert "hunter2" not in "".join(announced)

    def test_a_silent_server_is_reported_soon(
        self, open_wakeups: Open, database: Database, heard: Target, announced: list[str]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            wakeups = open_wakeups(f"nats://127.0.0.1:{silent.getsockname()[1]}")
            self.notify_in_vain(wakeups, database, heard, announced)

    def notify_in_vain(
        self, wakeups: Wakeups, database: Database, heard: Target, announced: list[str]
    ) -> None:
        """Postgres notifies all the same, nobody waits for long, and later wakeups do not wait at all."""
        notifiers, publish = wakeups.notifiers(database), wakeups.publish
        assert publish is not None
        with WakeupListener() as listener:
            began = time.monotonic()
            listener.callback(
                PostgresSubscription(heard, "p", ["writers"], listener.wake, announced.append).close
            )
            assert listener.wait(PATIENCE)
            notifiers.notify(WAKEUP)
            for _ in range(1000):
                notifiers.notify(WAKEUP)
                publish(step_event(TURN, "s", "started"))
            assert listener.wait(PATIENCE)
        assert time.monotonic() - began < BLOCKED
        assert sum("no wakeup by NATS" in said for said in announced) == 1
        assert sum("no events by NATS" in said for said in announced) == 1

    def test_a_wrong_password_is_reported_without_showing_it(
        self,
        start_nats: Callable[..., NatsServer],
        open_wakeups: Open,
        database: Database,
        announced: list[str],
    ) -> None:
        server = start_nats("--user", "u", "--pass", "right")
        with_password = server.url.replace("//", "//u:{}@")
        open_wakeups(with_password.format("hunter2")).notifiers(database).notify(WAKEUP)
        (said,) = announced
        # The server says why, and closes; which of the two is heard first is a matter of luck.
        assert "Authorization Violation" in said or "Connection reset" in said
        assert "hunter2" not in said
        open_wakeups(with_password.format("right")).notifiers(database).notify(WAKEUP)
        assert announced == [said]

    def test_a_server_without_jetstream_is_reported(
        self,
        start_nats: Callable[..., NatsServer],
        open_wakeups: Open,
        database: Database,
        announced: list[str],
    ) -> None:
        server = start_nats(jetstream=False)
        open_wakeups(server.url).notifiers(database).notify(WAKEUP)
        (said,) = announced
        assert said.startswith(f"warning: no wakeup by NATS: {server.url}: no stream cg_")


class TestBothAtOnce:
    def test_either_notification_wakes_a_listener_with_both_subscriptions(
        self, database: Database, heard: Target, shared_nats: NatsServer, announced: list[str]
    ) -> None:
        nats = Nats(shared_nats.url, announced.append)
        with nats_listener(nats) as listener:
            listener.callback(
                PostgresSubscription(heard, "p", ["writers"], listener.wake, announced.append).close
            )
            assert listener.wait(PATIENCE)
            PostgresNotifier(database).notify([WAKEUP])
            assert listener.wait(PATIENCE)
            nats.notify([WAKEUP])
            assert listener.wait(PATIENCE)
        nats.close()
        assert announced == []

    def test_the_listener_of_a_worker_has_both_subscriptions(
        self,
        open_wakeups: Open,
        database: Database,
        target: Target,
        shared_nats: NatsServer,
        announced: list[str],
    ) -> None:
        wakeups = open_wakeups(shared_nats.url)
        with wakeups.listener(target, project_id="p", worker_targets=["writers"]) as listener:
            assert listener.wait(PATIENCE)
            wakeups.notifiers(database).notify(WAKEUP)
            assert listener.wait(PATIENCE)
        assert announced == []

    def test_postgres_wakes_a_listener_if_nats_is_unreachable(
        self, open_wakeups: Open, database: Database, target: Target, announced: list[str]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        wakeups = open_wakeups(f"nats://127.0.0.1:{port}")
        with wakeups.listener(target, project_id="p", worker_targets=["writers"]) as listener:
            assert listener.wait(PATIENCE)
            PostgresNotifier(database).notify([WAKEUP])
            assert listener.wait(PATIENCE)
            until(lambda: announced)
        (said,) = announced
        assert said.startswith(f"warning: no wakeups by NATS: nats://127.0.0.1:{port}: ")


class TestTheAddress:
    @pytest.mark.parametrize(
        "url",
        [
            "http://u:hunter2@h",
            "nats://",
            "nats://u:hunter2@h:port",
            "nats://h,hunter2@",
            "nats://h/x?hunter2",
        ],
    )
    def test_a_malformed_address_is_refused_without_showing_it(self, open_wakeups: Open, url: str) -> None:
        with pytest.raises(UsageError) as refused:
            open_wakeups(url)
        assert refused.value.message == "CBX_NATS_URL is malformed"
        assert "hunter2" not in str(refused.value.hint)

    def test_the_error_for_a_missing_library_names_the_extra(self) -> None:
        code = (
            "import os, sys; os.environ['CBX_NATS_URL'] = 'nats://h'; sys.modules['nats'] = None\n"
            "from cardbox_cli.errors import UsageError\n"
            "from cardbox_cli.execution.notifications.service import Wakeups\n"
            "try: Wakeups(print)\n"
            "except UsageError as exc: print(exc.message, '|', exc.hint)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == (
            "CBX_NATS_URL is set, but the library for NATS is not installed | "
            "pip install 'cardbox-cli[nats]', or unset CBX_NATS_URL"
        )
