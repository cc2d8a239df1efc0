"""The option of the style tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shrink", action="store_true", help="rewrite the lists of style exceptions, shorter only"
    )
