"""What `data:` URLs hold (RFC 2397): their media type and their base64, whatever parameters stand between."""

import pytest

from cardbox_cli.context.parts import data_url, media_of


@pytest.mark.parametrize(
    "parameters", ["", ";charset=utf-8", ";name=a b.png;charset=utf-8", ";name=", ";a=b=c"]
)
def test_parameters_of_a_data_url_are_skipped(parameters: str) -> None:
    assert media_of(f"data:image/svg+xml{parameters};base64,AA==") == ("image/svg+xml", "AA==")


def test_millions_of_parameters_are_skipped() -> None:
    assert media_of(f"data:image/png{';a=b' * 1_000_000};base64,AA==") == ("image/png", "AA==")


def test_the_first_base64_marker_is_used() -> None:
    assert media_of("data:image/png;base64,;base64,AA==") == ("image/png", ";base64,AA==")


def test_a_generated_data_url_can_be_parsed() -> None:
    assert media_of(data_url("image/png", "AA==")) == ("image/png", "AA==")


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "https://example.org/a.png",
        "data:image/png,AA==",
        "data:image/png;base64",
        "data:;base64,AA==",
        "data:image;base64,AA==",
        "data:image/png;name;base64,AA==",
        "data:image/png;name=a,b;base64,AA==",
        "data:image/png ;base64,AA==",
        " data:image/png;base64,AA==",
    ],
)
def test_other_urls_have_no_media(url: str | None) -> None:
    assert media_of(url) is None
