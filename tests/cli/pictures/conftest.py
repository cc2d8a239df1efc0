"""What runs turns whose requests are drawn, and the browser that looks at the drawings."""

from tests.execution.worker.conftest import run  # noqa: F401  # a fixture
from tests.serve.conftest import start  # noqa: F401  # a fixture of those below
from tests.serve.page.conftest import browser, visit  # noqa: F401  # fixtures
