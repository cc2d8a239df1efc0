"""The package stays readable: few, whole modules and short functions, as `scripts/package-size` counts them."""

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "scripts" / "package-size"


def loaded_script() -> ModuleType:
    """The script as a module; its fileing."""
    loader = SourceFileLoader("package_size", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


package_size = loaded_script()


def test_the_package_respects_all_size_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert package_size.exceeded(package_size.modules_of(None)) == []


def test_a_crowded_package_and_a_long_module_are_reported() -> None:
    crowded = [package_size.measure(f"cardbox_cli/store/m{n}.py", "x = 1\n") for n in range(17)]
    long = package_size.measure("cardbox_cli/long.py", "x = 1\n" * 701)
    problems = package_size.exceeded(
        [*crowded, long, package_size.measure("cardbox_cli/f.py", "def f(): ...\n")]
    )
    assert "cardbox_cli/store: 17 modules, at most 16" in problems
    assert "cardbox_cli/long.py: 701 lines" in problems


def test_a_header_consists_of_the_docstring_and_imports() -> None:
    text = '"""Two\nlines."""\n\nimport os\nfrom a import (\n    b,\n)\n\n\ndef f():\n    return os, b\n'
    module = package_size.measure("cardbox_cli/m.py", text)
    assert (module.header_lines, module.functions, module.lines) == (6, (2,), 11)


def test_the_script_prints_the_figures_of_two_commits() -> None:
    command = [sys.executable, str(SCRIPT), "--against", "HEAD"]
    printed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert [line.split()[0] for line in printed.stdout.splitlines()[1:3]] == ["modules", "modules"], printed
