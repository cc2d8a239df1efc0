"""What is wrong with several files that people wrote, told as one error."""

from collections.abc import Sequence

from cardbox_cli.errors import CbxError, InvalidInput


def all_of(failures: Sequence[CbxError]) -> CbxError:
    """One error that tells them all: invalid if any is, else not found."""
    worst = next((each for each in failures if isinstance(each, InvalidInput)), failures[0])
    return type(worst)(
        "\n".join(each.message for each in failures),
        hint=worst.hint,
        details={"problems": [one for each in failures for one in each.details.get("problems", [])]},
    )
