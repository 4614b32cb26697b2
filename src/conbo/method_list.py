"""The class `Method`, and descriptions of the built-in methods, which can be read without importing torch.

The recipes of the methods are in `method_table.py`, whose import takes seconds. (This module is not called `methods`,
because a submodule of that name would replace the function `conbo.methods` when it is imported.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess

if TYPE_CHECKING:
    from conbo.belief import ModelLike
    from conbo.policies import PolicyRecipe
    from conbo.proposals import Proposal

DEFAULT_METHOD = "conbo"

# The papers evaluate their methods with this model, so it is the default of these methods.
PUBLISHED_MODEL = GaussianProcess(
    "matern52",
    noise="small",
    input_warping="none",
    relative_actions="none",
    main_effects="none",
    output_warping="none",
    members=1,
)

_PAPER = "Pearce, Klaise & Groves (2020)"


@dataclass(frozen=True)
class Method:
    """How a study chooses its evaluations, and how its policy chooses actions.

    Parameters
    ----------
    name
        Name of the method in stored settings and reports.
    summary
        One line on what the method does.
    reference
        Where the method was published.
    proposal
        Object that chooses points: its method ``propose(belief, n, generator, state)`` returns a `Suggestion` of n
        points. If `state` is not None, all of them must be in that state. `Maximizer` makes a proposal from an
        acquisition function.
    model
        The default model of studies with this method.
    states_as_actions
        Whether the proposal treats state parameters as actions, and so searches for the best pair of state and action.
    uses_model
        Whether the proposal needs a fitted model.
    needs_finite_states
        Whether the method works only with finitely many states.
    values_are_gains
        Whether the values of the acquisition function are expected gains, in units of the reward. Those of entropy
        search, for example, are not.
    policy
        How the policy chooses actions. By default, it takes the action with the best posterior mean.
    needs_finite_actions
        Whether the method works only with finitely many actions.
    draws_functions
        Whether the proposal draws whole functions from the posterior, which BoTorch models do not offer.

    Examples
    --------
    >>> from conbo.acquisition.improvement import ExpectedImprovement
    >>> from conbo.proposals.maximizer import Maximizer
    >>> mine = conbo.Method("mine", "expected improvement", "this page", Maximizer(ExpectedImprovement()))
    >>> conbo.Study(space, method=mine).method
    'mine'
    """

    name: str
    summary: str
    reference: str
    proposal: Proposal
    model: ModelLike = PUBLISHED_MODEL
    states_as_actions: bool = False
    uses_model: bool = True
    needs_finite_states: bool = False
    values_are_gains: bool = True
    policy: PolicyRecipe | None = None
    needs_finite_actions: bool = False
    draws_functions: bool = False

    @property
    def keeps_constraints(self) -> bool:
        """Whether the method's policy takes learned constraints into account."""
        return self.policy is None


@dataclass(frozen=True)
class Listed:
    """The description of a built-in method, which is available without importing torch."""

    summary: str  # one line on what the method does
    reference: str  # where the method was published
    model: GaussianProcess = PUBLISHED_MODEL  # the default model of studies with this method
    needs_finite_states: bool = False  # whether the method works only with finitely many states
    needs_finite_actions: bool = False  # whether the method works only with finitely many actions
    keeps_constraints: bool = True  # whether the method's policy satisfies learned constraints
    draws_functions: bool = False  # whether the method draws whole functions from the posterior


LISTED: dict[str, Listed] = {
    "uniform": Listed(
        "random search: states from P[s], uniform actions",
        "the baseline of every comparison",
    ),
    "expected-improvement": Listed(
        "expected improvement over all states and actions jointly",
        "Jones, Schonlau & Welch (1998)",
    ),
    "conbo": Listed(
        "knowledge gradient over all states, accurate at five look-ahead samples (the default)",
        f"{_PAPER}, with our integrals over outcomes and states",
        GaussianProcess(),
    ),
    "conbo-3": Listed(
        "the paper's ConBO with three look-ahead samples",
        _PAPER,
    ),
    "conbo-5": Listed(
        "the paper's ConBO with five look-ahead samples",
        _PAPER,
    ),
    "kg-hybrid": Listed(
        "hybrid knowledge gradient, states treated as actions",
        _PAPER,
    ),
    "kg-discrete": Listed(
        "knowledge gradient over random discrete actions, states treated as actions",
        "Frazier, Powell & Dayanik (2009)",
    ),
    "kg-monte-carlo": Listed(
        "knowledge gradient by Monte Carlo, states treated as actions",
        "Wu & Frazier (2017)",
    ),
    "thompson": Listed(
        "Thompson sampling, states treated as actions",
        "Thompson (1933); Kandasamy et al. (2018)",
    ),
    "conbo-es": Listed(
        "entropy search over all states: information about the best action of each",
        f"Hennig & Schuler (2012); {_PAPER}",
        draws_functions=True,
    ),
    "conbo-pes": Listed(
        "predictive entropy search over all states: the same information, the other way round",
        f"Hernández-Lobato, Hoffman & Ghahramani (2014); {_PAPER}",
        draws_functions=True,
    ),
    "conbo-mes": Listed(
        "max-value entropy search over all states: information about the best value of each",
        f"Wang & Jegelka (2017); {_PAPER}",
        draws_functions=True,
    ),
    "scot": Listed(
        "finitely many states in turn, expected improvement within each",
        "Bardenet, Brendel, Kégl & Sebag (2013)",
        needs_finite_states=True,
    ),
    "gp-c-ocba": Listed(
        "the best action or its closest rival, in the state where they are hardest to tell apart",
        "Cakmak, Wang, Gao & Zhou (2024)",
        needs_finite_states=True,
        needs_finite_actions=True,
    ),
    "pmto": Listed(
        "a growing pool of states in turn, with an optimistic action in each",
        "Wei, Liu, Gupta, Tan & Ong (2025)",
    ),
    "pei": Listed(
        "profile expected improvement: over the best predicted value of the same state",
        "Ginsbourger et al. (2014)",
    ),
    "peqi": Listed(
        "profile expected improvement of the 0.75 quantile, for noisy rewards",
        "Picheny et al. (2013); Ginsbourger et al. (2014)",
    ),
    "revi": Listed(
        "knowledge gradient summed over a discretization of states and actions",
        "Pearce & Branke (2018)",
    ),
    "mts": Listed(
        "multi-task Thompson sampling: the state where a draw promises most over the policy",
        "Char et al. (2019)",
    ),
    "mts-pathwise": Listed(
        "multi-task Thompson sampling on 20,000 points, by drawn functions",
        "Char et al. (2019); Wilson et al. (2020)",
        draws_functions=True,
    ),
    "ps-bax": Listed(
        "the most uncertain point of the policy of a drawn function",
        "Cheng, Astudillo, Desautels & Yue (2024)",
        draws_functions=True,
    ),
    "ae-lsvi": Listed(
        "the state whose best value is least certain, with the optimistic action",
        "Li et al. (2023)",
    ),
    "knn": Listed(
        "random search; the policy is the best observed action of the 10 nearest states",
        _PAPER,
        keeps_constraints=False,
    ),
    "policy-gradient": Listed(
        "a quadratic Gaussian policy, fitted to its own ε-greedy data",
        f"Williams (1992); {_PAPER}",
        keeps_constraints=False,
    ),
    "transfer-ei": Listed(
        "expected improvement in one state, whose best action is used for all",
        _PAPER,
        keeps_constraints=False,
    ),
}


class Summaries(dict[str, str]):
    """A dict from the name of each method to one line on what the method does; it prints as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {summary}" for name, summary in self.items())


def methods() -> Summaries:
    """List all built-in methods.

    Returns
    -------
    dict
        The name of each method, with one line on what the method does. It prints as a table.

    Examples
    --------
    >>> conbo.methods()["uniform"]
    'random search: states from P[s], uniform actions'
    """
    return Summaries({name: one.summary for name, one in LISTED.items()})


def listed(name: str) -> Listed:
    """Return the description of the built-in method `name`; raise SettingError if the name is unknown."""
    if not isinstance(name, str) or name not in LISTED:
        from conbo.spaces import closest

        raise SettingError(f"unknown method {name!r}: {closest(str(name), LISTED)}")
    return LISTED[name]
