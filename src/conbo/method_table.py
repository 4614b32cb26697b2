"""The table of all built-in methods with their recipes and settings, including the default method.

Settings that a row does not mention are the defaults of its recipes: `Maximizer`, `ConBO`, `HybridKG` and so on.
`conbo methods --show NAME` prints all of them. A new method needs a row here and one in `method_list.py`.
"""

from conbo.acquisition.entropy import EntropySearch, MaxValueEntropySearch, PredictiveEntropySearch
from conbo.acquisition.improvement import ExpectedImprovement
from conbo.acquisition.integral_over_states import ConBO, StateValueRecipe
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG, MonteCarloKG
from conbo.acquisition.optimistic_gap import OptimisticGap
from conbo.acquisition.profile_improvement import ProfileImprovement, ProfileQuantileImprovement
from conbo.acquisition.quadrature_states import GaussianStates, StratifiedStates
from conbo.acquisition.revi import Revi
from conbo.ascent import SuccessiveHalving
from conbo.method_list import DEFAULT_METHOD, PUBLISHED_MODEL, Method, listed
from conbo.policies import PolicyRecipe
from conbo.policies.nearest_neighbors import NearestNeighbors
from conbo.policies.policy_gradient import PolicyGradient
from conbo.policies.single_action import SingleAction
from conbo.proposals import Proposal
from conbo.proposals.budget_allocation import BudgetAllocation
from conbo.proposals.epsilon_greedy import EpsilonGreedy
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.multi_task_thompson import MultiTaskThompson
from conbo.proposals.posterior_sampling import PosteriorSampling
from conbo.proposals.round_robin import RoundRobin
from conbo.proposals.state_pool import StatePool
from conbo.proposals.thompson import Thompson
from conbo.proposals.transfer import Transfer
from conbo.proposals.uniform import UniformProposal

__all__ = ["DEFAULT_METHOD", "METHODS", "PUBLISHED_MODEL", "Method", "method"]


def _method(
    name: str,
    proposal: Proposal,
    *,
    states_as_actions: bool = False,
    uses_model: bool = True,
    values_are_gains: bool = True,
    policy: PolicyRecipe | None = None,
) -> Method:
    """Create the built-in method `name`, with the summary and other properties that `method_list.py` has for it."""
    one = listed(name)
    return Method(
        name,
        one.summary,
        one.reference,
        proposal,
        one.model,
        states_as_actions,
        uses_model,
        one.needs_finite_states,
        values_are_gains,
        policy,
        one.needs_finite_actions,
        one.draws_functions,
    )


def _entropy_search(value: StateValueRecipe) -> Maximizer:
    """Return the maximizer for entropy search, which chooses points by the average of `value` over the states.

    `value` is the recipe of a function that says how much an evaluation is worth for a single state. The maximizer has
    few starting points, because each estimate of the entropy is expensive.
    """
    halving = SuccessiveHalving(iterations=3, survivors=2)
    return Maximizer(ConBO(value), screened=256, starts=4, iterations=12, finalists=2, halving=halving)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _method("uniform", UniformProposal(), uses_model=False),
        _method("expected-improvement", Maximizer(ExpectedImprovement()), states_as_actions=True),
        _method(
            "conbo",
            Maximizer(
                ConBO(HybridKG(n_z=5), StratifiedStates(n_states=20)),
                screened=512,
                starts=6,
                iterations=40,
                finalists=4,
                halving=SuccessiveHalving(iterations=4, survivors=2),
            ),
        ),
        _method("conbo-3", Maximizer(ConBO(HybridKG(n_z=3, spread=1.0, estimate="lower"), GaussianStates()))),
        _method("conbo-5", Maximizer(ConBO(HybridKG(n_z=5, spread=1.0, estimate="lower"), GaussianStates()))),
        _method("kg-hybrid", Maximizer(ConBO(HybridKG(n_z=5, spread=1.0, estimate="lower"))), states_as_actions=True),
        _method("kg-discrete", Maximizer(ConBO(DiscreteKG())), states_as_actions=True),
        _method("kg-monte-carlo", Maximizer(ConBO(MonteCarloKG())), states_as_actions=True),
        _method("thompson", Thompson(), states_as_actions=True),
        _method("conbo-es", _entropy_search(EntropySearch()), values_are_gains=False),
        _method("conbo-pes", _entropy_search(PredictiveEntropySearch()), values_are_gains=False),
        _method("conbo-mes", _entropy_search(MaxValueEntropySearch()), values_are_gains=False),
        _method("scot", RoundRobin()),
        _method("gp-c-ocba", BudgetAllocation()),
        _method("pmto", StatePool()),
        _method("pei", Maximizer(ProfileImprovement())),
        _method("peqi", Maximizer(ProfileQuantileImprovement(), screened=128)),
        _method("revi", Maximizer(Revi(), screened=100, starts=20)),
        _method("mts", MultiTaskThompson()),
        _method("mts-pathwise", MultiTaskThompson(points=20_000, draw="pathwise")),
        _method("ps-bax", PosteriorSampling()),
        _method("ae-lsvi", Maximizer(OptimisticGap(), screened=128), values_are_gains=False),
        _method("knn", UniformProposal(), uses_model=False, policy=NearestNeighbors()),
        _method("policy-gradient", EpsilonGreedy(), uses_model=False, policy=PolicyGradient()),
        _method("transfer-ei", Transfer(), policy=SingleAction()),
    )
}


def method(name: str) -> Method:
    """Return the built-in method `name`; raise SettingError if the name is unknown."""
    listed(name)  # raises if the name is unknown
    return METHODS[name]
