"""The methods by name. A new one is one row here, beside the small file of its proposal.

(The module is not called `methods`: importing it would put it in the place of the function `conbo.methods`.)
"""

from dataclasses import dataclass

from conbo.acquisition.conditional import ConBO, GaussianStates, StateValueRecipe
from conbo.acquisition.entropy import EntropySearch, MaxValueEntropySearch, PredictiveEntropySearch
from conbo.acquisition.improvement import ExpectedImprovement
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG, MonteCarloKG
from conbo.acquisition.optimistic_gap import OptimisticGap
from conbo.acquisition.profile_improvement import ProfileImprovement, ProfileQuantileImprovement
from conbo.acquisition.revi import Revi
from conbo.ascent import Race
from conbo.belief import GaussianProcess, Model
from conbo.errors import SettingError
from conbo.policies import PolicyRecipe
from conbo.policies.nearest_neighbors import NearestNeighbors
from conbo.policies.policy_gradient import PolicyGradient
from conbo.policies.single_action import SingleAction
from conbo.proposals import Proposal
from conbo.proposals.epsilon_greedy import EpsilonGreedy
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.multi_task_thompson import MultiTaskThompson
from conbo.proposals.posterior_sampling import PosteriorSampling
from conbo.proposals.round_robin import RoundRobin
from conbo.proposals.thompson import Thompson
from conbo.proposals.transfer import Transfer
from conbo.proposals.uniform import UniformProposal
from conbo.spaces import closest

DEFAULT_METHOD = "conbo"

_PAPER = "Pearce, Klaise & Groves (2020)"

# The papers compare methods on this kernel, so their methods come with it.
PUBLISHED_MODEL = GaussianProcess("matern52", noise="small", actions="straight")


@dataclass(frozen=True)
class Method:
    """How a study chooses its evaluations."""

    name: str
    summary: str  # one line
    reference: str
    proposal: Proposal
    model: Model = PUBLISHED_MODEL  # unless the study says otherwise
    states_as_actions: bool = False  # the proposal sees a belief in which all columns are actions
    uses_model: bool = True  # else no model is fitted to suggest a point
    needs_finite_states: bool = False
    values_are_gains: bool = True  # of a Maximizer: expected gains in reward, not information or uncertainty
    policy: PolicyRecipe | None = None  # None: the action with the highest posterior mean


def _entropy_search(value: StateValueRecipe) -> Maximizer:
    """Informations are dear: few climbs, and few of them to the end."""
    race = Race(iterations=3, survivors=2)
    return Maximizer(ConBO(value), screened=256, starts=4, iterations=12, finalists=2, race=race)


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
            Maximizer(ConBO(HybridKG()), starts=10, race=Race(iterations=4, survivors=4)),
            GaussianProcess(),
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
        Method(
            "conbo-es",
            "entropy search over all states: information about the best action of each",
            f"Hennig & Schuler (2012); {_PAPER}",
            _entropy_search(EntropySearch()),
            values_are_gains=False,
        ),
        Method(
            "conbo-pes",
            "predictive entropy search over all states: the same information, the other way round",
            f"Hernández-Lobato, Hoffman & Ghahramani (2014); {_PAPER}",
            _entropy_search(PredictiveEntropySearch()),
            values_are_gains=False,
        ),
        Method(
            "conbo-mes",
            "max-value entropy search over all states: information about the best value of each",
            f"Wang & Jegelka (2017); {_PAPER}",
            _entropy_search(MaxValueEntropySearch()),
            values_are_gains=False,
        ),
        Method(
            "scot",
            "finitely many states in turn, expected improvement within each",
            "Bardenet, Brendel, Kégl & Sebag (2013)",
            RoundRobin(),
            needs_finite_states=True,
        ),
        Method(
            "pei",
            "profile expected improvement: over the best predicted value of the same state",
            "Ginsbourger et al. (2014)",
            Maximizer(ProfileImprovement()),
        ),
        Method(
            "peqi",
            "profile expected improvement of the 0.75 quantile, for noisy rewards",
            "Picheny et al. (2013); Ginsbourger et al. (2014)",
            Maximizer(ProfileQuantileImprovement(), screened=128),
        ),
        Method(
            "revi",
            "knowledge gradient summed over a discretisation of states and actions",
            "Pearce & Branke (2018)",
            Maximizer(Revi(), screened=100, starts=20),
        ),
        Method(
            "mts",
            "multi-task Thompson sampling: the state where a draw promises most over the policy",
            "Char et al. (2019)",
            MultiTaskThompson(),
        ),
        Method(
            "mts-pathwise",
            "multi-task Thompson sampling on 20,000 points, by drawn functions",
            "Char et al. (2019); Wilson et al. (2020)",
            MultiTaskThompson(points=20_000, draw="pathwise"),
        ),
        Method(
            "ps-bax",
            "the most uncertain point of the policy of a drawn function",
            "Cheng, Astudillo, Desautels & Yue (2024)",
            PosteriorSampling(),
        ),
        Method(
            "ae-lsvi",
            "the state whose best value is least certain, with the optimistic action",
            "Li et al. (2023)",
            Maximizer(OptimisticGap(), screened=128),
            values_are_gains=False,
        ),
        Method(
            "knn",
            "random search; the policy is the best observed action of the 10 nearest states",
            _PAPER,
            UniformProposal(),
            uses_model=False,
            policy=NearestNeighbors(),
        ),
        Method(
            "policy-gradient",
            "a quadratic Gaussian policy, fitted to its own ε-greedy data",
            f"Williams (1992); {_PAPER}",
            EpsilonGreedy(),
            uses_model=False,
            policy=PolicyGradient(),
        ),
        Method(
            "transfer-ei",
            "expected improvement in one state, whose best action is used for all",
            _PAPER,
            Transfer(),
            policy=SingleAction(),
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
