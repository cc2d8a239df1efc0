"""The conversation files that a command line names, one or several or those of folders, each with its own
outcome."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cardbox_cli.cli.parameters.inputs import path_text
from cardbox_cli.cli.parameters.large_files import files_in
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import CbxError, Conflict, InvalidInput, NotFound
from cardbox_cli.model.text.quantities import count

if TYPE_CHECKING:
    from cardbox_cli.conversations.drafting import LeftOut

# What the conversation files of a folder end in.
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".af", ".eval", ".har")
# What is wrong with one file, and says nothing of the others.
_OF_A_FILE = (InvalidInput, NotFound, Conflict)


class Refused(NamedTuple):
    """A file that is refused, and why."""

    file: str
    error: CbxError

    @property
    def shown(self) -> dict[str, str]:
        """What programs are told of it."""
        return {"file": path_text(self.file), "code": self.error.code, "message": self.error.message}


def conversation_files(paths: Sequence[str]) -> list[str]:
    """The files of these paths: a folder stands for those in it that end as conversation files do.

    Raises InvalidInput for a folder without any.
    """
    return files_in(paths, _SUFFIXES)


def found_and_refused(paths: Sequence[str]) -> tuple[list[str], list[Refused]]:
    """The files of these paths, and the folders that `conversation_files` refuses."""
    found: list[str] = []
    refused: list[Refused] = []
    for path in paths:
        try:
            found += conversation_files([path])
        except InvalidInput as exc:
            refused.append(Refused(path, exc))
    return found, refused


def one_by_one(
    files: Sequence[str],
    take: Callable[[str, str], None],
    *,
    refuse: Callable[[Refused], bool],
) -> list[Refused]:
    """Take each file, which is told as its number of how many; those that are refused. `refuse` hears of one
    at once, and says whether the others shall be taken, too."""
    refused: list[Refused] = []
    for number, file in enumerate(files, 1):
        try:
            take(file, f"{number}/{len(files)}")
        except _OF_A_FILE as exc:
            refused.append(Refused(file, exc))
            if not refuse(refused[-1]):
                break
    return refused


def tell_left_out(left_out: "LeftOut", lead: str) -> None:
    """Tell on stderr how many conversations of a file say nothing, and where the first of them stands."""
    if left_out.number:
        where = left_out.first if left_out.number == 1 else f"the first at {left_out.first}"
        joint = ": " if left_out.number == 1 else ", "
        announce(f"{lead}{count(left_out.number, 'conversation')} without a message left out{joint}{where}")
