"""Models that Bedrock alone serves, by their ids. Those of other providers are known by their names there."""

import re

from cardbox_cli.context.providers.provider import Models

_RECOGNISED = re.compile(
    r"(?:(?:us|eu|apac|global|us-gov)\.)?(?:amazon|meta|mistral|cohere|ai21|deepseek|qwen)\."
)
# In tokens of the input. Source: Amazon Nova user guide, "What is Amazon Nova".
_HOLDING = {
    128_000: ("amazon.nova-micro",),
    300_000: ("amazon.nova-lite", "amazon.nova-pro"),
    1_000_000: ("amazon.nova-premier",),
}


def _bare(model: str) -> str:
    """The id without the region that it is asked in, and without its version."""
    name = model.rpartition("/")[2]
    return re.sub(r"^(?:us|eu|apac|global|us-gov)\.|-v\d+(?::\d+\w*)*$", "", name)


MODELS = Models(
    recognises=lambda model: _RECOGNISED.match(model.rpartition("/")[2]) is not None,
    holding=_HOLDING,
    bare_name=_bare,
)
