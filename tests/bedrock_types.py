"""What botocore's model of Bedrock says of a Converse body."""

from functools import cache
from typing import Any

import botocore.loaders
import botocore.model
from botocore.validate import ParamValidator


@cache
def _shape() -> botocore.model.Shape:
    description = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    service = botocore.model.ServiceModel(description, "bedrock-runtime")
    shape: botocore.model.Shape = service.operation_model("Converse").input_shape
    return shape


def check_body(body: dict[str, Any]) -> None:
    """Raise AssertionError for a body that the service's model does not know. The model's id is in the URL."""
    report = ParamValidator().validate({"modelId": "m", **body}, _shape())
    assert not report.has_errors(), report.generate_report()
