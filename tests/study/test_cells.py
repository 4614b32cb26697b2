"""Text becomes numbers, choices and seeds, in the same way for tables, command lines and study files."""

import pytest

from conbo import Categorical, Integer, Real
from conbo.errors import PointError
from conbo.study.cells import seed_in, value_in


def test_texts_become_values() -> None:
    assert value_in(Real(0, 1), "0.5") == 0.5
    assert repr(value_in(Integer(0, 9), "3")) == "3"
    assert value_in(Real(0, 1), "high") == "high"
    choices = Categorical(["a", "A", 3, 2.5, True, 4.0])
    texts = ("a", "A", "3", "3.0", "2.50", "true", "True", "TRUE", "4", "c")
    assert [value_in(choices, text) for text in texts] == ["a", "A", 3, 3, 2.5, True, True, True, 4.0, "c"]
    assert [value_in(parameter, "1_0") for parameter in (Real(0, 20), Integer(0, 20))] == ["1_0", "1_0"]
    assert value_in(Categorical(["true", True]), "true") == "true"  # an exact spelling comes first
    for ambiguous, text in ((["1", 1], "1"), (["True", True], "True")):
        with pytest.raises(PointError, match=r"a string must stand for one choice, but '(1|True)' stands for"):
            value_in(Categorical(ambiguous), text)


@pytest.mark.parametrize("cell", [7, 7.0, "7", " 7", "7.0"])
def test_whole_numbers_are_seeds(cell: object) -> None:
    assert repr(seed_in(cell)) == "7"
    assert seed_in(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("cell", ["", None, "7.5", "-1", "nan", "inf", True, str(2**63), "9" * 400, "9" * 5000])
def test_what_is_no_seed(cell: object) -> None:
    with pytest.raises(PointError, match=r"a seed must be a whole number from 0 to 2\*\*63 - 1, but got") as raised:
        seed_in(cell)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("cell", ["4611686018427387905.0", "4.611686018427387905e18", 2.0**62, 2.0**53])
def test_seeds_that_may_have_been_rounded(cell: object) -> None:
    with pytest.raises(PointError, match=r"a seed must have all its digits if it is 2\*\*53 or more, but got"):
        seed_in(cell)
    assert seed_in("4611686018427387905") == 4611686018427387905
    assert seed_in("9.007199254740991e15") == 2**53 - 1
