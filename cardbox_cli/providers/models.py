"""Facts about models, by name. They come from `models.toml`, and from the user's file that CBX_MODELS names.

Each file is read once, when the first fact is needed. A model without an entry has no facts.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache
from typing import Any

import msgspec

from cardbox_cli.context.provider import UNKNOWN_MODEL, ModelFacts
from cardbox_cli.errors import InvalidInput
from cardbox_cli.files import open_to_read
from cardbox_cli.limits import YAML_SIZE
from cardbox_cli.model.tokens import Tokenizer, bare_name
from cardbox_cli.settings import MODELS

_FILE = "models.toml"
# Matches the end of a snapshot's name, such as `-2024-08-06`, `@20250514` or `-latest`, with an optional
# version of a gateway, such as `-v1:0`.
_SNAPSHOT = re.compile(r"(?:[-@](?:\d{4}-\d\d-\d\d|\d{8}|\d{4}|latest))?(?:-v\d+(?::\d+\w*)*)?$")
_REGION = re.compile(r"^(?:us|eu|apac|global|us-gov)\.(?=[a-z0-9]+\.)")
# The keys of an entry that are not facts.
_ABOUT = ("names", "source", "date")


class _Names:
    """The names of an entry. `*` matches any characters."""

    def __init__(self, names: Sequence[str]) -> None:
        self._whole = frozenset(name for name in names if "*" not in name)
        self._patterns = [name.split("*") for name in names if "*" in name]

    def match(self, names: Sequence[str]) -> bool:
        if not self._whole.isdisjoint(names):
            return True
        return any(_matches(parts, name) for parts in self._patterns for name in names)


def _matches(parts: Sequence[str], name: str) -> bool:
    first, *middle, last = parts
    if not (name.startswith(first) and name.endswith(last) and len(name) >= len(first) + len(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


class _ProviderEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    models: list[str]


class _ModelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: list[_ProviderEntry] = []
    model: list[dict[str, Any]] = []


class _ModelAbout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: list[str]
    source: str
    date: date


class ModelTable:
    """The entries of one file. Raises InvalidInput, which names the file, the entry and the key."""

    def __init__(self, data: bytes, place: str) -> None:
        self._place = place
        file = self._converted(self._values(data), _ModelFile, place)
        self._providers = [(_Names(each.models), each.name) for each in file.provider]
        self._models = [self._entry(number, each) for number, each in enumerate(file.model, 1)]

    def _values(self, data: bytes) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(data.decode("utf-8-sig"))
        except UnicodeDecodeError as exc:
            raise InvalidInput(f"{self._place} is not UTF-8 (byte {exc.start})") from None
        except tomllib.TOMLDecodeError as exc:
            raise InvalidInput(f"{self._place}: {exc}", hint="it must be TOML") from None
        except RecursionError:
            raise InvalidInput(f"{self._place} is nested too deeply") from None

    def _entry(self, number: int, values: dict[str, Any]) -> tuple[_Names, dict[str, Any]]:
        names = values.get("names")
        which = f" ({', '.join(map(str, names[:3]))})" if isinstance(names, list) else ""
        place = f"{self._place}: model {number}{which}"
        about = self._converted({key: values[key] for key in _ABOUT if key in values}, _ModelAbout, place)
        own_values = {key: each for key, each in values.items() if key not in _ABOUT}
        facts = self._converted(own_values, ModelFacts, place)
        return _Names(about.names), {key: getattr(facts, key) for key in own_values}

    def _converted(self, values: Any, value_type: type[Any], place: str) -> Any:
        try:
            return msgspec.convert(values, value_type)
        except msgspec.ValidationError as exc:
            what, _, where = str(exc).partition(" - at `$")
            key = where.strip("`.")
            raise InvalidInput(
                f"{place}{f', {key}' if key else ''}: {what[:1].lower()}{what[1:]}",
                hint=f"the comments in {_FILE} of the package `cardbox_cli.providers` explain each key",
            ) from None

    def facts(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the facts of all entries that match one of these names. Later entries win."""
        found: dict[str, Any] = {}
        for known, facts in self._models:
            if known.match(names):
                found |= facts
        return found

    def provider(self, names: Sequence[str]) -> str | None:
        """Return the name of the first provider that has a model of one of these names."""
        return next((own for known, own in self._providers if known.match(names)), None)


def provider_of_model(model: str | None) -> str | None:
    """Return the name of the provider of a model, or None if it is unknown. Raises what `facts_of` raises."""
    return None if model is None else _provider_of(model, MODELS.text())


def facts_of(model: str | None) -> ModelFacts:
    """Return the facts about a model. Raises InvalidInput for an unreadable or invalid file of CBX_MODELS."""
    return UNKNOWN_MODEL if model is None else _facts_of(model, MODELS.text())


def window(model: str | None) -> int | None:
    return facts_of(model).window


def unknown_models(models: Iterable[str | None]) -> str | None:
    """Return a sentence about the unknown ones of these models and how to declare them, or None."""
    unknown = {model: None for model in models if model and not facts_of(model).is_known}
    if not unknown:
        return None
    names = f"model{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}"
    return f"unknown {names}: nothing is checked that depends on the model; {MODELS.name} can declare it"


def tokenizer_for(model: str | None) -> Tokenizer:
    """Return the tokenizer of a model if it is known and installed, else the estimate."""
    return facts_of(model).counter


@cache
def _provider_of(model: str, own_file: str) -> str | None:
    bare = bare_name(model)
    names = [bare, _REGION.sub("", bare)]
    return next(filter(None, (table.provider(names) for table in reversed(_tables(own_file)))), None)


@cache
def _facts_of(model: str, own_file: str) -> ModelFacts:
    facts: dict[str, Any] = {}
    for table in _tables(own_file):
        facts |= table.facts(_names_of(model))
    return ModelFacts(**facts) if facts else UNKNOWN_MODEL


def _names_of(model: str) -> list[str]:
    """Return the names under which facts may be listed: the name with and without the end of a snapshot."""
    bare = _REGION.sub("", bare_name(model))
    if "claude" in bare:
        # Gateways put the vendor before the name, and write the version with dots.
        bare = bare[bare.find("claude") :].replace(".", "-")
    return [bare, _SNAPSHOT.sub("", bare, count=1)]


@cache
def _tables(own_file: str) -> tuple[ModelTable, ...]:
    """Return the table that ships with cbx, and then the table of the user's file, if there is one."""
    from importlib.resources import files

    package = ModelTable(files(__package__).joinpath(_FILE).read_bytes(), _FILE)
    if not own_file:
        return (package,)
    return package, ModelTable(_read(own_file), own_file)


def _read(path: str) -> bytes:
    try:
        with open_to_read(path) as file:
            data = file.read((YAML_SIZE.value << 20) + 1)
    except OSError as exc:
        raise InvalidInput(
            f"cannot read {path!r}, which {MODELS.name} names: {exc.strerror}",
            hint=f"correct {MODELS.name}, or unset it",
        ) from exc
    if len(data) > YAML_SIZE.value << 20:
        raise InvalidInput(f"{path} is larger than {YAML_SIZE}")
    return data
