"""The methods by name. A new one is one row here, beside the small file of its proposal.

(The module is not called `methods`: importing it would put it in the place of the function `conbo.methods`.)
"""

from dataclasses import dataclass

from conbo.errors import SettingError
from conbo.proposals import Proposal
from conbo.proposals.uniform import UniformProposal
from conbo.spaces import closest

DEFAULT_METHOD = "conbo"


@dataclass(frozen=True)
class Method:
    """How a study chooses its evaluations."""

    name: str
    summary: str  # one line
    reference: str
    proposal: Proposal
    states_as_actions: bool = False  # the proposal sees a belief in which all columns are actions
    uses_model: bool = True  # else no model is fitted to suggest a point


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "uniform",
            "random search: states from P[s], uniform actions",
            "the baseline of every comparison",
            UniformProposal(),
            uses_model=False,
        ),
    )
}


class Summaries(dict[str, str]):
    """Method names with one line each; prints as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {summary}" for name, summary in self.items())


def methods() -> Summaries:
    """The names of all methods, with one line on each."""
    return Summaries({method.name: method.summary for method in METHODS.values()})


def method(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise SettingError(f"unknown method {name!r}: {closest(str(name), METHODS)}")
    return METHODS[name]
