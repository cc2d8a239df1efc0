import json
import time
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given

from cardbox_cli.limits import NUMBER_GROWTH
from cardbox_cli.model import exact_json
from tests import jsonb_values

TOO_LONG = "is a number of more than 1000 digits, written out without an exponent"


@pytest.mark.parametrize("text", ["1.10", "1e400", "0.1", "123456789012345678901234567890", "-0.0", "1E-7"])
def test_a_number_survives_a_round_trip(text: str) -> None:
    for read in (exact_json.read, exact_json.read_fast, exact_json.decode):
        assert Decimal(exact_json.encode(read(text)).decode()) == Decimal(text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [("-0", "0"), ("-0.0", "0.0"), ("-0.00", "0.00"), ("-0e3", "0"), ("0", "0"), ("[-0.5,-0]", "[-0.5,0]")],
)
def test_the_canonical_form_has_no_negative_zero(text: str, plain: str) -> None:
    for read in (exact_json.read, exact_json.read_fast, exact_json.decode):
        assert exact_json.canonical_text(read(text)) == plain
        assert exact_json.are_equal(read(text), read(plain))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1.10", "1.10"),
        ("1e2", "100"),
        ("1.0e2", "100"),
        ("1.50e1", "15.0"),
        ("-0.0", "0.0"),
        ("0e5", "0"),
        ("1E-7", "0.0000001"),
        ('{"b": 1, "a": [1.0, null]}', '{"a":[1.0,null],"b":1}'),
        ('{"é": "\\u00e9\\n", "z\\u0301": "\\u007f"}', '{"z\u0301":"\x7f","é":"é\\n"}'),
    ],
)
def test_numbers_and_texts_have_one_canonical_form(text: str, canonical: str) -> None:
    assert exact_json.canonical(text.encode()).decode() == canonical


@given(jsonb_values.values)
def test_the_canonical_form_is_sorted_compact_json(value: object) -> None:
    """For texts, keys and integers anyone can recompute it with a standard JSON library."""
    spelled = exact_json.canonical(exact_json.encode(value))
    assert exact_json.canonical(spelled) == spelled
    plain = json.loads(spelled)
    again = json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if _has_no_fractions(plain):
        assert again == spelled.decode()


def _has_no_fractions(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_has_no_fractions, value.values()))
    if isinstance(value, list):
        return all(map(_has_no_fractions, value))
    return not isinstance(value, float)


@given(jsonb_values.values)
def test_values_that_jsonb_stores_are_storable(value: object) -> None:
    exact_json.check_storable(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "x: is nan, which JSON cannot represent"),
        ([1, float("inf")], "x[1]: is inf, which JSON cannot represent"),
        ({"a": {"b": "\x00"}}, "x.a.b: holds a NUL character at offset 0"),
        ({"a\x00": 1}, "x.'a\\x00': holds a NUL character at offset 1"),
        pytest.param(10**1000, f"x: {TOO_LONG}", id="long"),
        ({"a": "ok\ud800"}, "x.a: holds a lone surrogate at offset 2"),
        (Decimal("1e1000"), f"x: {TOO_LONG}"),
        (Decimal("1e-1000"), f"x: {TOO_LONG}"),
        ({1: 2}, "x: has the key 1, but JSON keys must be strings"),
        ({"when": object}, "x.when: is a type, which is not a JSON value"),
    ],
)
def test_values_that_jsonb_cannot_store_are_reported(value: object, message: str) -> None:
    with pytest.raises(exact_json.Unstorable) as raised:
        exact_json.check_storable(value, "x")
    assert str(raised.value) == message


def test_checking_a_value_with_long_keys_takes_linear_time() -> None:
    began = time.process_time()
    exact_json.check_storable({"k" * 1_000_000: [0] * 300_000})
    assert time.process_time() - began < 3


def test_refusing_a_repeated_key_takes_linear_time() -> None:
    pairs = ",".join(f'"{number}":0' for number in [*range(100_000), 99_999])
    began = time.process_time()
    with pytest.raises(ValueError, match="an object has the key '99999' twice"):
        exact_json.read(f"{{{pairs}}}", exact_json.strict_reader)
    assert time.process_time() - began < 3


@pytest.mark.parametrize("number", [Decimal("1e999"), Decimal("1e-998"), Decimal("7.5e994")], ids=str)
def test_the_total_growth_of_expanded_numbers_is_limited(number: Decimal) -> None:
    """A few characters stand for a thousand digits each."""
    growth = len(format(number, "f")) - len(str(number)) - ("." in format(number, "f"))
    most = NUMBER_GROWTH.value // growth
    exact_json.check_storable({"a": [number] * most})
    with pytest.raises(exact_json.Unstorable) as raised:
        exact_json.check_storable({"a": [[number] * most, {"b": number}]}, "x")
    growth_limit = f"grow by more than {NUMBER_GROWTH} without exponents"
    assert str(raised.value) == f"x.a[1].b: makes the numbers of the value {growth_limit}"


def test_numbers_that_do_not_grow_have_no_total_bound() -> None:
    exact_json.check_storable([0.1, 12345.678, Decimal("0.10"), 10**900, Decimal(10**900)] * 10_000)


def test_excessive_nesting_is_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(exact_json.Unstorable, match=r"^x: is nested more than 400 levels deep$"):
        exact_json.check_storable(value, "x")
    with pytest.raises(ValueError, match="nested too deeply"):
        exact_json.read("[" * 100_000 + "]" * 100_000)


def test_a_storable_value_can_be_encoded() -> None:
    value: object = "deep"
    for _ in range(400):
        value = [value]
    exact_json.check_storable(value)
    assert exact_json.decode(exact_json.encode(value)) == value


def test_integers_with_thousands_of_digits_survive_a_round_trip() -> None:
    digits = "7" * 6000
    text = f'{{"n":{digits}}}'
    for read in (exact_json.read, exact_json.decode):
        assert exact_json.encode(read(text)).decode() == text
    assert exact_json.canonical(text.encode()).decode() == text


def test_values_nested_too_deeply_for_python_become_their_text() -> None:
    deep = "[" * 3000 + '"]{"' + "]" * 3000
    value = exact_json.decode_stored(f'{{"a": {deep}, "b": {"7" * 6000}, "c": "[\\"]"}}')
    inner = value["a"]
    levels = 1
    while isinstance(inner, list):
        levels, [inner] = levels + 1, inner
    assert inner == deep[levels - 1 : 1 - levels]
    assert (value["b"], value["c"]) == (Decimal("7" * 6000), '["]')


@given(jsonb_values.values)
def test_simple_values_are_storable_and_encode_canonically(value: object) -> None:
    if exact_json.is_simple(value):
        exact_json.check_storable(value)
        assert exact_json.canonical_of_simple(value) == exact_json.canonical(exact_json.encode(value))


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        Decimal("1.10"),
        2**60,
        "\x00",
        {"a\x00": 1},
        ["\ud800"],
        {"\udfff": 1},
        {1: 2},
        float("nan"),
        (1,),
    ],
)
def test_unusual_values_are_not_simple(value: object) -> None:
    assert not exact_json.is_simple(value)
    assert not exact_json.is_simple({"a": [value]})


def test_decoding_a_deeply_nested_value_takes_linear_memory() -> None:
    text = f'["{"a" * 1_000_000}", "{"b" * 10}", {"[" * 3000 + "]" * 3000}]'
    tracemalloc.start()
    try:
        exact_json.decode_stored(text)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)
    finally:
        tracemalloc.stop()


def test_deeply_nested_values_are_not_simple() -> None:
    deep: object = 1
    for _ in range(41):
        deep = [deep]
    assert not exact_json.is_simple(deep)


_NEAR = [
    0,
    0.0,
    -0.0,
    1,
    1.0,
    Decimal("1.00"),
    True,
    False,
    None,
    "1",
    [],
    {},
    [1],
    {"a": 1},
    {"a": 1.0},
    2**70,
]


@pytest.mark.parametrize("one", _NEAR)
def test_values_are_equal_if_their_canonical_forms_are_equal(one: object) -> None:
    for other in (*_NEAR, Decimal(2**70)):
        for a, b in ((one, other), ([one], [other]), ({"k": one, "l": 2}, {"l": 2, "k": other})):
            forms = [exact_json.canonical(exact_json.encode(each)) for each in (a, b)]
            assert exact_json.are_equal(a, b) == (forms[0] == forms[1])
