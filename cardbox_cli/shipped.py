"""Location of the files that ship with cbx: `schema.sql`, `handovers/`, `examples/`.

In a wheel they are inside the package; in a checkout they are at its top, where people look for them.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped_path(name: str) -> Path:
    """Return the path of the shipped file or folder `name`, such as "schema.sql"."""
    installed = _PACKAGE / "shipped" / name
    return installed if installed.exists() else _PACKAGE.parent / name
