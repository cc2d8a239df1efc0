"""How many cells of a terminal a text takes."""


def width(text: str) -> int:
    """The cells of a text without control characters: 2 for a wide character, 0 for a combining one."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
