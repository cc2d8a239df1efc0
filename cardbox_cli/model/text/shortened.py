"""Texts of bounded length, where a text is quoted that stands elsewhere as a whole."""


def shortened(text: str, most: int) -> str:
    """`text`, or of one with more than `most` characters the first ones, and that there are more."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… [the first {most} of {len(text)} characters]"
