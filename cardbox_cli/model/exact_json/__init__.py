"""JSON without loss, and the checks that JSONB would make only after a round trip.

A number that a float cannot hold exactly (1.10, 1e400) becomes a Decimal, so what is read is what is
written. The modules: `numbers`, `reading`, `writing` (which has the canonical form that digests and ids are
made of), `storable` (the refusal of what JSONB cannot hold) and `bad_text` (the replacement of such text).
None of them knows anything of cards. The one loss: JSONB has no negative zero, so `-0.0` comes back as `0.0`.
"""

from cardbox_cli.model.exact_json.bad_text import is_storable_text, replace_bad_text, storable_text
from cardbox_cli.model.exact_json.numbers import MAX_DIGITS, exact_integer, exact_number
from cardbox_cli.model.exact_json.reading import (
    ODD,
    Decoder,
    Malformed,
    decode,
    decode_stored,
    read,
    read_soon,
    reader,
    strict_reader,
)
from cardbox_cli.model.exact_json.storable import BadText, Unstorable, check_storable, is_simple
from cardbox_cli.model.exact_json.writing import (
    are_same,
    canonical,
    canonical_of_simple,
    canonical_text,
    encode,
)

__all__ = [
    "MAX_DIGITS",
    "ODD",
    "BadText",
    "Decoder",
    "Malformed",
    "Unstorable",
    "are_same",
    "canonical",
    "canonical_of_simple",
    "canonical_text",
    "check_storable",
    "decode",
    "decode_stored",
    "encode",
    "exact_integer",
    "exact_number",
    "is_simple",
    "is_storable_text",
    "read",
    "read_soon",
    "reader",
    "replace_bad_text",
    "storable_text",
    "strict_reader",
]
