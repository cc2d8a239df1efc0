"""The JSON values of a text that is one JSON document or JSON lines, each with the place where it stands.

Owns telling the two apart and saying where a text is no JSON. What the values mean is the reader's business.
"""

import json
from typing import Any

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json


def read_json_values(
    text: str, source: str, *, refuse_with: type[InvalidInput] = InvalidInput, hint: str | None = None
) -> list[tuple[str, Any]]:
    """The value of the whole text, or those of its lines, as (place, value).

    Raises `refuse_with`, naming `source`, line and column; `hint` says what was expected.
    """
    if not text.strip():
        raise refuse_with(f"{source} is empty", hint=hint)
    try:
        return [(source, exact_json.read(text))]
    except json.JSONDecodeError as whole:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        # Lines are what follows a first line that is a document of its own.
        if whole.msg != "Extra data" or len(lines) < 2 or whole.lineno != lines[1][0]:
            place = f"{source}:{whole.lineno}:{whole.colno}"
            raise refuse_with(f"{place}: not JSON: {whole.msg}", hint=hint) from whole
        return [
            (f"{source}:{number}", _line(line, f"{source}:{number}", refuse_with)) for number, line in lines
        ]
    except ValueError as exc:
        raise refuse_with(f"{source}: {exc}") from exc


def _line(line: str, place: str, refuse_with: type[InvalidInput]) -> Any:
    try:
        return exact_json.read(line)
    except json.JSONDecodeError as exc:
        raise refuse_with(f"{place}:{exc.colno}: not JSON: {exc.msg}") from exc
    except ValueError as exc:
        raise refuse_with(f"{place}: {exc}") from exc
