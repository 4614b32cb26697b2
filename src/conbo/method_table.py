"""The methods by name. A new one is one row here, beside the small file of its proposal.

(The module is not called `methods`: importing it would put it in the place of the function `conbo.methods`.)
"""

from dataclasses import dataclass

from conbo.acquisition.conditional import ConBO, GaussianStates
from conbo.acquisition.improvement import ExpectedImprovement
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG, MonteCarloKG
from conbo.errors import SettingError
from conbo.proposals import Proposal
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.thompson import Thompson
from conbo.proposals.uniform import UniformProposal
from conbo.spaces import closest

DEFAULT_METHOD = "conbo"

_PAPER = "Pearce, Klaise & Groves (AISTATS 2022)"


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
        Method(
            "expected-improvement",
            "expected improvement over all states and actions jointly",
            "Jones, Schonlau & Welch (1998)",
            Maximizer(ExpectedImprovement()),
            states_as_actions=True,
        ),
        Method(
            "conbo",
            "knowledge gradient over all states, accurate at five look-ahead samples (the default)",
            f"{_PAPER}, with our integrals over outcomes and states",
            Maximizer(ConBO(HybridKG())),
        ),
        Method(
            "conbo-3",
            "the paper's ConBO with three look-ahead samples",
            _PAPER,
            Maximizer(ConBO(HybridKG(n_z=3, spread=1.0, estimate="lower"), GaussianStates())),
        ),
        Method(
            "conbo-5",
            "the paper's ConBO with five look-ahead samples",
            _PAPER,
            Maximizer(ConBO(HybridKG(n_z=5, spread=1.0, estimate="lower"), GaussianStates())),
        ),
        Method(
            "kg-hybrid",
            "hybrid knowledge gradient, states treated as actions",
            _PAPER,
            Maximizer(ConBO(HybridKG(n_z=5, spread=1.0, estimate="lower"))),
            states_as_actions=True,
        ),
        Method(
            "kg-discrete",
            "knowledge gradient over random discrete actions, states treated as actions",
            "Frazier, Powell & Dayanik (2009)",
            Maximizer(ConBO(DiscreteKG())),
            states_as_actions=True,
        ),
        Method(
            "kg-monte-carlo",
            "knowledge gradient by Monte Carlo, states treated as actions",
            "Wu & Frazier (2017)",
            Maximizer(ConBO(MonteCarloKG())),
            states_as_actions=True,
        ),
        Method(
            "thompson",
            "Thompson sampling, states treated as actions",
            "Thompson (1933); Kandasamy et al. (2018)",
            Thompson(),
            states_as_actions=True,
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
