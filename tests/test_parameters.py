import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conbo.errors import PointError, SpaceError
from conbo.parameters import Categorical, Integer, Parameter, Real


@st.composite
def reals(draw: st.DrawFn) -> Real:
    log = draw(st.booleans())
    low = draw(st.floats(1e-9 if log else -1e9, 1e9))
    high = low + draw(st.floats(1e-9, 1e12))
    assume(low < high)
    return Real(low, high, log)


@st.composite
def integers(draw: st.DrawFn) -> Integer:
    log = draw(st.booleans())
    low = draw(st.integers(1 if log else -(10**12), 10**12 - 1))
    return Integer(low, draw(st.integers(low + 1, 10**12)), log)


choices = st.one_of(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
categoricals = st.lists(choices, min_size=1, max_size=20, unique=True).map(Categorical)
parameters = st.one_of(reals(), integers(), categoricals)


@given(reals(), st.floats(0, 1))
def test_reals_survive_the_round_trip(parameter: Real, fraction: float) -> None:
    value = min(parameter.low + fraction * (parameter.high - parameter.low), parameter.high)
    encoded = parameter.encode([value])
    assert 0 <= encoded[0] <= 1
    assert abs(parameter.decode(encoded)[0] - value) <= 1e-12 * (parameter.high - parameter.low)


@given(reals())
def test_the_ends_of_a_range_survive_exactly(parameter: Real) -> None:
    ends = [parameter.low, parameter.high]
    assert parameter.encode(ends).tolist() == [0.0, 1.0]
    assert parameter.decode([0.0, 1.0]) == ends


@given(st.data(), integers())
def test_integers_survive_the_round_trip_exactly(data: st.DataObject, parameter: Integer) -> None:
    values = data.draw(st.lists(st.integers(parameter.low, parameter.high), min_size=1))
    encoded = parameter.encode(values)
    assert parameter.decode(encoded) == values
    np.testing.assert_array_equal(parameter.snap(encoded), encoded)


@given(categoricals)
def test_categories_survive_the_round_trip_exactly(parameter: Categorical) -> None:
    assert tuple(parameter.decode(parameter.encode(parameter.choices))) == parameter.choices


@given(parameters, st.floats(0, 1))
def test_every_place_of_the_unit_interval_decodes_to_a_valid_value(parameter: Parameter, unit: float) -> None:
    value = parameter.decode([unit])[0]
    assert parameter.validate("p", value) == value
    assert type(parameter.validate("p", value)) is type(value)
    assert parameter.decode(parameter.snap([unit])) == [value]


@given(st.one_of(integers(), categoricals), st.floats(0, 1))
def test_a_cell_surrounds_the_level_that_it_decodes_to(parameter: Integer | Categorical, unit: float) -> None:
    lower, upper = parameter.cell([unit])
    level = parameter.snap([unit])
    assert lower < level < upper
    assert lower - 1e-9 <= unit <= upper + 1e-9


@pytest.mark.parametrize(
    ("parameter", "levels"),
    [
        (Integer(3, 6), [0.125, 0.375, 0.625, 0.875]),
        (Integer(1, 2, log=True), [np.log(2) / np.log(5), np.log(4) / np.log(5)]),
        (Categorical(["a", "b"]), [0.25, 0.75]),
    ],
)
def test_levels_are_at_their_places(parameter: Integer | Categorical, levels: list[float]) -> None:
    assert parameter.n_levels == len(levels)
    np.testing.assert_allclose(parameter.levels(), levels, rtol=1e-14)


def test_scales_are_linear_or_logarithmic() -> None:
    np.testing.assert_allclose(Real(-1, 3).encode([0, 2]), [0.25, 0.75])
    np.testing.assert_allclose(Real(1e-4, 1, log=True).encode([1e-3, 0.1]), [0.25, 0.75])
    np.testing.assert_allclose(Real(1e-4, 1, log=True).scale.slope([0.25]), 1e-3 * np.log(1e4))
    np.testing.assert_allclose(Real(-1, 3).scale.slope([0.25]), 4.0)
    assert Real(0, 1).n_levels is None


def test_decoding_and_snapping_clip_to_the_unit_interval() -> None:
    assert Real(0, 2).decode([-0.1, 1.1]) == [0.0, 2.0]
    assert Integer(0, 2).decode([-0.1, 1.1]) == [0, 2]
    assert Categorical(["a", "b"]).decode([-0.1, 1.1]) == ["a", "b"]
    assert Real(0, 2).snap([-0.1, 0.3, 1.1]).tolist() == [0.0, 0.3, 1.0]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Real(1.5, 0.5), r"`low < high` must hold, but got low=1\.5, high=0\.5\."),
        (lambda: Real(1, 1), r"`low < high` must hold, but got low=1\.0, high=1\.0\."),
        (lambda: Integer(7, 7), r"`low < high` must hold, but got low=7, high=7\."),
        (lambda: Real(NAN, 1), r"`low` must be a finite number, but got low=nan\."),
        (lambda: Real(0, INF), r"`high` must be a finite number, but got high=inf\."),
        (lambda: Real("0", 1), r"`low` must be a finite number, but got low='0'\."),
        (lambda: Real(False, 1), r"`low` must be a finite number, but got low=False\."),
        (lambda: Real(-1e308, 1e308), r"`high - low` must be finite, but got low=-1e\+308, high=1e\+308\."),
        (lambda: Real(0, 1, log=True), r"`low > 0` must hold on a log scale, but got low=0\.0\."),
        (lambda: Real(1e-200, 1e200, log=True), r"`high / low <= 1e\+300` must hold on a log scale, but got"),
        (lambda: Integer(0.5, 3), r"`low` must be an integer within ±1000000000000, but got low=0\.5\."),
        (lambda: Integer(0, 10**13), r"`high` must be an integer within .*, but got high=10000000000000\."),
        (lambda: Integer(0, INF), r"`high` must be a finite number, but got high=inf\."),
        (
            lambda: Integer(0, 9, log=True),
            r"`low >= 1` must hold for integers on a log scale, but got low=0\.",
        ),
        (lambda: Categorical([]), r"`choices` must not be empty, but got none\."),
        (
            lambda: Categorical(["a", "b", "a"]),
            r"must differ from each other, but got 'a' == 'a' in \('a', 'b', 'a'\)",
        ),
        (lambda: Categorical("abc"), r"`choices` must be a sequence of values, but got 'abc'\."),
        (lambda: Categorical(3), r"`choices` must be a sequence of values, but got 3\."),
        (lambda: Categorical({"a"}), r"`choices` must have an order, because .*, but got \{'a'\}\."),
        (
            lambda: Categorical([None]),
            r"a choice must be a string, a finite number or a boolean, but got None\.",
        ),
        (
            lambda: Categorical([NAN]),
            r"a choice must be a string, a finite number or a boolean, but got nan\.",
        ),
        (
            lambda: Categorical([[1]]),
            r"a choice must be a string, a finite number or a boolean, but got \[1\]\.",
        ),
        (
            lambda: Categorical(["x" * 1_001]),
            r"a choice must have at most 1000 characters, but got 1001: 'x{133} \[… 803 characters cut …\] x{65}'\.",
        ),
        (
            lambda: Categorical(["a\ud800"]),
            r"a choice must be text that can be encoded in UTF-8, but got 'a\\ud800'\.",
        ),
        (lambda: Categorical([-(10**5_000)]), r"must be within ±1e100, but got -0x.* characters cut"),
        (lambda: Categorical(range(10_001)), r"`choices` must be at most 10000 values, but got more\."),
    ],
)
def test_bad_parameters_are_refused(make, message) -> None:
    with pytest.raises(SpaceError, match=message):
        make()


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        (Real(0.5, 1.5), 2, r"`0\.5 <= p <= 1\.5` must hold, but got p=2\."),
        (Real(0.5, 1.5), NAN, r"`0\.5 <= p <= 1\.5` must hold, but got p=nan\."),
        (Real(0.5, 1.5), 10**400, r"`0\.5 <= p <= 1\.5` must hold"),
        (Real(0.5, 1.5), "1", r"'p' must be a number, but got '1'\."),
        (Real(0.5, 1.5), True, r"'p' must be a number, but got True\."),
        (Real(0.5, 1.5), None, r"'p' must be a number, but got None\."),
        (Integer(0, 9), 2.5, r"'p' must be an integer, but got 2\.5\."),
        (Integer(0, 9), 10, r"`0 <= p <= 9` must hold, but got p=10\."),
        (Integer(0, 9), INF, r"`0 <= p <= 9` must hold, but got p=inf\."),
        (Integer(0, 9), np.True_, r"'p' must be a number, but got np\.True_\."),
        (Categorical(["a", "b"]), "c", r"'p' must be one of 'a', 'b', but got 'c'\."),
        (Categorical([0, 1]), True, r"'p' must be one of 0, 1, but got True\."),
        (Categorical([0, 1]), [1], r"'p' must be one of 0, 1, but got \[1\]\."),
    ],
)
def test_bad_values_are_refused(parameter: Parameter, value: object, message: str) -> None:
    with pytest.raises(PointError, match=message):
        parameter.validate("p", value)


@pytest.mark.parametrize(
    ("parameter", "value", "plain"),
    [
        (Real(0, 1), 1, 1.0),
        (Real(0, 1), np.float32(0.5), 0.5),
        (Integer(0, 9), 3.0, 3),
        (Integer(0, 9), np.int8(3), 3),
        (Categorical([1.0, 2.5]), 1, 1.0),
        (Categorical([False, True]), np.True_, True),
        (Categorical(np.array([1, 2])), np.int64(2), 2),
    ],
)
def test_values_become_plain(parameter: Parameter, value: object, plain: object) -> None:
    validated = parameter.validate("p", value)
    assert validated == plain
    assert type(validated) is type(plain)


def test_a_range_in_single_precision_is_no_overflow() -> None:  # a warning would be an error here
    assert Real(np.float32(0.5), 5) == Real(0.5, 5)
    with pytest.raises(SpaceError, match="`low` must be a finite number, but got low="):
        Real(np.float32("-inf"), 5)
    with pytest.raises(SpaceError, match="`high` must be a finite number, but got high="):
        Real(0, 10**400)
