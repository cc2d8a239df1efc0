"""A full disk under the embedded server: a clear error, nothing half-done, and with room again it goes on."""

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cardbox_cli.store.embedded import EmbeddedServer
from tests.cli.conftest import succeed
from tests.crash.harness import contents, scene_at_home, value

MEGABYTE = 1 << 20


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 120 MB that every account can enter. Skips the test where we may not mount one."""
    with tempfile.TemporaryDirectory(prefix="cbx-disk-") as folder:
        os.chmod(folder, 0o755)
        command = ["mount", "-t", "tmpfs", "-o", "size=120m,mode=755", "tmpfs", folder]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
        yield Path(folder)
        subprocess.run(["umount", folder], check=True)


def fill(file: Path, *, leave: int) -> None:
    """Make the disk of `file` full but for `leave` bytes."""
    free = shutil.disk_usage(file.parent).free
    with file.open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, free - leave)


def test_an_import_on_a_full_disk_writes_nothing_and_can_be_repeated(
    small_disk: Path, tmp_path: Path
) -> None:
    noise = random.Random(1)
    messages = [{"role": "user", "content": noise.randbytes(100_000).hex()} for _ in range(60)]
    (tmp_path / "big.json").write_text(json.dumps(messages))
    server = EmbeddedServer(small_disk / "cbx")
    scene = scene_at_home(server, tmp_path)
    try:
        succeed(scene.run("db", "start"))
        assert server.status().data.is_relative_to(small_disk)
        with scene.connection() as connection:
            before = contents(connection)
        ballast = small_disk / "ballast"
        fill(ballast, leave=4 * MEGABYTE)
        result = scene.run("card", "import", "big.json")
        assert (result.code, result.out) == (7, "")
        assert re.fullmatch(
            r"(recognized as openai: [^\n]*\n)?"
            r"error: the disk of the database is full: could not extend file .*: No space left on device\n"
            r"hint: free disk space there, then run the command again; nothing was written\n",
            result.err,
        ), result.err
        with scene.connection() as connection:
            assert contents(connection) == before
        ballast.unlink()
        succeed(scene.run("card", "import", "big.json"))
        with scene.connection() as connection:
            assert value(connection, "SELECT count(*) FROM cards") == len(messages)
    finally:
        server.destroy()
