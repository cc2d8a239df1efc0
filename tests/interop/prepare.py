"""Makes the environment of the card-box library, `.venv-interop`, unless it is there and complete.

Exits with SKIPPED, which is no success, where no Python is new enough or the package cannot be installed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-interop"
LIBRARY = "cardbox"
VERSION = "0.0.1"
OLDEST = (3, 12)
SKIPPED = 77

# A Python without ensurepip (Debian's, unless python3-venv is there) makes no environments.
_FITS = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {OLDEST})"
_INSTALLED = (
    "import importlib.metadata, cardbox.adapters.async_storage, sys\n"
    f"sys.exit(importlib.metadata.version({LIBRARY!r}) != {VERSION!r})"
)


def library_python() -> Path | None:
    """The Python that has the library; None where `prepare` has not made it."""
    python = ENVIRONMENT / "bin" / "python"
    return python if _succeeds([str(python), "-c", _INSTALLED]) else None


def candidates() -> Iterator[str]:
    """Pythons that may do, the best guess first."""
    yield from ("python3.14", "python3.13", "python3.12", "python3")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob("versions/*/bin/python"), reverse=True))


def prepare() -> Path:
    """The Python that has the library, after making its environment if need be. Exits where that fails."""
    ready = library_python()
    if ready is not None:
        return ready
    python = _new_enough_python()
    print(f"installing {LIBRARY} {VERSION} into {ENVIRONMENT.name} with {python}", flush=True)
    _run_or_skip([python, "-m", "venv", "--clear", str(ENVIRONMENT)], "the environment cannot be made")
    in_it = str(ENVIRONMENT / "bin" / "python")
    _run_or_skip(
        [in_it, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{LIBRARY}=={VERSION}"],
        f"{LIBRARY} {VERSION} cannot be installed",
    )
    ready = library_python()
    return ready or _skip(f"{LIBRARY} {VERSION} was installed and cannot be imported")


def _new_enough_python() -> str:
    named = os.environ.get("INTEROP_PYTHON")
    for candidate in [named] if named else candidates():
        if _succeeds([candidate, "-c", _FITS]):
            return candidate
    wanted = f"Python {'.'.join(map(str, OLDEST))} or later that can make virtual environments"
    if named:
        return _skip(f"INTEROP_PYTHON={named!r} is no {wanted}")
    return _skip(f"there is no {wanted}; name one with INTEROP_PYTHON=…")


def _succeeds(command: Sequence[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run_or_skip(command: Sequence[str], otherwise: str) -> None:
    if subprocess.run(command, check=False).returncode:
        _skip(otherwise)


def _skip(reason: str) -> NoReturn:
    print(f"nothing was proved: {reason}", file=sys.stderr)
    sys.exit(SKIPPED)


if __name__ == "__main__":
    print(f"the library runs on {prepare()}")
