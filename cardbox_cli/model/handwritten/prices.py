"""Price files: the cost of a million tokens of a model. cbx ships none, because prices change."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.validation import Section, fit
from cardbox_cli.model.handwritten.yaml_files import read_yaml

Amount = Annotated[Decimal, Field(ge=0, le=1_000_000, strict=False)]


class ModelPrice(Section):
    """Prices of a million tokens of requests to a model."""

    input: Amount = Field(description="For a million tokens.")
    cached: Amount | None = Field(
        default=None, description="For a million tokens in the prefix cache; default: the same as input."
    )


class PriceFile(Section):
    """A file of prices."""

    currency: Annotated[str, Field(min_length=1, max_length=12)] = Field(description="For example USD.")
    models: dict[str, ModelPrice] = Field(description="The prices, by the names of the models.")


def parse_prices(text: str, source: str) -> tuple[str, dict[str, tuple[Decimal, Decimal | None]]]:
    """Return the currency, and for each model the price of a token and of a cached token, if it has one.

    Raises InvalidInput with all problems. Messages name the file `source`.
    """
    prices = fit(PriceFile, read_yaml(text, source), refuse_with=InvalidInput)
    return prices.currency, {name: (price.input, price.cached) for name, price in prices.models.items()}
