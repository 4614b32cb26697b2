"""Maximizes an acquisition function: screen many points, search locally from the best ones, and compare the results.

It works with every acquisition function that has the methods of `Acquisition`: `screen` for cheap approximate values,
`local` for a smooth function with gradients, and `__call__` for the values by which the results are compared.
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from conbo.acquisition.acquisition_function import Acquisition, AcquisitionRecipe, SeedsMatter
from conbo.acquisition.per_cost import PerCost
from conbo.acquisition.where_feasible import WhereFeasible
from conbo.ascent import Ascent, SuccessiveHalving, ascend
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.proposals import Suggestion
from conbo.proposals.penalized_batch import penalized_batch, penalized_rows, penalty
from conbo.proposals.simulator_seeds import open_seeds, paired_seeds, promising_pairs
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates

# If the model is an average of models, a search uses only the most probable ones, up to this total weight.
WEIGHT_SEARCHED = 0.5
NEAR_POLICY = 0.25  # fraction of the screened points whose actions are near those of the current policy
REACH = 0.1  # standard deviation of these actions around the policy's, in every column of the unit cube
RELATIVE_GAIN = 1e-3  # a local search ends when a step promises less than this fraction of the best screened value
SAME_END = 1e-3  # two local searches have the same result if every coordinate differs by less than this
FIRST_STEP = 0.05  # length of a local search's first step, in the unit cube
FEW_STATES = 50  # number of categorical states above which more points are screened, because climbs keep categories
MORE_SCREENED = 2  # how many times as many points are then screened
CROSSED_ACTIONS = 2  # number of best actions that are then screened in all screened states
FLAT = 1e-10  # highest value, in standardized rewards, up to which an acquisition function is considered flat


@dataclass(frozen=True)
class Search:
    """Points that were found while an acquisition function was maximized, with values by which they can be compared.

    They are the screened points, and the steps and ends of local searches, without infeasible points. Of the searches
    with used seeds, only the ends are included. The values at the ends are accurate. All others are approximate, and
    adjusted so that none of them is the highest.
    """

    points: Tensor  # (evaluations, d), rounded to valid values
    values: Tensor  # (evaluations,), values of the acquisition function; if it is flat, weighted posterior variances
    highest: float  # highest value of the acquisition function, also if `values` are variances
    seeds: list[int | None] | None = None  # the simulator's seed for each point, if seeds matter; None: a new seed


@dataclass(frozen=True)
class Maximizer:
    """The proposal that maximizes an acquisition function, by screening and multi-start local search.

    Parameters
    ----------
    acquisition
        A recipe, whose ``build(belief, generator)`` returns the acquisition function.
    screened
        Number of points whose approximate values are computed first; several times as many if states have more than 50
        combinations of categories and no state is given.
    starts
        Number of local searches, which start from the best screened points.
    iterations
        Largest number of iterations of a local search.
    finalists
        Number of local searches whose results are compared in the end, by calling the acquisition function.
    halving
        How successive halving drops local searches that lag after a few iterations. By default, all are kept.

    Raises
    ------
    SettingError
        Unless ``1 <= finalists <= starts <= screened``.

    Examples
    --------
    >>> from conbo.acquisition.improvement import ExpectedImprovement
    >>> from conbo.proposals.maximizer import Maximizer
    >>> Maximizer(ExpectedImprovement(), starts=4).finalists
    4
    """

    acquisition: AcquisitionRecipe
    screened: int = 512
    starts: int = 6
    iterations: int = 40
    finalists: int = 4
    halving: SuccessiveHalving | None = None
    # whether suggestions come with an expected gain; a method may overrule this by values_are_gains=False
    knows_gains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.finalists <= self.starts <= self.screened:
            raise SettingError(
                "`1 <= finalists <= starts <= screened` must hold, "
                f"but got {self.finalists}, {self.starts} and {self.screened}."
            )

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose the points to evaluate next, not too similar to each other or to pending points.

        Parameters
        ----------
        belief
            What is known: space, P[s], observations and posterior.
        n
            Number of points.
        generator
            Source of all randomness.
        state
            A given state (d_s,) in the unit cube, in which all points must be; by default, states are chosen too.

        Returns
        -------
        Suggestion
            The points, and the expected gain of the best one. With common random numbers, also the simulator seeds.
        """
        search = self.search(belief, generator, state)
        rows = penalized_rows(belief, search.points, search.values, n)
        seeds = None if search.seeds is None else [search.seeds[row] for row in rows]
        if seeds is not None and n > 1:
            seeds = paired_seeds(self.acquisition, belief, search.points[rows], seeds, generator)
        return Suggestion(search.points[rows], belief.scale * search.highest, seeds=seeds)

    def search(self, belief: Belief, generator: torch.Generator, state: Tensor | None = None) -> Search:
        """Maximize the acquisition function, and return the points that were found on the way (see `Search`).

        If a state (d_s,) is given, all points are in this state.
        """
        belief = belief.of_most_probable(WEIGHT_SEARCHED)
        acquisition = PerCost(WhereFeasible(self.acquisition)).build(belief, generator)
        many = state is None and has_many_categories(belief)
        candidates = screening_points(belief, self.screened * (MORE_SCREENED if many else 1), generator, state)
        screened = acquisition.screen(candidates)
        if many:
            more = crossed(belief, candidates, screened)
            candidates, screened = torch.cat([candidates, more]), torch.cat([screened, acquisition.screen(more)])
        chosen = spread_best(belief, candidates, screened, self.starts)
        starts = candidates[chosen]
        log = acquisition.climbs_logarithm
        tolerance = RELATIVE_GAIN * (1.0 if log else max(float(screened.amax()), 0.0))
        ascent = self._climb(acquisition, belief, starts, tolerance, state)
        ends = fix_state(belief.snap(distinct_ends(ascent, self.finalists)), state)
        final = acquisition(ends)
        visited = ascent.history_values.exp() if log else ascent.history_values.clamp_min(0)  # NaN became -inf
        points = torch.cat([ends, fix_state(belief.snap(ascent.history_points), state), candidates])
        # scale approximate values to accurate ones, by their ratio at the starts
        level = visited[: len(starts)].sum() / screened[chosen].sum().clamp_min(1e-300)
        # values along a local search are optimistic, because its sampled states are fixed: cap at the best final value
        rest = torch.cat([visited, level.clamp(0, 1) * screened]).clamp_max(float(final.amax()) * (1 - 1e-9))
        values = torch.cat([final, rest])
        seeds: list[int | None] | None = None
        if isinstance(acquisition, SeedsMatter) and acquisition.seen_seeds:
            seeds = [None] * len(points)
            if known := open_seeds(acquisition, belief.observations):
                pairs = promising_pairs(acquisition, torch.cat([ends, starts]), known)
                again, gains, used = self._with_used_seeds(acquisition, belief, *pairs, tolerance, state)
                if belief.observations.seeds_are_used_up:  # the point is then evaluated with the best used seed
                    seeds = [int(used[gains.argmax()])] * len(points)
                    values = values.clamp_max(float(gains.amax()) * (1 - 1e-9))
                points, values, seeds = torch.cat([points, again]), torch.cat([values, gains]), [*seeds, *used.tolist()]
        if belief.space.feasible_set is not None:  # a rounded integer state may have no feasible action
            feasible = belief.contains(points)
            points, values = points[feasible], values[feasible]
            seeds = seeds and [seed for seed, there in zip(seeds, feasible.tolist(), strict=True) if there]
        highest = max(float(values.amax()), 0.0)
        if belief.cost is not None:  # values are gains per cost, but the gain itself is reported
            highest *= float(belief.cost.relative(points[values.argmax()][None]))
        if not highest > FLAT:
            values = weighted_variance(belief, points)
        return Search(points, values, highest, seeds)

    def _climb(
        self, acquisition: Acquisition, belief: Belief, starts: Tensor, tolerance: float, state: Tensor | None
    ) -> Ascent:
        """Run local searches for the acquisition function's maximum from r starts (r, d).

        A search ends when the predicted gain of its next step is at most `tolerance`.  If a state (d_s,) is given, it
        stays fixed.
        """
        lower, upper = box(starts, state)
        function, limits = acquisition.local(starts), belief.point_limits(lower, upper)
        return ascend(
            function, starts, lower, upper, self.iterations, FIRST_STEP, tolerance, self.halving, limits=limits
        )

    def _with_used_seeds(
        self,
        acquisition: SeedsMatter,
        belief: Belief,
        starts: Tensor,
        seeds: Tensor,
        tolerance: float,
        state: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run local searches from r starts (r, d), the i-th one for an evaluation with the simulator seed `seeds[i]`.

        The `seeds` (r,) were used in earlier evaluations.  Return the end points (k, d) of the best k searches, the
        values (k,) of the acquisition function at these points, and their seeds (k,).  A search ends when the predicted
        gain of its next step is at most `tolerance`.  If a state (d_s,) is given, it stays fixed.
        """
        ascent = self._climb(acquisition.for_seeds(seeds), belief, starts, tolerance, state)
        best = ascent.values.argsort(descending=True, stable=True)[: self.finalists]
        ends = fix_state(belief.snap(ascent.points[best]), state)
        return ends, acquisition.for_seeds(seeds[best])(ends), seeds[best]


def screening_points(belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Tensor:
    """Return points (n, d) at which an acquisition function is screened.

    They are quasi-random.  Their states follow P[s], unless a state (d_s,) is given.  Some of the actions are near
    those of the current policy.
    """
    d_s, d_x = belief.n_state_dims, belief.space.n_action_dims
    seed = int(torch.randint(2**31, (1,), generator=generator))
    spread = sobol(n, d_s + d_x, seed)
    states = belief.states.from_uniform(spread[:, :d_s]) if d_s else spread[:, :0]
    points = fix_state(torch.cat([states, spread[:, d_s:]], -1).to(belief.device), state)
    if belief.space.feasible_set is not None:
        points = fix_state(belief.spread(points), state)
    near = int(NEAR_POLICY * n)
    if near:
        search = belief.of_most_probable(0).search(action_candidates(belief, 64, generator))
        best = search.best(points[:near, :d_s], starts=2).actions
        noise = torch.randn(near, d_x, generator=generator, dtype=torch.float64).to(belief.device)
        points[:near, d_s:] = (best + REACH * noise).clamp(0, 1)
    return fix_state(belief.snap(points), state)


def has_many_categories(belief: Belief) -> bool:
    """Return whether the categorical state parameters have more than FEW_STATES combinations of categories.

    If so, few actions are screened in each combination, and local search cannot make up for this, because it does not
    change categories.
    """
    return prod(max(1, count) for count in belief.space.state_categories) > FEW_STATES


def crossed(belief: Belief, points: Tensor, values: Tensor) -> Tensor:
    """Return more points to screen: the actions of the few best points, combined with the states of all points (n, d).

    In the given points, states and actions are combined at random, so each good action has been screened in few states
    only.  `values` (n,) are the approximate values of the acquisition function at the points.
    """
    d_s, order = belief.n_state_dims, values.argsort(descending=True, stable=True)
    states, actions = points[:, :d_s].unique(dim=0), points[order[:CROSSED_ACTIONS], d_s:]
    pairs = torch.cat([states.repeat_interleave(len(actions), 0), actions.repeat(len(states), 1)], -1)
    return belief.snap(pairs)


def fix_state(points: Tensor, state: Tensor | None) -> Tensor:
    """Return points (n, d) with their states replaced by `state` (d_s,); if it is None, return them unchanged."""
    if state is None:
        return points
    return torch.cat([state.expand(len(points), -1), points[:, len(state) :]], -1)


def spread_best(belief: Belief, points: Tensor, values: Tensor, k: int) -> Tensor:
    """Choose k of n points (n, d) that have high values (n,) and are not similar to each other; return indices (k,).

    The k points are chosen one after the other.  After each choice, the values of points that are similar to the chosen
    one are reduced.
    """
    chosen: list[int] = []
    score = values.clone()
    for _ in range(min(k, len(points))):
        if chosen:
            score = score * penalty(belief, points, points[chosen[-1:]])[:, 0].sqrt()
            score[chosen[-1]] = -1.0
        chosen.append(int(score.argmax()))
    return torch.tensor(chosen, device=points.device)


def distinct_ends(ascent: Ascent, k: int) -> Tensor:
    """Return the end points (at most k, d) of the best local searches; end points that nearly coincide count once."""
    ends = ascent.points[ascent.values.argsort(descending=True, stable=True)]
    near = (ends[:, None] - ends).abs().amax(-1) < SAME_END
    return ends[~near.tril(-1).any(-1)][:k]


def box(like: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the lower and upper bounds (d,) of a local search: the unit cube, with the state fixed if one is given.

    The bounds have the number of columns, the type and the device of `like` (n, d).  Categories need no bounds, because
    their gradient is zero.
    """
    d = like.shape[-1]
    lower, upper = like.new_zeros(d), like.new_ones(d)
    if state is not None:
        lower[: len(state)] = upper[: len(state)] = state
    return lower, upper


def weighted_variance(belief: Belief, points: Tensor) -> Tensor:
    """Return values (c,) by which points (c, d) are chosen if the acquisition function is nearly zero everywhere.

    A value is the density of P[s] times the posterior variance, times the probability that an evaluation succeeds, and
    divided by the expected cost if there are costs.  Where evaluations probably fail it is zero, as long as there are
    other points: if rewards are exact, the variance there may be a million times that of all others.
    """
    d_s = belief.n_state_dims
    density = belief.states.density(points[:, :d_s].cpu()).to(points)
    value = density * belief.posterior.variance(points)
    if belief.constraints is not None:  # a failure does not reduce the variance, so the same point would be best again
        succeed = belief.without_failures(points)
        value = value * belief.constraints.success_probability(points)
        value = torch.where(succeed, value, 0.0) if bool(succeed.any()) else value
    return value if belief.cost is None else value / belief.cost.relative(points)


@dataclass(frozen=True)
class StochasticMaximizer:
    """The proposal that maximizes an acquisition function by stochastic gradient ascent, as the ConBO paper does.

    The optimizer is Adam (Kingma & Ba, 2014).  The acquisition function, an average over sampled states, is rebuilt
    with new samples for every step.
    """

    acquisition: AcquisitionRecipe
    screened: int = 128  # number of points whose approximate values are computed first
    starts: int = 6  # number of local searches, which start from the best of these points
    iterations: int = 40  # number of steps of each search
    step: float = 0.03  # learning rate, in the unit cube

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, not too similar to each other or to pending points.

        If a state (d_s,) is given, all points are in this state.
        """
        candidates = screening_points(belief, self.screened, generator, state)
        recipe = PerCost(WhereFeasible(self.acquisition))
        screened = recipe.build(belief, generator).screen(candidates)
        x = candidates[spread_best(belief, candidates, screened, self.starts)]
        lower, upper = box(x, state)
        rows, limits = torch.arange(len(x), device=x.device), belief.point_limits(lower, upper)
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        for k in range(1, self.iterations + 1):
            _, gradient = recipe.build(belief, generator).local(x)(x, rows)
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient.square()
            move = (first / (1 - 0.9**k)) / ((second / (1 - 0.999**k)).sqrt() + 1e-300)
            x = (x + self.step / k**0.5 * move).clamp(lower, upper)
            if limits is not None:
                x = torch.from_numpy(limits.project(x.numpy(force=True), rows.numpy(force=True))[0]).to(x)
        ends = fix_state(belief.snap(x), state)
        final = recipe.build(belief, generator)(ends)
        points, values = torch.cat([ends, candidates]), torch.cat([final, screened.clamp_max(float(final.amax()))])
        if not float(values.amax()) > FLAT:
            values = weighted_variance(belief, points)
        return Suggestion(penalized_batch(belief, points, values, n))
