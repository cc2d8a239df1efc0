"""`cbx profile validate`. Needs no database."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.options.input_files import all_of, read_text, source_name
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import CbxError, InvalidInput, NotFound
from cardbox_cli.model.text.quantities import count


@verb("validate", "cbx profile validate profiles/*.yaml")
def validate_profiles(
    files: Annotated[list[str], Argument(click_type=FILE, help="YAML files, one profile each; - for stdin.")],
) -> None:
    """Check profiles: all that is wrong with any of them, with file and line. Exit 4 if anything is."""
    failures: list[CbxError] = []
    names: dict[str, str] = {}
    for file in files:
        try:
            name = _name_of(file)
            if name in names:
                raise InvalidInput(
                    f"{source_name(file)}: the profile {name!r} stands in {source_name(names[name])}, too",
                    hint="give each profile a name of its own",
                )
            names[name] = file
        except (InvalidInput, NotFound) as exc:
            failures.append(exc)
    if failures:
        raise all_of(failures)
    valid = count(len(files), "valid profile")
    output.emit({"valid": files, "problems": []}, table=lambda: output.print_text(valid), ids=files)


def _name_of(file: str) -> str:
    """The name of the profile in a file, in one case, as it is found by; tells what is doubtful in it."""
    from cardbox_cli.execution.handlers import unknown_handlers
    from cardbox_cli.model.handwritten.profiles import doubts, parse_profile
    from cardbox_cli.model.identity import allowed_handlers

    profile = parse_profile(read_text(file), source_name(file))
    # Which tools there are only a project knows: those that are named count as registered.
    named = profile.get("must_end_with", [])
    for warning in [*doubts(profile, named), *unknown_handlers(allowed_handlers(profile))]:
        announce(f"warning: {source_name(file)}: {warning}")
    return str(profile["name"]).casefold()
