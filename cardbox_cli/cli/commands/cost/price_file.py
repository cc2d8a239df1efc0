"""The prices that an option or the setting names."""

from cardbox_cli.cli.parameters.inputs import read_text, source_name
from cardbox_cli.context.cost.answer import Prices
from cardbox_cli.settings import PRICES


def read_prices(given: str | None) -> Prices | None:
    """The prices of the file that is given, else of the setting's; None where neither names one.

    Raises NotFound and InvalidInput naming the file and the place.
    """
    path = given or PRICES.text() or None
    if path is None:
        return None
    from cardbox_cli.model.handwritten.prices import parse_prices

    currency, models = parse_prices(read_text(path), source_name(path))
    return Prices.of_models(currency, models)
