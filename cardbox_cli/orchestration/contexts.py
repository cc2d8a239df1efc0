"""The context of a delegated task: what is inherited, the instruction, and the pointer to who asked."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from cardbox_cli.packing.pack import pack
from cardbox_cli.packing.recipe_files import read_recipe
from cardbox_cli.store.profiles import ProfileEntry

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.model.handwritten.recipes import Recipe

_RECIPE = "delegate"


@cache
def _recipe() -> "Recipe":
    # The recipe that ships, whatever folder somebody works in: what a model's call packs is fixed.
    return read_recipe(_RECIPE, folders=()).recipe


def pack_context_with_instruction(
    runtime: "Runtime",
    *,
    profile: ProfileEntry,
    instruction: str,
    box_ids: Sequence[str],
    source_agent_id: str,
    tool_suffix: str,
) -> str:
    """Pack the cards of these boxes in order, then the instruction; the id of the new context box.

    The boxes are those that the caller may hand on. Takes part in the caller's transaction.
    """
    arguments = {"profile_name": profile.name, "instruction": instruction, "input_box_ids": list(box_ids)}
    packed = pack(
        runtime.database,
        runtime.project_id,
        recipe=_recipe(),
        recipe_name=_RECIPE,
        arguments=arguments,
        tool_suffix=tool_suffix,
        source_agent_id=source_agent_id,
        profile=profile,
    )
    assert packed.context_box_id is not None
    return packed.context_box_id
