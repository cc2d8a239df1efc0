"""The password of a database address: it reaches the server and nothing that is printed."""

from urllib.parse import quote

import pytest

from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import Shell, succeed
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


class TestAnAddressThatLeadsNowhere:
    @each_way
    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_it_is_told_without_the_password(
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
    def test_nor_is_it_shown_when_the_address_is_malformed(
        self, command: tuple[str, ...], options: tuple[str, ...], offline: Cbx
    ) -> None:
        for address in MALFORMED:
            result = offline(*command, *options, "--database-url", address)
            assert (result.code, result.out) == (2, ""), address
            assert "malformed" in result.err
            assert not reveals(result), address


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

    def test_an_error_there_does_not_either(self, address: str, cbx: Cbx) -> None:
        for options in ((), ("-o", "json"), ("--debug",)):
            result = cbx("box", "show", "nope", *options, "--database-url", address)
            assert result.code == 3
            assert not reveals(result)

    def test_psql_gets_it_in_its_environment_alone(self, address: str, shell: Shell) -> None:
        psql = shell.programs / "psql"
        psql.write_text('#!/bin/sh\necho "$# $*"\necho "$PGPASSWORD"\n')
        psql.chmod(0o755)
        command = ("db", "psql", "--database-url", address, "--", "-c", "SELECT 1")
        assert succeed(shell.run(*command)) == f"2 -c SELECT 1\n{SECRET}\n"
