"""Parses linear constraints that are written as text, such as "stock_a + stock_b <= 100".

The text follows a small grammar and is never evaluated as Python code:

    constraint  =  sum ("<=" | ">=" | "==") sum
    sum         =  {sign} product {sign {sign} product}
    sign        =  "+" | "-"
    product     =  factor {"*" factor}           with at most one name among the factors
    factor      =  number | name                 a name that is not an identifier is in quotes

Values are in the user's units, even for parameters on a log scale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from conbo.errors import SpaceError, shortened

LONGEST = 10_000  # largest number of characters in a constraint
MOST = 1_000  # largest number of constraints of a space

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<quoted>'[^']*'|\"[^\"]*\")"
    r"|(?P<sign><=|>=|==|[-+*]))"
)
_RELATIONS = ("<=", ">=", "==")
_RULE = "a constraint must be linear, like 'a + 2 * b <= 100'"


@dataclass(frozen=True)
class LinearConstraint:
    """A linear constraint Σ coefficient · value <= bound, or Σ coefficient · value == bound if `equality` is true."""

    text: str  # the constraint as the user wrote it
    coefficients: tuple[tuple[str, float], ...] = field(compare=False)  # pairs of a parameter's name and a number
    bound: float = field(compare=False)
    equality: bool = field(compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters in the constraint."""
        return tuple(name for name, _ in self.coefficients)


def parse_constraints(texts: Iterable[str]) -> tuple[LinearConstraint, ...]:
    """Parse linear constraints, such as "a + b <= 100"; raise SpaceError if one of them is not valid."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise SpaceError(f"`constraints` must be a sequence of strings, but got {shortened(repr(texts))}.")
    parsed = tuple(map(parse_constraint, texts))
    if len(parsed) > MOST:
        raise SpaceError(f"`constraints` must be at most {MOST} strings, but got {len(parsed)}.")
    return parsed


def parse_constraint(text: str) -> LinearConstraint:
    """Parse a linear constraint, such as "a + b <= 100"; raise SpaceError if it is not valid."""
    if not isinstance(text, str):
        raise SpaceError(f"a constraint must be a string, but got {shortened(repr(text))}.")
    if not text.strip():
        raise SpaceError("a constraint must not be empty, but got an empty string.")
    if len(text) > LONGEST:
        raise SpaceError(f"a constraint must have at most {LONGEST} characters, but got {len(text)}.")
    tokens = _tokens(text)
    relations = [i for i, (kind, word) in enumerate(tokens) if kind == "sign" and word in _RELATIONS]
    if len(relations) != 1:
        raise _error(text, f"it must have one of <=, >= and ==, but got {len(relations)} of them")
    (middle,) = relations
    left, right = _sum(text, tokens[:middle]), _sum(text, tokens[middle + 1 :])
    relation = tokens[middle][1]
    if relation == ">=":
        left, right = right, left
    coefficients = {name: left.get(name, 0.0) - right.get(name, 0.0) for name in {**left, **right} if name}
    bound = right.get("", 0.0) - left.get("", 0.0)
    if not all(map(math.isfinite, (bound, *coefficients.values()))):
        raise _error(text, "its numbers must be finite")
    present = tuple((name, value) for name, value in coefficients.items() if value != 0)
    if not present:
        raise _error(text, "it must limit at least one parameter")
    return LinearConstraint(text, present, bound, relation == "==")


def _tokens(text: str) -> list[tuple[str, str]]:
    """Split a constraint into tokens (kind, characters), where kind is "number", "name", "quoted" or "sign".

    Signs are +, -, *, <=, >= and ==.
    """
    tokens, place = [], 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            rest = text[place:].strip()
            known = "numbers, names (in quotes where they are no identifiers), +, -, *, <=, >= and =="
            raise _error(text, f"it is made of {known}, but got {shortened(rest, 30)!r}")
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
        place = match.end()
    return tokens


def _sum(text: str, tokens: list[tuple[str, str]]) -> dict[str, float]:
    """Parse one side of a constraint; return the coefficients by parameter name, and the constant under ''."""
    total: dict[str, float] = {}
    place = 0
    while True:
        sign = 1.0
        while place < len(tokens) and tokens[place][1] in ("+", "-") and tokens[place][0] == "sign":
            sign = -sign if tokens[place][1] == "-" else sign
            place += 1
        name, value, place = _product(text, tokens, place)
        total[name] = total.get(name, 0.0) + sign * value
        if place == len(tokens):
            return total
        if tokens[place] not in (("sign", "+"), ("sign", "-")):
            raise _error(text, f"there must be a sign before {tokens[place][1]!r}")


def _product(text: str, tokens: list[tuple[str, str]], place: int) -> tuple[str, float, int]:
    """Parse the product that begins at the token with index `place`.

    Return the name of its parameter (empty if it has none), the product of its numbers, and the index of the token
    after it.
    """
    name, value = "", 1.0
    while True:
        if place == len(tokens) or tokens[place][0] == "sign":
            found = "the end" if place == len(tokens) else repr(tokens[place][1])
            raise _error(text, f"a number or a name must come before {found}")
        kind, word = tokens[place]
        if kind == "number":
            value *= float(word)
        elif name:
            raise _error(text, f"it must not multiply parameters, but got '{name}' times {word!r}")
        else:
            name = word[1:-1] if kind == "quoted" else word
            if not name:
                raise _error(text, "a name in quotes must not be empty")
        place += 1
        if place == len(tokens) or tokens[place] != ("sign", "*"):
            return name, value, place
        place += 1


def _error(text: str, what: str) -> SpaceError:
    return SpaceError(f"{_RULE}: {what}, in {shortened(repr(text))}.")
