"""What files commands read: none that never ends or never begins, and none that is too large to be held."""

import os
from pathlib import Path

import pytest

from cardbox_cli.limits import INPUT_SIZE
from tests.cli.conftest import succeed
from tests.conftest import Cbx

READING = [
    ("card", "add", "--type", "note", "--file", "FILE"),
    ("card", "add", "--card", "FILE"),
    ("card", "import", "FILE", "--from", "openai"),
    ("profile", "import", "FILE"),
    ("pack", "--handover", "delegate", "--args", "FILE"),
    ("pack", "--handover", "delegate", "--arg", "instruction=@FILE"),
    ("pack", "--handover", "FILE"),
    ("tool", "add", "look", "--schema", "FILE"),
    ("turn", "report", "turn_1", "--tool-call-id", "c", "--result", "@FILE"),
    ("worker", "run", "--exec", "true", "--tools", "FILE"),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_named_pipes_and_devices_are_refused(cbx: Cbx, tmp_path: Path, command: tuple[str, ...]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, what in ((str(pipe), "a named pipe"), ("/dev/zero", "a device")):
        result = cbx(*(part.replace("FILE", path) for part in command))
        assert result.code == 4, result.err
        assert what in result.err
        assert path in result.err


def test_a_device_is_refused_as_the_config_file(cbx: Cbx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBX_CONFIG", "/dev/zero")
    result = cbx("card", "list")
    assert (result.code, "it is a device" in result.err) == (2, True)


def test_a_file_that_is_too_large_is_refused_with_the_limit(cbx: Cbx, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate((INPUT_SIZE.value << 20) + 1)
    result = cbx("card", "add", "--type", "note", "--file", str(large))
    assert (result.code, result.err.splitlines()[0]) == (4, f"error: {large} is larger than 64 MiB")


def test_a_pipe_opened_by_the_shell_is_read(cbx: Cbx) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"from a pipe")
    os.close(writing)
    try:
        card = succeed(
            cbx("card", "add", "--type", "note", "--file", f"/dev/fd/{reading}", "-o", "id")
        ).strip()
    finally:
        os.close(reading)
    assert cbx("card", "show", card, "-o", "json").json()["content"]["text"] == "from a pipe"
