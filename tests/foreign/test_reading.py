"""Looking at what an existing deployment wrote, on its own tables alone."""

import pytest

from tests.conftest import Cbx
from tests.foreign.scenes import SCENES, Scene
from tests.foreign.tables import rows
from tests.foreign.writer import Deployment


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_looking_changes_not_a_byte(scene: Scene, deployment: Deployment, cbx: Cbx) -> None:
    turn = scene(deployment)
    before = rows(deployment.connection)
    render = cbx(
        "render", "--box", turn.profile_box_id, "--box", turn.context_box_id, "--box", turn.output_box_id
    )
    assert (render.code, render.err) == (0, "")
    assert rows(deployment.connection) == before
