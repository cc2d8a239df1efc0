"""Batches are the same on every surface: those that cbx keeps, and another system's."""

from cardbox_cli.execution.runtime import Runtime
from tests.diagnosis.conftest import World, world
from tests.diagnosis.test_batches import theirs
from tests.inspect.conftest import Surface

__all__ = ["world"]


def test_a_batch_of_cbx_is_the_same_on_every_surface(
    command: Surface, http: Surface, page: Surface, world: World, runtime: Runtime
) -> None:
    _, batch_id = world.fork()
    shown = command("batch", "show", batch_id[-8:])
    assert shown == http(f"/batches/{batch_id[-8:]}")
    assert (shown["batch_id"], shown["foreign"], len(shown["results"])) == (batch_id, False, 2)
    seen = page(f"/batches/{batch_id[-8:]}")
    assert all(each["agent_turn_id"][-8:] in seen for each in shown["results"])
    assert command("batch", "list") == http("/batches")
    assert batch_id[-8:] in page("/batches")


def test_a_batch_of_another_system_is_the_same_on_every_surface(
    command: Surface, http: Surface, page: Surface, world: World
) -> None:
    _, child = theirs(world)
    shown = command("batch", "show", "batch_theirs")
    assert shown == http("/batches/batch_theirs")
    assert (shown["foreign"], [each["agent_turn_id"] for each in shown["results"]]) == (True, [child])
    assert child[-8:] in page("/batches/batch_theirs")
    assert command("batch", "list") == http("/batches")
