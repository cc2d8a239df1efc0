"""How long, how often, how many: the settings of execution, and the variables that set them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from cardbox_cli.errors import UsageError


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. Each can be set by the variable CBX_ and its name in capitals."""

    lease: float = 60
    heartbeat: float = 20
    poll: float = 5
    max_attempts: int = 5
    backoff: float = 1
    backoff_cap: float = 60
    tool_wait: float = 300
    unclaimed: float = 30
    max_steps: int = 8

    @property
    def lease_time(self) -> timedelta:
        """How long a claim lasts without a heartbeat."""
        return timedelta(seconds=self.lease)

    @property
    def unclaimed_time(self) -> timedelta:
        """How long a promoted turn may lie before its doorbell counts as lost."""
        return timedelta(seconds=self.unclaimed)

    def delay(self, attempts: int, jitter: float) -> timedelta:
        """How long to wait before another try after so many; `jitter` from 0 to 1 spreads it by a quarter."""
        grown = self.backoff * 2.0 ** min(attempts, 30)
        return timedelta(seconds=min(grown, self.backoff_cap) * (0.75 + 0.25 * jitter))


def settings_from(environment: Mapping[str, str]) -> Settings:
    """The settings that variables ask for. Raises UsageError naming one that is no positive number."""
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        variable = f"CBX_{field.name.upper()}"
        if text := environment.get(variable):
            given[field.name] = _number(variable, text, whole=field.type is int)
    return Settings(**given)


def _number(variable: str, text: str, *, whole: bool) -> Any:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = 0
    if not 0 < number < 1e9:
        kind = "a whole number" if whole else "a number of seconds"
        raise UsageError(
            f"{variable} is {text!r}, not {kind} above 0", hint=f"unset {variable}, or correct it"
        )
    return number
