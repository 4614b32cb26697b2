"""The page's own numbers as texts, in plain Node."""

import json
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

from conbo.parameter_records import parameter_records
from conbo.rounding import with_margin
from conbo.spaces import Categorical, Integer, Parameter, Real, Value
from conbo.value_text import value_text
from missing_tools import skip_without


def on_the_page(expression: str, given: Any) -> Any:
    """The value of a JavaScript expression in which `given` is the second argument."""
    node = shutil.which("node") or skip_without("Node.js", "apt-get install nodejs")
    script = files("conbo.reports").joinpath("parameters.js").read_text(encoding="utf-8")
    program = f"{script}\nconst given = JSON.parse(process.argv[1]);\nconsole.log(JSON.stringify({expression}));"
    done = subprocess.run([node, "-e", program, json.dumps(given)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


VALUES: list[tuple[Parameter, Value]] = [
    (Real(0, 150), 43.2781623),
    (Real(1000.0001, 1000.0009), 1000.000371197021),
    (Real(12345600, 12345699), 12345612.3456),
    (Real(0, 1e8), 12345612.3456),
    (Real(1e-5, 1, log=True), 1.23456e-5),
    (Integer(12345600, 12345699), 12345651),
    (Categorical([1000.0001, 1000.0002]), 1000.0002),
    (Categorical([1e-5, 0.1]), 1e-5),
]


def test_a_value_has_the_digits_that_its_range_needs() -> None:
    given = [[*parameter_records({"x": parameter}), value] for parameter, value in VALUES]
    texts = on_the_page("given.map(([record, value]) => createParameter(record).text(value))", given)
    assert list(map(float, texts)) == [float(value_text(parameter, value)) for parameter, value in VALUES]
    assert (texts[2], texts[3], texts[-1]) == ("12345612.346", "1.235e+7", "1e-5")


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (165.93, 3.6, "165.9 ± 7.1"),
        (1234567.8, 3.6, "1234568 ± 7.1"),
        (-1234567.8, 360, "-1234568 ± 706"),
        (-1.4934e12, 7e10, "-1.49e+12 ± 1.4e+11"),
    ],
)
def test_a_mean_is_as_precise_as_its_margin(mean: float, std: float, text: str) -> None:
    assert on_the_page("withMargin(...given)", [mean, std]) == with_margin(mean, std) == text


def test_means_are_written_as_in_python_at_every_size() -> None:
    pairs = [
        (sign * mean * 10.0**power, std * 10.0**other)
        for sign, mean, std in ((1, 1.5, 2.1), (-1, 9.6349, 1.37))
        for power in range(-9, 13)
        for other in range(-9, 13)
    ]
    pairs += [(0.0, 0.02), (0.0, 0.0), (2.5, 0.0), (-3e-7, 0.0), (4e8, 0.0)]
    assert on_the_page("given.map((pair) => withMargin(...pair))", pairs) == [with_margin(*pair) for pair in pairs]
