"""Who stays on a connection keeps the plans of what is asked again and again; a command keeps none."""

from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT

OFTEN = 8


def plans_kept(database: Database) -> int:
    """How many plans there are after a question was asked often; each is generic from the first time on."""
    for _ in range(OFTEN):
        CardStore(database, PROJECT).missing_ids(["x"])
    found = database.connection.execute(
        "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%cards%'"
    ).fetchall()
    assert all(generic and not custom for generic, custom in found)
    return len(found)


def test_a_long_running_program_prepares_statements(target: Target) -> None:
    with Database.open(target.conninfo) as database:
        assert plans_kept(database) == 1


def test_a_command_prepares_no_statements(target: Target) -> None:
    with Database.open_target(target) as database:
        assert plans_kept(database) == 0
