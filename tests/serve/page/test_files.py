"""The files of pages: what is vendored is what it says to be, and nothing else is handed out."""

import hashlib
import json
import re
from importlib import resources

import pytest
from starlette.testclient import TestClient

from cardbox_cli.serve.page import __name__ as PAGE
from tests.serve.page.conftest import START

VENDOR = resources.files(PAGE).joinpath("static", "vendor")


def test_htmx_matches_its_recorded_version_and_licence() -> None:
    about = json.loads(VENDOR.joinpath("htmx.json").read_text())
    script = VENDOR.joinpath("htmx.min.js").read_bytes()
    assert hashlib.sha256(script).hexdigest() == about["sha256"]
    assert f'version="{about["version"]}"'.encode() in script
    assert about["source"].endswith(f"/{about['package']}-{about['version']}.tgz")
    assert about["licence"] == "BSD-0-Clause"
    assert "Zero-Clause BSD" in VENDOR.joinpath("htmx.LICENSE").read_text()


def test_file_addresses_contain_a_hash_of_the_content(api: TestClient) -> None:
    page = api.get(f"{START}/nothing").text
    files = re.findall(r'(?:href|src)="(/inspect/-/files/[^"]+)"', page)
    assert len(files) == 5
    for address in files:
        answer = api.get(address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
        assert hashlib.sha256(answer.content).hexdigest().startswith(address.partition("?v=")[2])
        assert answer.headers["content-type"].startswith(("text/", "image/svg"))
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["vendor/htmx.json", "../templating.py", "%2e%2e/errors.py", "", "vendor/"])
def test_other_files_of_the_package_are_not_served(api: TestClient, name: str) -> None:
    assert api.get(f"/inspect/-/files/{name}").status_code == 404


def test_scripts_and_styles_load_nothing_external() -> None:
    text = "".join(
        resources.files(PAGE).joinpath("static", name).read_text() for name in ("page.js", "page.css")
    )
    assert not re.search(r"https?:|@import|url\(|innerHTML|eval\(|Function\(", text)
