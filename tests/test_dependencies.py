"""What cbx installs with: bounds for users, and for development and CI a lock that keeps to them."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"].values()
ASKED = [Requirement(each) for each in sum(EXTRAS, PROJECT["project"]["dependencies"])]
# The extra `all` names the other extras of this project.
FOR_USERS = [each for each in ASKED if each.name != PROJECT["project"]["name"]]
FOR_US = [Requirement(each) for each in PROJECT["dependency-groups"]["dev"]]
LOCKED = re.compile(
    r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)[^\n]*((?:\\\n +--hash=sha256:\w+ ?)+)", re.MULTILINE
)


def test_every_user_dependency_has_an_upper_bound() -> None:
    assert [str(each) for each in FOR_USERS if "<" not in str(each.specifier)] == []


def test_the_lock_contains_every_dependency_in_an_allowed_version() -> None:
    text = (HERE / "requirements.lock").read_text(encoding="utf-8")
    locked = {canonicalize_name(name): version for name, version, _ in LOCKED.findall(text)}
    assert len(locked) == len(re.findall("^[a-z]", text, re.MULTILINE))
    asked = [*FOR_USERS, *FOR_US]
    versions = [(str(each), locked.get(canonicalize_name(each.name), "none")) for each in asked]
    assert [
        (asks, version)
        for each, (asks, version) in zip(asked, versions, strict=True)
        if version == "none" or version not in each.specifier
    ] == []
