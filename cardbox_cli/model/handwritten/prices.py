"""Prices as people write them: what a million tokens of a model cost. cbx brings none, for they change."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.validation import Section, fit
from cardbox_cli.model.handwritten.yaml_files import read_yaml

Amount = Annotated[Decimal, Field(ge=0, le=1_000_000, strict=False)]


class ModelPrice(Section):
    """What a million tokens of requests to a model cost."""

    input: Amount = Field(description="For a million tokens.")
    cached: Amount | None = Field(
        default=None, description="For a million of those that its prefix cache holds; absent: as others."
    )


class PriceFile(Section):
    """A file of prices."""

    currency: Annotated[str, Field(min_length=1, max_length=12)] = Field(description="Such as USD.")
    models: dict[str, ModelPrice] = Field(description="The prices, by the names of the models.")


def parse_prices(text: str, source: str) -> tuple[str, dict[str, tuple[Decimal, Decimal | None]]]:
    """The currency, and the prices of models: of any tokens, and of those in a cache.

    Raises InvalidInput with all that is wrong; `source` names the file in it.
    """
    found = fit(PriceFile, read_yaml(text, source), refuse_with=InvalidInput)
    return found.currency, {name: (price.input, price.cached) for name, price in found.models.items()}
