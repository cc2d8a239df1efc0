"""The first start of the embedded server, killed at every step: the next command brings it up whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cardbox_cli.store.embedded import EmbeddedServer
from tests.cli.conftest import succeed
from tests.conftest import TABLES
from tests.crash.harness import Scene, contents, scene_at_home
from tests.store.embedded.helpers import leftovers, servers_of

# In their order. As root there are more folders to begin, before these.
STEPS = [
    "home made:1",
    "record written:1",
    "place recorded:1",
    "folder begun:1",
    "data begun:1",
    "data initialised:1",
    "data marked:1",
    "data in place:1",
    "server started:1",
    "database made:1",
    "commit:1",
]


@pytest.fixture
def home(quick_folder: Path, tmp_path: Path) -> Iterator[Path]:
    """A home that is yet to be made."""
    home = quick_folder / tmp_path.name
    yield home
    EmbeddedServer(home).destroy()


@pytest.fixture
def scene(home: Path, tmp_path: Path) -> Scene:
    return scene_at_home(EmbeddedServer(home), tmp_path)


def test_the_first_start_consists_of_the_listed_steps(scene: Scene) -> None:
    result, points = scene.points("db", "start")
    succeed(result)
    assert [point for point in points if point in STEPS] == STEPS
    made = points[: points.index("database made:1")]
    assert [point for point in made if point not in STEPS and "folder begun" not in point] == []


def test_a_first_start_killed_at_any_step_can_be_repeated(scene: Scene, home: Path) -> None:
    for step in STEPS:
        scene.kill(step, "db", "start")
    succeed(scene.run("db", "start"))
    server = EmbeddedServer(home)
    assert len(servers_of(server)) == 1
    assert leftovers(server) == []
    with scene.connection() as connection:
        made = [line.removesuffix(":") for line in contents(connection) if line.endswith(":")]
        assert made == sorted(TABLES)
