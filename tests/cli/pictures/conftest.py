"""What runs turns whose requests are drawn."""

from tests.execution.worker.conftest import run  # noqa: F401  # a fixture
