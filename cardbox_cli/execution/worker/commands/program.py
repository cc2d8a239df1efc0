"""What a worker runs turns by: the model's command, the tools' commands, and their limits.

Owns what the dispatch of a turn may change of them.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from cardbox_cli.context.request import DEFAULT_OPTIONS, ComposeOptions
from cardbox_cli.errors import InvalidInput
from cardbox_cli.execution.worker.answers.step_answers import AnswerMode, AnswerRules
from cardbox_cli.execution.worker.commands.clients import Clients
from cardbox_cli.execution.worker.commands.environment import passed_on
from cardbox_cli.execution.worker.commands.pipes import Heard
from cardbox_cli.execution.worker.commands.tool_commands import ToolCommands
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.settings import MAX_STEPS, MAX_TOOL_CALLS, STDERR_KEPT, TURN_TIME


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What answers for the model: a command, the format that it reads, how requests are composed for it, and
    its limits, time in seconds: `timeout` for each call of it, `turn_time` for the run of a turn. The format
    may be one that nobody named.

    `answers` says how its output is read, `max_tool_calls` how many tools one answer may call, `tools` what
    answers these. `environment` is all that its commands get besides what the turn sets, `stderr_kept` how
    many bytes of each command's stderr are kept. `listen` is asked, for each call of the command, what shall
    hear what it prints as it comes. Where there are `clients`, they answer in the command's stead.
    """

    command: str
    format: str = DEFAULT
    format_named: bool = True
    options: ComposeOptions = DEFAULT_OPTIONS
    timeout: float = 600
    max_steps: int = MAX_STEPS.default
    stderr_kept: int = STDERR_KEPT.default
    environment: Mapping[str, str] = msgspec.field(default_factory=passed_on)
    answers: AnswerMode = "auto"
    max_tool_calls: int = MAX_TOOL_CALLS.default
    turn_time: float = TURN_TIME.default
    tools: ToolCommands = ToolCommands()
    clients: Clients | None = None
    listen: Callable[[], Heard] = lambda: lambda piece: None

    @property
    def answer_rules(self) -> AnswerRules:
        """How the output of its command is read."""
        return AnswerRules(mode=self.answers, format=self.format, most_calls=self.max_tool_calls)

    def for_turn(self, config: Mapping[str, Any]) -> "Program":
        """The program as the dispatch of a turn wants it: another model, timeout or number of steps."""
        known = {name: config[name] for name in _Config.__struct_fields__ if name in config}
        try:
            wanted = msgspec.convert(known, _Config)
        except msgspec.ValidationError as exc:
            raise InvalidInput(f"the turn's runtime_config is invalid: {exc}") from exc
        return msgspec.structs.replace(
            self,
            options=msgspec.structs.replace(self.options, model=wanted.model or self.options.model),
            timeout=wanted.timeout or self.timeout,
            max_steps=wanted.max_steps or self.max_steps,
        )


class _Config(msgspec.Struct):
    model: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_steps: Annotated[int, msgspec.Meta(ge=MAX_STEPS.lower, le=MAX_STEPS.upper)] | None = None
