"""Numbers for people."""

import pytest

from conbo.rounding import as_precise, counted, number, with_margin


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (165.93, 7.13 / 1.96, "165.9 ± 7.1"),
        (-0.98187, 0.0816, "-0.98 ± 0.16"),
        (3.2, 650.0, "3 ± 1274"),
        (165.9, 6e-6, "165.9 ± 1.2e-05"),
        (0.0, 0.5, "0.00 ± 0.98"),
        (2.5e9, 1e7, "2.50e+09 ± 2.0e+07"),
        (165.93, 0.0, "165.9 ± 0"),
        (123456.7, 0.01, "123457 ± 0.020"),
        (-2500012.34, 3.1 / 1.96, "-2500012 ± 3.1"),
        (2.5e9, 4e5, "2500000000 ± 784000"),
        (1.02e-8, 8.7e-8, "0.1e-07 ± 1.7e-07"),
        (-7.541e-6, 1.2e-7, "-7.54e-06 ± 2.4e-07"),
        (2.671e-8, 0.0, "2.67e-08 ± 0"),
        (0.0, 0.0, "0 ± 0"),
    ],
)
def test_a_margin_is_196_standard_deviations_with_two_digits(mean: float, std: float, text: str) -> None:
    assert with_margin(mean, std) == text
    assert as_precise(mean, std) == text.split(" ± ")[0]


def test_numbers_have_no_needless_exponent() -> None:
    assert [number(value) for value in (0, 0.5, 12.3456, 123456.0, 1.5e7, 2e-5)] == [
        "0",
        "0.5",
        "12.35",
        "123456",
        "1.50e+07",
        "2.00e-05",
    ]


def test_one_result_is_no_results() -> None:
    assert [counted(n, "result") for n in (0, 1, 2)] == ["0 results", "1 result", "2 results"]
    assert counted(2, "entry", "entries") == "2 entries"
