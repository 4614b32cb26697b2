"""Parameters as axes of a plot: the positions of their values, and the layout of the axis.

A number is drawn at its value, on a linear or log scale. The choices of a categorical parameter are drawn at 0, 1, 2, …
"""

from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np

from conbo.spaces import Array, Categorical, Integer, Parameter, Real, Value
from conbo.value_text import value_text

MOST_TICKS = 12  # largest number of choices or integers that all get a label
# largest number of characters in a name, and in a line of a choice's label on an axis
LONGEST_LABEL, LONGEST_TICK = 24, 16
MOST_DECADES = 5  # largest number of powers of ten that get a label; more would overlap in a small chart
LARGEST_PLAIN = 3  # largest exponent for which a power of ten is written out
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class ParameterAxis:
    """A parameter as an axis of a plot."""

    role: str  # state or action
    name: str
    parameter: Parameter

    @property
    def title(self) -> str:
        """The title of the axis."""
        return f"{self.role} {label(self.name)}"

    @property
    def is_category(self) -> bool:
        """Whether the parameter is categorical, so that its values have no order."""
        return isinstance(self.parameter, Categorical)

    def text(self, value: Value) -> str:
        """A value of the parameter as text for a plotly figure."""
        return label(value_text(self.parameter, value))

    def places(self, most: int) -> Array:
        """Values (n,) of the parameter, encoded in the unit interval.

        For a categorical parameter, these are all its choices; for a numeric one, at most `most` evenly spaced values.
        """
        if isinstance(self.parameter, Categorical):
            return self.parameter.levels()
        places = np.linspace(0.0, 1.0, most)
        return np.unique(self.parameter.snap(places)) if isinstance(self.parameter, Integer) else places

    def positions(self, places: Array) -> Array:
        """Convert values (n,) encoded in the unit interval to positions (n,) on the axis."""
        if isinstance(self.parameter, Categorical):
            return np.clip(np.floor(places * self.parameter.n_levels), 0, self.parameter.n_levels - 1)
        return np.array(self.parameter.decode(places), dtype=np.float64)

    def bins(self, most: int) -> Array:
        """Edges (n + 1,) of n bins in the unit interval, for a histogram.

        A categorical parameter has a bin for each choice, and a real one has `most` bins. An integer parameter has at
        most `most` bins, each of which holds whole values: equally many of them (the last one may have fewer), or on a
        log scale about the same range.
        """
        parameter = self.parameter
        if isinstance(parameter, Real):
            return np.linspace(0.0, 1.0, most + 1)
        if isinstance(parameter, Categorical) or parameter.n_levels <= most:
            first = parameter.levels()
        elif parameter.log:
            first = np.unique(parameter.snap(np.linspace(0.0, 1.0, most + 1)[:-1]))
        else:
            first = parameter.encode(np.arange(parameter.low, parameter.high + 1, -(-parameter.n_levels // most)))
        return np.append(parameter.cell(first)[0], 1.0)

    def edges(self, bins: Array) -> Array:
        """Convert the edges (n + 1,) of bins in the unit interval to positions on the axis."""
        if isinstance(self.parameter, Categorical):
            return bins * self.parameter.n_levels - 0.5
        return self.parameter.scale.from_unit(bins)

    def layout(self) -> dict[str, Any]:
        """Plotly's options for the axis: title, range, scale and ticks."""
        title = {"title": {"text": self.title}}
        if isinstance(self.parameter, Categorical):
            labels = [_tick(choice) for choice in self.parameter.choices]
            every = -(-len(labels) // MOST_TICKS)
            ticks = {"tickvals": list(range(len(labels)))[::every], "ticktext": labels[::every]}
            bare = {"showgrid": False, "zeroline": False}
            return {**title, **ticks, "range": [-0.5, len(labels) - 0.5], **bare}
        scale = self.parameter.scale
        low, high = float(scale.low), float(scale.high)
        if self.parameter.log:
            ends = [float(np.log10(low)), float(np.log10(high))]
            return {**title, "type": "log", "range": ends, **_decades(*ends)}
        return {**title, "range": [low, high], **self._integers()}

    def _integers(self) -> dict[str, Any]:
        """Plotly's options for ticks at integers if the parameter has few values; otherwise an empty dict.

        Without these options, plotly would also label numbers between the integers.
        """
        if not isinstance(self.parameter, Integer) or self.parameter.n_levels > MOST_TICKS:
            return {}
        every = 1 if self.parameter.n_levels <= MOST_TICKS // 2 else 2
        values = list(range(self.parameter.low, self.parameter.high + 1, every))
        return {"tickvals": values, "ticktext": [str(value) for value in values]}


def _decades(low: float, high: float) -> dict[str, Any]:
    """Plotly's options for ticks at powers of ten on a log axis; an empty dict if fewer than two are on the axis.

    `low` and `high` are the base-10 logarithms of the ends of the axis. Plotly's own labels would have SI prefixes,
    such as 100 µ for 1e-4.
    """
    exponents = range(int(np.ceil(low)), int(np.floor(high)) + 1)
    chosen = exponents[:: -(-len(exponents) // MOST_DECADES) or 1]
    if len(chosen) < 2:
        return {}
    plain = all(abs(k) <= LARGEST_PLAIN for k in chosen)
    texts = [f"{10.0**k:g}" if plain else "10" + str(k).translate(SUPERSCRIPTS) for k in chosen]
    return {"tickvals": [10.0**k for k in chosen], "ticktext": texts}


def _tick(choice: Value) -> str:
    """The label of a choice on an axis, on two lines if it is long."""
    lines = wrap(str(choice), LONGEST_TICK) or [""]
    if len(lines) > 2:
        lines = [lines[0], f"{lines[1][: LONGEST_TICK - 1]}…"]
    return "<br>".join(label(line) for line in lines)


def label(text: str, longest: int = LONGEST_LABEL) -> str:
    """Shorten a text to at most `longest` characters, for a plotly figure.

    Characters that plotly would read as markup or math are then escaped.
    """
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return escape(short, quote=False).replace("$", "&#36;")
