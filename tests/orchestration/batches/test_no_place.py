"""Databases that have no place for batches: not upgraded yet, or closed to the role. Turns go on there."""

from collections.abc import Callable, Iterator

import pytest

from cardbox_cli.errors import MissingRight, SchemaMissing
from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from tests.orchestration.batches.conftest import Fork
from tests.orchestration.conftest import calls, says

FORK = {"fork_join": {"tasks": [{"target_strategy": "new", "target_ref": "clerk", "instruction": "Count."}]}}


@pytest.fixture
def not_upgraded(runtime: Runtime) -> None:
    """The tables of batches are not made yet."""
    runtime.database.connection.execute("DROP TABLE cbx.batch_tasks, cbx.batches")
    runtime.database.clear_table_cache()


@pytest.fixture
def reader(runtime: Runtime) -> Iterator[str]:
    """The connection's role, which may write everything but batches; these it reads and changes."""
    connection = runtime.database.connection
    name = f"half_{connection.info.dbname[-12:]}"
    for statement in (
        f"CREATE ROLE {name}",
        f"GRANT USAGE ON SCHEMA public, resource, state, cbx TO {name}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public, resource, state, cbx TO {name}",
        f"REVOKE INSERT ON cbx.batches FROM {name}",
        f"SET ROLE {name}",
    ):
        connection.execute(statement.encode())
    runtime.database.clear_table_cache()
    yield name
    for statement in ("RESET ROLE", f"DROP OWNED BY {name}", f"DROP ROLE {name}"):
        connection.execute(statement.encode())


def fork_by_a_model(
    runtime: Runtime, ask: Callable[..., DispatchResult], run: Callable[..., RunOutcome]
) -> dict[str, str]:
    """The error that a model reads which forks, and then ends its turn."""
    turn_id = ask("lead").agent_turn_id or ""
    done = run(says(FORK, "I do it myself."))
    assert (done.kind, done.message, done.steps) == ("ended", "success", 2)
    told: dict[str, str] = calls(runtime, turn_id)["fork_join"]
    return told


def test_a_fork_in_an_outdated_database_names_the_missing_table(
    runtime: Runtime,
    lead: str,
    ask: Callable[..., DispatchResult],
    run: Callable[..., RunOutcome],
    fork: Fork,
    not_upgraded: None,
) -> None:
    with pytest.raises(SchemaMissing, match=r"the database has no table cbx\.batches"):
        fork()
    assert fork_by_a_model(runtime, ask, run) == {
        "code": "schema_missing",
        "message": "the database has no table cbx.batches",
    }


def test_a_fork_without_write_rights_names_the_required_grant(
    runtime: Runtime,
    lead: str,
    ask: Callable[..., DispatchResult],
    run: Callable[..., RunOutcome],
    fork: Fork,
    reader: str,
) -> None:
    with pytest.raises(MissingRight) as caught:
        fork()
    assert caught.value.hint == f'GRANT SELECT, INSERT, UPDATE ON cbx.batches, cbx.batch_tasks TO "{reader}"'
    told = fork_by_a_model(runtime, ask, run)
    assert (
        told["message"]
        == f"the database role '{reader}' may not write the tables cbx.batches and cbx.batch_tasks"
    )
