"""`cbx config`: the settings in force, and where each comes from."""

from typing import Any

import pytest

from cardbox_cli.settings import SETTINGS
from tests.cli.conftest import succeed
from tests.cli.test_secrets import MALFORMED, UNREACHABLE, reveals
from tests.conftest import PROJECT, Cbx

ENVIRONMENT = [variable for setting in SETTINGS for variable in (setting.name, *setting.instead)]


@pytest.fixture
def bare(offline: Cbx, monkeypatch: pytest.MonkeyPatch) -> Cbx:
    """Run `cbx` with none of the settings set, and no database."""
    for variable in (*ENVIRONMENT, "PGHOST", "PGSERVICE", "PGPORT", "PGDATABASE", "PGHOSTADDR"):
        monkeypatch.delenv(variable, raising=False)
    return offline


def told(cbx: Cbx, name: str, *options: str) -> tuple[Any, str]:
    """The value and the source of a setting."""
    setting = cbx("config", name, "-o", "json", *options).json()
    return setting["value"], setting["source"]


class TestTheList:
    def test_it_has_every_setting_in_every_format(self, bare: Cbx) -> None:
        names = [variable.name for variable in SETTINGS]
        header, *rows = succeed(bare("config")).splitlines()
        assert header.split() == ["NAME", "VALUE", "UNIT", "SOURCE", "HELP"]
        assert [row.split()[0] for row in rows] == names
        assert [each["name"] for each in bare("config", "-o", "json").json()] == names
        assert succeed(bare("config", "-o", "id")).splitlines() == names

    def test_without_variables_all_are_defaults(self, bare: Cbx) -> None:
        assert {each["source"] for each in bare("config", "-o", "json").json()} == {"default"}

    def test_programs_get_all_that_the_table_knows(self, bare: Cbx) -> None:
        [lease] = [each for each in bare("config", "-o", "json").json() if each["name"] == "CBX_LEASE"]
        assert lease == {
            "name": "CBX_LEASE",
            "value": 60,
            "unit": "s",
            "source": "default",
            "default": 60,
            "kind": "seconds",
            "lower": 1,
            "upper": 86400,
            "option": None,
            "secret": False,
            "help": "How long a claim lasts without a heartbeat.",
        }

    def test_values_that_cannot_be_are_shown_and_refused(
        self, bare: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CBX_POLL", "often")
        refused = bare("config")
        assert refused.code == 2
        assert refused.err.startswith(
            "error: CBX_POLL is 'often', not a number of seconds from 0.05 to 3600\n"
        )
        assert "CBX_POLL          often" in refused.out
        assert "CBX_TOOL_WAIT     300" in refused.out

    def test_so_are_those_that_do_not_go_together(self, bare: Cbx, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CBX_LEASE", "3")
        refused = bare("config")
        assert (refused.code, refused.err.split(" does not go with ")[0]) == (
            2,
            "error: CBX_HEARTBEAT of 20 s (the default)",
        )
        assert "CBX_LEASE         3 " in refused.out


class TestOne:
    @pytest.mark.parametrize("name", ["CBX_LEASE", "cbx_lease", "lease"])
    def test_its_value_alone_is_printed(self, bare: Cbx, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert succeed(bare("config", name)) == "60\n"
        monkeypatch.setenv("CBX_LEASE", "1e2")
        assert succeed(bare("config", name)) == "100\n"
        assert told(bare, name) == (100, "CBX_LEASE")

    def test_an_unknown_one_is_not_found(self, bare: Cbx) -> None:
        refused = bare("config", "leas")
        assert (refused.code, refused.err) == (
            3,
            "error: there is no setting 'leas'\nhint: `cbx config` lists them\n",
        )

    def test_the_project_comes_from_its_option_too(self, bare: Cbx, monkeypatch: pytest.MonkeyPatch) -> None:
        assert told(bare, "project") == ("default", "default")
        monkeypatch.setenv("CBX_PROJECT", PROJECT)
        assert told(bare, "project") == (PROJECT, "CBX_PROJECT")
        assert told(bare, "project", "--project", PROJECT) == (PROJECT, "--project")

    def test_so_does_the_database_or_from_the_variables_of_libpq(
        self, bare: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert told(bare, "database-url") == (None, "default")
        monkeypatch.setenv("PGHOST", "db")
        assert told(bare, "database-url") == ("libpq's environment", "PGHOST")
        monkeypatch.setenv("CBX_DATABASE_URL", "postgresql://h/d")
        assert told(bare, "database-url") == ("dbname=d host=h", "CBX_DATABASE_URL")
        assert told(bare, "database-url", "--database-url", "host=o") == ("host=o", "--database-url")

    def test_the_pager_and_the_editor_come_from_what_other_programs_know(
        self, bare: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PAGER", "most")
        monkeypatch.setenv("EDITOR", "nano")
        assert (told(bare, "pager"), told(bare, "visual")) == (("most", "PAGER"), ("nano", "EDITOR"))
        monkeypatch.setenv("CBX_PAGER", "")
        monkeypatch.setenv("VISUAL", " ")
        assert (told(bare, "pager"), told(bare, "visual")) == (("", "CBX_PAGER"), ("nano", "EDITOR"))


class TestPasswords:
    @pytest.mark.parametrize("name", ["CBX_DATABASE_URL", "CBX_LISTEN_URL", "CBX_NATS_URL"])
    @pytest.mark.parametrize("options", [(), ("-o", "json"), ("--debug",)], ids=["text", "json", "debug"])
    def test_no_address_shows_one(
        self, bare: Cbx, name: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if name == "CBX_NATS_URL":
            addresses = [
                "nats://u:hunter2@h",
                "tls://hunter2@h:4222,u:hunter2@g",
                "nats://u:hunter2@h/@",
                "u:hunter2@[h",
            ]
        else:
            addresses = [*UNREACHABLE, *MALFORMED]
        for address in addresses:
            monkeypatch.setenv(name, address)
            for result in (bare("config", *options), bare("config", name, *options)):
                assert result.code in (0, 2)
                assert not reveals(result), address
