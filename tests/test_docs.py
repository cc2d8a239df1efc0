"""Every `console` block of the README and docs/ is run, in order, and its output compared.

So is every `bash` block, which is pasted as it stands; the `text` block behind it is what all of it prints. A
file is one shell session on one fresh database, beside the project's `examples`. In the expected output
`…` stands for anything within a line, and a line that is only `…` for any number of lines.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cardbox_cli.store.connection.target import Target
from tests.crash.shells import cbx_for_shells

ROOT = Path(__file__).parents[1]
# Whoever follows these in the checkout finds it as it was.
IGNORED = set((ROOT / ".gitignore").read_text(encoding="utf-8").splitlines())
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^```(?:console\n(?P<typed>.*?)^```|bash\n(?P<pasted>.*?)^```\n[^`]*^```text\n(?P<printed>.*?)^```)$",
    re.MULTILINE | re.DOTALL,
)

# Between two commands a line with a number; `$?` stays that of the command.
SHELL = 'exec 2>&1; mark() { local status=$?; echo "@@$1"; return $status; }'


def commands(document: Path) -> list[tuple[str, str]]:
    """Each command of the document with the output that it shows."""
    pairs: list[tuple[str, str]] = []
    for block in BLOCK.finditer(document.read_text(encoding="utf-8")):
        if block["pasted"]:
            pairs.append((block["pasted"].rstrip(), block["printed"].rstrip()))
        for piece in re.split(r"^\$ ", block["typed"] or "", flags=re.MULTILINE)[1:]:
            lines = piece.split("\n")
            typed = 1
            while lines[typed - 1].endswith("\\") or lines[typed].startswith(">"):
                typed += 1
            command = "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines[:typed])
            pairs.append((command, "\n".join(lines[typed:]).rstrip()))
    return pairs


def pattern(expected: str) -> re.Pattern[str]:
    lines = []
    for line in expected.split("\n"):
        lines.append(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n")
    return re.compile("".join(lines))


def evened(text: str) -> str:
    """Columns are as wide as what stands in them, ages among it: their gaps all count as two spaces.

    A printed command ends with a comment that names the tests' database, where a reader's is the default one.
    """
    text = re.sub(r"  # database [^\s`]+", "", text)
    return "\n".join(re.sub(" {2,}", "  ", line.strip()) for line in text.split("\n"))


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """A folder with a `cbx` that starts at once."""
    with tempfile.TemporaryDirectory() as folder, cbx_for_shells(Path(folder, "bin")) as made:
        yield made


@pytest.mark.parametrize(
    "document", [document for document in DOCUMENTS if commands(document)], ids=lambda path: path.name
)
def test_the_commands_in_the_documents_print_the_shown_output(
    document: Path, target: Target, tmp_path: Path, programs: Path
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    # What the README shows holds for whoever pastes it again, too.
    pairs = commands(document) * (2 if document.name == "README.md" else 1)
    script = "\n".join(f"mark {number}\n{command}" for number, (command, _) in enumerate(pairs))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CBX_", "PG"))}
    run = subprocess.run(
        ["bash", "-c", f"{SHELL}\n{script}\nmark end"],
        cwd=tmp_path,
        env={
            **environment,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{environment['PATH']}",
            "CBX_HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path),
            "CBX_DATABASE_URL": target.conninfo or "",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    outputs = re.split(r"^@@(?:\d+|end)\n", run.stdout, flags=re.MULTILINE)[1:-1]
    assert len(outputs) == len(pairs), run.stdout
    for (command, expected), output in zip(pairs, outputs, strict=True):
        normal = evened(output.rstrip("\n")) + "\n" if output else ""
        wanted = pattern(evened(expected)) if expected else re.compile("")
        assert wanted.fullmatch(normal), f"$ {command}\n{output}\n--- is not what is shown:\n{expected}"
    if document.name in ("README.md", "first-turn.md"):
        assert {f"/{path.name}" for path in tmp_path.iterdir()} - {"/home", "/examples"} <= IGNORED
