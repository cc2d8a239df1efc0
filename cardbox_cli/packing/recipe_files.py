"""Find, read and list recipe files.

A name refers to a file in one of the caller's folders, or to a recipe that ships with cbx. A value with a
slash, or with the ending .yaml, .yml or .json, is a path. `model.handwritten.recipes` validates recipes. It
needs pydantic, so it is imported only to read one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cardbox_cli.errors import InvalidRecipe, NotFound
from cardbox_cli.files import open_to_read
from cardbox_cli.model.handwritten.documents import (
    DocumentProblem,
    HandwrittenDocument,
    document_error,
    document_from_value,
)
from cardbox_cli.model.handwritten.yaml_files import MAX_BYTES, decode_text, read_yaml
from cardbox_cli.settings import HANDOVERS
from cardbox_cli.shipped import shipped_path
from cardbox_cli.text.error_messages import unknown_message

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.recipes import Recipe

_ENDINGS = (".yaml", ".yml")
# The folder of a user's recipes, below the current folder.
OWN_FOLDER = Path("handovers")


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    recipe: "Recipe"
    name: str
    source: Path | None
    text: str

    @property
    def place(self) -> str:
        """The file of the recipe in messages."""
        return str(self.source or "standard input")


@dataclass(frozen=True, slots=True)
class ListedRecipe:
    """A recipe that can be used by name. `problem` is the first line of the error if it is invalid."""

    name: str
    description: str
    source: Path
    shipped: bool
    problem: str | None = None


def recipe_folders() -> list[Path]:
    """Return the folders that are searched for recipes before the recipes that ship with cbx."""
    return [OWN_FOLDER, *([Path(named)] if (named := HANDOVERS.text()) else [])]


def read_recipe(name_or_path: str, *, folders: Sequence[Path]) -> LoadedRecipe:
    """Find and read a recipe. The first folder that has it wins. Raises NotFound and InvalidRecipe."""
    is_path = "/" in name_or_path or name_or_path.endswith((*_ENDINGS, ".json"))
    path = Path(name_or_path) if is_path else _find_file(name_or_path, folders)
    text = _read_text(path)
    return LoadedRecipe(parse_recipe(text, str(path)), name=path.stem, source=path, text=text)


def parse_recipe(text: str, source: str) -> "Recipe":
    """Parse the recipe in `text`. Messages name it `source`. Raises InvalidRecipe with all problems."""
    return _validate(read_yaml(text, source))


def recipe_warnings(loaded: LoadedRecipe) -> list[DocumentProblem]:
    """Return the warnings about a valid recipe, with their positions."""
    marks = read_yaml(loaded.text, loaded.place)
    return [DocumentProblem(where, message, marks.mark(where)) for where, message in loaded.recipe.warnings()]


def recipe_from_mapping(mapping: Mapping[str, object]) -> "Recipe":
    """Validate a recipe that a Python caller passes as a mapping. Raises InvalidRecipe with all problems."""
    return _validate(document_from_value(mapping, "handover"))


def list_recipes(folders: Sequence[Path]) -> list[ListedRecipe]:
    """Return the recipes in `folders` and the recipes that ship with cbx, sorted by name."""
    return [_list_entry(name, path) for name, path in recipe_files(folders).items()]


def recipe_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Map names, sorted, to recipe files. Folders come before shipped recipes. The first file wins."""
    known: dict[str, Path] = {}
    for folder in [*folders, shipped_path("handovers")]:
        for path in sorted(folder.glob("*.y*ml")):
            if path.suffix in _ENDINGS:
                known.setdefault(path.stem, path)
    return dict(sorted(known.items()))


def _validate(document: HandwrittenDocument) -> "Recipe":
    from cardbox_cli.model.handwritten.recipes import Recipe
    from cardbox_cli.model.handwritten.validation import fit

    hint = "`cbx handover schema` prints the keys of a recipe"
    return fit(Recipe, document, refuse_with=InvalidRecipe, hint=hint)


def _find_file(name: str, folders: Sequence[Path]) -> Path:
    known = recipe_files(folders)
    if name in known:
        return known[name]
    raise NotFound(
        unknown_message("recipe", name, known),
        hint=f"use one of {', '.join(known)}, or the path of a file, such as ./{name}.yaml",
        details={"name": name, "known": list(known)},
    )


def _read_text(path: Path) -> str:
    try:
        with open_to_read(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"no recipe file {str(path)!r}",
            hint="`cbx handover list` shows the recipes that can be used by name",
            details={"file": str(path)},
        ) from None
    except OSError as exc:
        problem = DocumentProblem((), f"cannot be read: {exc.strerror}")
        raise document_error(InvalidRecipe, str(path), [problem]) from exc
    return decode_text(data, str(path), refuse_with=InvalidRecipe)


def _list_entry(name: str, path: Path) -> ListedRecipe:
    ships = path.parent.resolve() == shipped_path("handovers").resolve()
    try:
        recipe = parse_recipe(_read_text(path), str(path))
    except (InvalidRecipe, NotFound) as error:
        return ListedRecipe(name, "", path, ships, problem=error.message.splitlines()[0])
    return ListedRecipe(name, recipe.description, path, ships)
