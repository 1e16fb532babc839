"""Arithmetic: Java's numeric promotion, whole division and 64 bits (JMS 2.0, section 3.8.1.1)."""

import math

import pytest

from quire.selectors.values import ARITHMETIC, LARGEST, Number, Value
from tests.unit.selectors.asking import ask


@pytest.mark.parametrize(
    ("calculation", "result"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 4 - 3", "3"),
        ("10 - (4 - 3)", "9"),
        ("24 / 4 / 3", "2"),
        ("24 / 4 * 3", "18"),
        ("2 * -3", "-6"),
        ("-2 + 5", "3"),
        ("-(2 + 5)", "-7"),
        ("+(2 + 5)", "7"),
        ("- -n", "10"),
        ("2 - -n", "12"),
        ("n * n + n", "110"),
        ("t + 1", "6"),
        ("t * 1.5", "7.5"),
    ],
)
def test_precedence_and_signs(calculation: str, result: str) -> None:
    assert ask(f"{calculation} = {result}", n=10, t="5") is True
    assert ask(f"{calculation} <> {result}", n=10, t="5") is False


@pytest.mark.parametrize(
    ("left", "right", "quotient"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (1, 2, 0), (7, 2.0, 3.5), (7.0, 2, 3.5), (-7, 2.0, -3.5)],
)
def test_whole_numbers_divide_to_a_whole_number_cut_towards_zero(left: Value, right: Value, quotient: Value) -> None:
    assert ask("a / b = c", a=left, b=right, c=quotient) is True


@pytest.mark.parametrize(
    ("operator", "left", "right", "result"),
    [
        ("+", LARGEST, 1, -LARGEST - 1),
        ("-", -LARGEST - 1, 1, LARGEST),
        ("*", LARGEST, 2, -2),
        ("/", -LARGEST - 1, -1, -LARGEST - 1),
        ("+", LARGEST, 1.0, 2.0**63),
        ("+", 2**53, 1.0, 2.0**53),
        ("*", 3, 0.5, 1.5),
        ("*", 1e308, 10, math.inf),
        ("+", 1, 2, 3),
        ("+", 1, 2.0, 3.0),
    ],
)
def test_whole_numbers_stay_within_64_bits_and_become_doubles_when_they_meet_one(
    operator: str, left: Number, right: Number, result: Number
) -> None:
    calculated = ARITHMETIC[operator](left, right)
    assert (type(calculated), calculated) == (type(result), result)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, "0", "0.0"])
def test_a_division_by_zero_is_unknown(zero: Value) -> None:
    assert ask("10 / z = 0", z=zero) is None
    assert ask("10.0 / z > 0", z=zero) is None
    assert ask("z / z = z", z=zero) is None


@pytest.mark.parametrize("value", [None, "red", True])
@pytest.mark.parametrize("calculation", ["h + 1", "1 - h", "h * 0", "-h", "+h", "1 + 2 * (3 - h)", "h + 1 + 2"])
def test_what_is_no_number_makes_a_calculation_unknown(calculation: str, value: Value) -> None:
    assert ask(f"{calculation} = {calculation}", h=value) is None
    assert ask(f"{calculation} <> 1", h=value) is None
