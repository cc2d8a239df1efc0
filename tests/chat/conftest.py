"""Chats on the database of a test, and a model that answers as the test says."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.chat.runs.chat_runner import ChatAnswer, ChatRunner
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.connections import WorkerConnectionPool
from cardbox_cli.execution.worker.worker_program import Program, ToolCommands, command_environment
from cardbox_cli.settings import Settings
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT

KEY = "telegram-chat-42"

# Keeps the request, does what the test wants done meanwhile, and prints the answer of this call.
_SCRIPT = """
n=$(( $(ls request-* 2>/dev/null | wc -l) + 1 ))
cat > request-$n
[ -e during-$n ] && . ./during-$n > /dev/null
cat answer-$n
"""


class Model:
    """A command that answers for a model, call by call. What is done `during` a call is a line of shell."""

    def __init__(self, folder: Path, target: Target) -> None:
        self.folder = folder
        self.command = f"cd {shlex.quote(str(folder))} && sh model.sh"
        self.environment = {
            **command_environment(),
            "CBX_DATABASE_URL": target.conninfo or "",
            "CBX_HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        }
        (folder / "model.sh").write_text(_SCRIPT)
        self._answers = 0

    def says(self, text: str, *, during: str | None = None) -> None:
        """The next call answers with this text."""
        self._answer(json.dumps({"role": "assistant", "content": text}), during)

    def prints(self, text: str, *, during: str | None = None) -> None:
        """The next call prints just this."""
        self._answer(text, during)

    def calls(self, name: str, /, *, during: str | None = None, **arguments: str) -> None:
        """The next call answers with a call of a tool."""
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call_{self._answers}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        self._answer(json.dumps(message), during)

    def _answer(self, text: str, during: str | None) -> None:
        self._answers += 1
        (self.folder / f"answer-{self._answers}").write_text(text)
        if during is not None:
            (self.folder / f"during-{self._answers}").write_text(during + "\n")

    def request(self, number: int) -> dict[str, Any]:
        """What a call was asked."""
        found: dict[str, Any] = json.loads((self.folder / f"request-{number}").read_text())
        return found

    def asked(self, number: int) -> list[tuple[str, str]]:
        """Speakers and texts of a call's messages, without those of the system."""
        messages = self.request(number)["messages"]
        return [(each["role"], each["content"]) for each in messages if each["role"] != "system"]


@pytest.fixture
def room(database: Database) -> ChatStores:
    return ChatStores(database, PROJECT, Settings())


@pytest.fixture
def model(tmp_path: Path, target: Target) -> Model:
    folder = tmp_path / "model"
    folder.mkdir()
    return Model(folder, target)


@pytest.fixture
def runner(target: Target, model: Model) -> Iterator[Callable[..., ChatRunner]]:
    """Make what runs chats by the model, on connections of its own."""
    made: list[WorkerConnectionPool] = []

    def make(*, settings: Settings | None = None, **more: Any) -> ChatRunner:
        known = settings or Settings()
        connections = WorkerConnectionPool(
            lambda: Database.open_target(target),
            lambda database, project_id: Runtime(database, project_id, settings=known),
            longest_pause=known.lease_time,
            announce=print,
        )
        made.append(connections)
        tools = more.pop("tools", ToolCommands(trusts_stored=True))
        profile, tell = more.pop("profile", None), more.pop("tell", print)
        program = Program(
            **{"command": model.command, "environment": model.environment, "tools": tools, **more}
        )
        return ChatRunner(connections, PROJECT, program, profile=profile, tell=tell)

    yield make
    for each in made:
        each.close()


@pytest.fixture
def run(runner: Callable[..., ChatRunner]) -> Callable[..., ChatAnswer]:
    """Answer the newest unanswered message of a chat by the model."""

    def run(chat_key: str = KEY, **more: Any) -> ChatAnswer:
        return runner(**more).answer(chat_key)

    return run
