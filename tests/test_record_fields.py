"""Plain records: what is read of them, and how errors name what is wrong."""

import pytest

from conbo.errors import RecordError, SettingError, StudyError
from conbo.record_fields import Fields, checksum, errors_about, parse_json, shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a record must be JSON: Expecting property name"),
        ('{"a": NaN}', "a record must hold finite numbers, but got NaN"),
        ('{"a": -Infinity}', "a record must hold finite numbers, but got -Infinity"),
        ('{"a": 1e999}', "a record must hold finite numbers, but got 1e999"),
        ('{"a": {"b": 1, "b": 2}}', "`b` must be there once, but is there twice"),
        ("[" * 100_000, "a record must be JSON: maximum recursion depth exceeded"),
        ("9" * 5000, "a record must be JSON: Exceeds the limit"),
        (b'{"a": "\xff"}', "a record must be text in UTF-8, but is not"),
    ],
    ids=["cut off", "NaN", "infinite", "too large", "twice", "deep", "long", "bytes"],
)
def test_texts_that_are_no_records(text: str | bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        parse_json(text)


def test_a_place_is_named_by_its_path() -> None:
    inner = Fields.of({"a": {"b": {"c": [1, "x"]}}}).fields("a").fields("b")
    with pytest.raises(RecordError, match=r"^`a\.b\.c` must hold nothing but a finite number, but got 'x'\.$"):
        inner.numbers("c")


def test_true_is_no_number_and_one_is_no_flag() -> None:
    fields = Fields({"flag": True, "one": 1})
    assert (fields.flag("flag"), fields.whole("one"), fields.number("one")) == (True, 1, 1.0)
    for read in (lambda: fields.whole("flag"), lambda: fields.number("flag"), lambda: fields.flag("one")):
        with pytest.raises(RecordError, match="must be"):
            read()


def test_checksums_see_content_alone() -> None:
    assert checksum({"a": 1, "b": [0.5]}) == checksum({"b": [0.5], "a": 1})
    assert checksum({"a": 0.0}) != checksum({"a": -0.0})
    assert len({checksum({"a": value}) for value in (1, 1.0, "1", True, None, [1])}) == 6


def test_errors_say_what_they_are_about_but_keep_advice() -> None:
    with pytest.raises(RecordError, match=r"^the file: it is wrong$"), errors_about("the file"):
        raise SettingError("it is wrong")
    with pytest.raises(StudyError, match=r"^open it$"), errors_about("the file"):
        raise StudyError("open it")


def test_long_values_are_cut_short() -> None:
    assert shown("x" * 1000) == "'" + "x" * 79 + "…"
    assert shown(10**5000) == "a whole number of thousands of digits"
