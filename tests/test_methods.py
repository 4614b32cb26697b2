import pytest

import conbo
from conbo.errors import SettingError
from conbo.method_table import METHODS, method


def test_the_list_of_methods_prints_as_a_table() -> None:
    listed = conbo.methods()
    assert list(listed) == list(METHODS)
    lines = str(listed).splitlines()
    assert len(lines) == len(METHODS)
    for line, (name, row) in zip(lines, METHODS.items(), strict=True):
        assert line.startswith(name)
        assert line.endswith(row.summary)


def test_every_method_says_what_it_is_in_one_line() -> None:
    for name, row in METHODS.items():
        assert row.name == name
        assert 0 < len(row.summary) <= 90
        assert "\n" not in row.summary
        assert row.reference


def test_importing_the_table_does_not_hide_the_function() -> None:
    assert callable(conbo.methods)


def test_unknown_names() -> None:
    assert method("uniform") is METHODS["uniform"]
    with pytest.raises(SettingError, match="unknown method 'random': known are 'uniform'"):
        method("random")
    with pytest.raises(SettingError, match="unknown method 'Uniform': did you mean 'uniform'"):
        method("Uniform")
