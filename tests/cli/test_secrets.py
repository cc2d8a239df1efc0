"""The password of a database address: it reaches the server and nothing that is printed."""

import time
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from cardbox_cli.execution.worker.command_output import shorten_trouble
from cardbox_cli.store.connection.target import Target, may_hold_password
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx, Result

SECRET = "hunter2"
ODD_SECRET = "h@nter 2/%é"

UNREACHABLE = [
    f"postgresql://u:{SECRET}@127.0.0.1:1/db",
    f"postgres://u:{SECRET}@127.0.0.1:1/db?sslmode=disable",
    f"postgresql://127.0.0.1:1/db?user=u&password={SECRET}",
    f"postgresql://u:{SECRET}@%2Fnonexistent/db",
    f"host=127.0.0.1 port=1 user=u password={SECRET}",
    f"host=127.0.0.1 port=1 password='{SECRET}' dbname=db",
    f"postgresql://u:{quote(ODD_SECRET, safe='')}@127.0.0.1:1/db",
]
MALFORMED = [
    f"postgresql://u:{SECRET}@127.0.0.1:1/db?nonsense=1",
    f"postgresql://u:{SECRET}@[::1/db",
    f"postgresql://u:{SECRET}%zz@127.0.0.1:1/db",
    f"mysql://u:{SECRET}@127.0.0.1/db",
    f"host=127.0.0.1 password={SECRET} nonsense",
    f"password='{SECRET}",
    f"postgresql://u:{SECRET}",
    f"postgresql://u:{SECRET}/db",
    f"postgresql://u:{SECRET}:{SECRET},host:5432",
    f"postgresql://u:{SECRET}%40host/db",
    f"dbname=postgresql://u:{SECRET}@127.0.0.1/db",
    f"host=127.0.0.1 port=1 user=postgresql://u:{SECRET}@127.0.0.1/db",
    SECRET,
]
COMMANDS = [("box", "list"), ("db", "status"), ("db", "psql"), ("db", "init"), ("db", "upgrade")]


def spelled(secret: str) -> list[str]:
    """A secret in every spelling in which it could be printed."""
    return [secret, repr(secret)[1:-1], quote(secret, safe=""), quote(secret)]


def reveals(result: Result) -> bool:
    """Whether a command printed a secret."""
    printed = result.out + result.err
    return any(text in printed for secret in (SECRET, ODD_SECRET) for text in spelled(secret))


each_way = pytest.mark.parametrize(
    "options", [(), ("-o", "json"), ("--debug",)], ids=["text", "json", "debug"]
)


def test_a_password_on_the_command_line_causes_a_warning(cbx: Cbx) -> None:
    for address in UNREACHABLE:
        assert cbx("box", "list", "--database-url", address).err.startswith(
            "warning: every user of this machine can see the password"
        )
    assert "warning" not in cbx("box", "list", "--database-url", "postgresql://u@127.0.0.1:1/db").err


class TestAnAddressThatLeadsNowhere:
    @each_way
    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_an_unreachable_address_is_reported_without_the_password(
        self,
        command: tuple[str, ...],
        options: tuple[str, ...],
        offline: Cbx,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for address in UNREACHABLE:
            as_option = offline(*command, *options, "--database-url", address)
            monkeypatch.setenv("CBX_DATABASE_URL", address)
            as_variable = offline(*command, *options)
            for result in (as_option, as_variable):
                assert result.code == 7, address
                assert "cannot connect" in result.err
                assert not reveals(result), address

    @each_way
    @pytest.mark.parametrize("command", [*COMMANDS, ("db", "url")], ids=" ".join)
    def test_a_malformed_address_is_reported_without_the_password(
        self, command: tuple[str, ...], options: tuple[str, ...], offline: Cbx
    ) -> None:
        for address in MALFORMED:
            result = offline(*command, *options, "--database-url", address)
            assert (result.code, result.out) == (2, ""), address
            assert "malformed" in result.err
            assert not reveals(result), address


class TestAnAddressInThePlaceOfAName:
    """libpq's variables and its file of services hold names, and its messages quote them."""

    @each_way
    @pytest.mark.parametrize("variable", ["PGSERVICE", "PGHOST", "PGDATABASE"])
    def test_a_url_in_a_libpq_variable_is_refused(
        self, variable: str, options: tuple[str, ...], offline: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CBX_DATABASE_URL")
        monkeypatch.setenv(variable, f"postgresql://u:{SECRET}@127.0.0.1:1/db")
        result = offline("box", "list", *options)
        assert result.code == 2
        assert f"{variable} is a URL" in result.err
        assert not reveals(result)

    @each_way
    def test_a_url_in_a_service_file_or_other_variable_is_not_shown(
        self,
        options: tuple[str, ...],
        target: Target,
        cbx: Cbx,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        parts = conninfo_to_dict(target.conninfo or "")
        services = tmp_path / "services"
        services.write_text(
            f"[shop]\nhost={parts['host']}\nport={parts.get('port', 5432)}\nuser={parts['user']}\n"
            f"dbname=postgresql://u:{SECRET}@127.0.0.1:1/db\n"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        for address in ("service=shop", f"service=postgresql://u:{SECRET}@127.0.0.1:1/db"):
            monkeypatch.setenv("CBX_DATABASE_URL", address)
            result = cbx("box", "list", *options)
            assert result.code in (2, 7)
            assert not reveals(result), result.err


class TestAnAddressThatLeadsSomewhere:
    """The server of the tests takes any password."""

    @pytest.fixture
    def address(self, target: Target) -> str:
        return f"{target.conninfo} password={SECRET} sslpassword={SECRET}"

    def test_neither_status_nor_url_show_the_password(self, address: str, cbx: Cbx) -> None:
        for command in (("db", "status"), ("db", "url"), ("box", "list"), ("db", "init")):
            for options in ((), ("-o", "json"), ("-o", "yaml"), ("--debug",)):
                result = cbx(*command, *options, "--database-url", address)
                assert result.code == 0
                assert not reveals(result), command

    def test_an_error_does_not_show_the_password(self, address: str, cbx: Cbx) -> None:
        for options in ((), ("-o", "json"), ("--debug",)):
            result = cbx("box", "show", "nope", *options, "--database-url", address)
            assert result.code == 3
            assert not reveals(result)

    def test_psql_gets_the_password_only_in_its_environment(self, address: str, shell: Shell) -> None:
        psql = shell.programs / "psql"
        psql.write_text('#!/bin/sh\necho "$# $*"\necho "$PGPASSWORD"\n')
        psql.chmod(0o755)
        command = ("db", "psql", "--database-url", address, "--", "-c", "SELECT 1")
        assert succeed(shell.run(*command)) == f"2 -c SELECT 1\n{SECRET}\n"

    def test_psql_gets_every_connection_parameter(self, target: Target, shell: Shell) -> None:
        address = f"{target.conninfo} sslpassword={SECRET} keepalives_idle=17 tcp_user_timeout=9000 options='-c x.y=1'"
        psql = shell.programs / "psql"
        psql.write_text('#!/bin/sh\necho "$*"\necho "$PGOPTIONS"\ncat "$PGSERVICEFILE"\n')
        psql.chmod(0o755)
        told, options, service, *parameters = lines(shell.run("db", "psql", "--database-url", address))
        assert (told, options, service) == ("", "-c x.y=1", "[cbx]")
        assert {"keepalives_idle=17", "tcp_user_timeout=9000", f"sslpassword={SECRET}"} <= set(parameters)
        psql.unlink()
        asked = ("SELECT current_setting('x.y')", "\\c", "SELECT 40 + 2")
        words = [word for each in asked for word in ("-c", each)]
        shown = succeed(shell.run("db", "psql", "--database-url", address, "--", "-XAtq", *words))
        assert (shown.splitlines()[0], shown.splitlines()[-1]) == ("1", "42")


def test_a_line_that_may_contain_a_password_is_detected() -> None:
    for line in (
        f"box list --database-url postgresql://u:{SECRET}@h/db",
        f"box list --database-url 'host=h PASSWORD = {SECRET}'",
        f"db psql -- postgres://u:{SECRET}",
    ):
        assert may_hold_password(line), line
    assert not may_hold_password("box list --database-url postgresql://h/db")


@pytest.mark.parametrize("piece", ["/", "@", ":", "postgres://", "://:", "password=", "'", "?", "a:", "-"])
def test_a_long_address_is_checked_quickly(piece: str, offline: Cbx) -> None:
    for address in (f"postgresql://{piece * 100_000}", piece * 100_000):
        began = time.process_time()
        may_hold_password(address)
        shorten_trouble(address)
        assert offline("box", "list", "--database-url", address).code in (2, 7)
        assert time.process_time() - began < 2
