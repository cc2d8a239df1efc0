"""The config file: settings of a person that apply if neither an option nor a variable sets them.

The file is TOML. It has the keys that `settings.py` declares, and a table `columns` with the columns of lists
by command. This module finds and validates the file. Messages name the place of a value, and never the value,
because it may be a password.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from cardbox_cli.errors import UsageError
from cardbox_cli.files import open_to_read
from cardbox_cli.limits import YAML_SIZE
from cardbox_cli.settings import CONFIG, CONFIG_FILE_SETTINGS, CONFIG_HOME, Variable

COLUMNS = "columns"


class ConfiguredValue(NamedTuple):
    value: str
    place: str


@dataclass(frozen=True)
class ConfigFile:
    """The content of the config file: settings by variable name, columns by command ("card list")."""

    path: Path
    settings: Mapping[str, ConfiguredValue] = field(default_factory=dict)
    columns: Mapping[str, ConfiguredValue] = field(default_factory=dict)

    def get(self, variable: Variable) -> ConfiguredValue | None:
        return self.settings.get(variable.name)


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return CBX_CONFIG if set, or else cbx/config.toml in XDG_CONFIG_HOME, or else in ~/.config."""
    if text := CONFIG.text(environ):
        return Path(os.path.abspath(text))
    shared = CONFIG_HOME.text(environ)
    if not os.path.isabs(shared):  # by the XDG specification, a relative path is invalid and is ignored
        shared = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(shared, "cbx", "config.toml")


def read_config(
    commands: Callable[..., Collection[str]], environ: Mapping[str, str] = os.environ
) -> ConfigFile:
    """Return the config file, or an empty one if the default file does not exist.

    `commands` returns the commands of the given nouns, or of all nouns. Raises UsageError for an invalid file
    and if CBX_CONFIG names a missing file.
    """
    path = config_path(environ)
    try:
        with open_to_read(path) as file:
            data = file.read((YAML_SIZE.value << 20) + 1)
    except (FileNotFoundError, NotADirectoryError):
        if CONFIG.text(environ):
            hint = f"correct {CONFIG.name}, or unset it"
            raise UsageError(f"no config file {str(path)!r}", hint=hint) from None
        return ConfigFile(path)
    except OSError as exc:
        raise UsageError(f"cannot read the config file {str(path)!r}: {exc.strerror}") from exc
    if len(data) > YAML_SIZE.value << 20:
        raise UsageError(f"the config file {str(path)!r} is larger than {YAML_SIZE}")
    return _Reader(path, data, commands).read()


class _Reader:
    def __init__(self, path: Path, data: bytes, commands: Callable[..., Collection[str]]) -> None:
        self._path = path
        self._commands = commands
        try:
            self._text = data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise UsageError(f"the config file {str(path)!r} is not UTF-8 (byte {exc.start})") from exc

    def read(self) -> ConfigFile:
        import tomllib

        try:
            values = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as exc:
            raise UsageError(
                f"{self._path}: {exc}", hint='it must be TOML, such as output = "json"'
            ) from None
        except RecursionError:
            raise UsageError(f"{self._path}: it is nested too deeply") from None
        variables = {str(variable.key): variable for variable in CONFIG_FILE_SETTINGS}
        columns = values.pop(COLUMNS, {})
        for key in values:
            if key not in variables:
                self._refuse_key("setting", key, [*variables, COLUMNS])
        if not isinstance(columns, dict):
            self._refuse(COLUMNS, 'must be a table, with a key such as "card list"')
        return ConfigFile(
            self._path,
            {variables[key].name: self._setting(key, value) for key, value in values.items()},
            {command: self._columns(command, value) for command, value in columns.items()},
        )

    def _setting(self, key: str, value: Any) -> ConfiguredValue:
        if not isinstance(value, str) or not value.strip():
            self._refuse(key, "must be a string that is not empty")
        return ConfiguredValue(value, self._place(key))

    def _columns(self, command: str, value: Any) -> ConfiguredValue:
        if command not in self._commands(command.partition(" ")[0]):
            self._refuse_key("list", command, self._commands())
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            self._refuse(command, 'must name columns, such as "id,created,preview" or a list of such names')
        return ConfiguredValue(",".join(names), self._place(command))

    def _refuse_key(self, what: str, key: str, known: Iterable[str]) -> NoReturn:
        from cardbox_cli.text.error_messages import unknown_message

        raise UsageError(
            f"{self._place(key)}: {unknown_message(what, key, known)}",
            hint="see the format of the file with `cbx help config`",
        )

    def _refuse(self, key: str, text: str) -> NoReturn:
        raise UsageError(f"{self._place(key)}: {key!r} {text}", hint="see an example with `cbx help config`")

    def _place(self, key: str) -> str:
        """Return the path of the file, with the line number of a key if it is found."""
        begins = re.compile(rf"""\s*(\[\s*|\w+\s*\.\s*)?(["']?){re.escape(key)}\2\s*[=\].]""")
        lines = self._text.splitlines()
        number = next((number for number, line in enumerate(lines, 1) if begins.match(line)), None)
        return str(self._path) if number is None else f"{self._path}:{number}"
