"""The maximizer of an acquisition function: screen points, search locally from the best ones, compare the ends.

The maximizer knows nothing about what it maximizes. An acquisition function offers cheap values for screening
(`screen`), a smooth function with gradients around given starts (`local`), and full values (by calling it).
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from conbo.acquisition.priced import PerCost, SeedsMatter, Unpriced
from conbo.acquisition.where_feasible import WhereFeasible
from conbo.ascent import Ascent, BatchedFunction, SuccessiveHalving, ascend
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.proposals import Suggestion
from conbo.proposals.penalized_batch import penalized_batch, penalized_rows, penalty
from conbo.proposals.simulator_seeds import open_seeds, paired_seeds, promising_pairs
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates

WEIGHT_SEARCHED = 0.9  # share of the models' weight that a search uses: improbable models hardly change the maximum
NEAR_POLICY = 0.25  # share of the screened points that are near the present policy
REACH = 0.1  # standard deviation of the distance to the policy, in the unit cube
RELATIVE_GAIN = 5e-4  # a local search ends when a step promises less than this share of the best value
SAME_END = 1e-3  # distance in every coordinate up to which two ends of local searches count as one
FIRST_STEP = 0.05  # length of a local search's first step, in the unit cube
FEW_STATES = 50  # number of categorical states above which the best actions are also screened in all screened states
CROSSED_ACTIONS = 2  # number of best actions that are screened in all screened states
FLAT = 1e-10  # highest value, in standardized rewards, up to which an acquisition function is considered flat


class Acquisition(Protocol):
    """A function to maximize over (state, action) in the unit cube; its values are not negative."""

    @property
    def climbs_logarithm(self) -> bool:
        """Whether `local` gives the logarithms of the values."""

    def screen(self, points: Tensor) -> Tensor:
        """Cheap values (c,) of points (c, d)."""

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function that gives values and gradients near starts (r, d)."""

    def __call__(self, points: Tensor) -> Tensor:
        """Full values (c,) of points (c, d)."""


class AcquisitionRecipe(Protocol):
    """A recipe for an acquisition function."""

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """The acquisition function under one belief."""


@dataclass(frozen=True)
class Search:
    """Everything that was evaluated while an acquisition function was maximized, in no particular order."""

    points: Tensor  # (evaluations, d), snapped
    values: Tensor  # (evaluations,)
    highest: float  # value of the acquisition function, even if `values` are something else
    seeds: list[int | None] | None = None  # seeds of the points, if seeds matter; None stands for a new seed


@dataclass(frozen=True)
class Maximizer:
    """The proposal that maximizes an acquisition function, by screening and multi-start local search.

    Parameters
    ----------
    acquisition
        A recipe: ``build(belief, generator)`` returns the acquisition function.
    screened
        Number of points whose cheap values are computed.
    starts
        Number of the best screened points from which a local search starts.
    iterations
        Largest number of iterations of a local search.
    finalists
        Number of ends of local searches whose full values are computed.
    halving
        Successive halving: starts that lag after a few iterations are dropped. None keeps all.

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
    knows_gains: ClassVar[bool] = True  # unless the method sets values_are_gains=False

    def __post_init__(self) -> None:
        if not 1 <= self.finalists <= self.starts <= self.screened:
            raise SettingError(
                "`1 <= finalists <= starts <= screened` must hold, "
                f"but got {self.finalists}, {self.starts} and {self.screened}."
            )

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose points, apart from each other and from pending ones.

        Parameters
        ----------
        belief
            What is known: space, P[s], observations and posterior.
        n
            Number of points.
        generator
            Source of all randomness.
        state
            A state (d_s,) in the unit cube that the environment has set; by default it is chosen too.

        Returns
        -------
        Suggestion
            The points, and the expected gain of the best one.
        """
        search = self.search(belief, generator, state)
        rows = penalized_rows(belief, search.points, search.values, n)
        seeds = None if search.seeds is None else [search.seeds[row] for row in rows]
        if seeds is not None and n > 1:
            seeds = paired_seeds(self.acquisition, belief, search.points[rows], seeds, generator)
        return Suggestion(search.points[rows], belief.scale * search.highest, seeds=seeds)

    def search(self, belief: Belief, generator: torch.Generator, state: Tensor | None = None) -> Search:
        """Maximize the acquisition function, and return all points that were evaluated on the way."""
        belief = belief.of_most_probable(WEIGHT_SEARCHED)
        acquisition = PerCost(WhereFeasible(self.acquisition)).build(belief, generator)
        candidates = screening_points(belief, self.screened, generator, state)
        screened = acquisition.screen(candidates)
        if state is None and has_many_categories(belief):
            more = crossed(belief, candidates, screened)
            candidates, screened = torch.cat([candidates, more]), torch.cat([screened, acquisition.screen(more)])
        chosen = spread_best(belief, candidates, screened, self.starts)
        starts = candidates[chosen]
        log = acquisition.climbs_logarithm
        tolerance = RELATIVE_GAIN * (1.0 if log else max(float(screened.amax()), 0.0))
        ascent = self._climb(acquisition, belief, starts, tolerance, state)
        ends = fix_state(belief.snap(distinct_ends(ascent, self.finalists)), state)
        final = acquisition(ends)
        visited = ascent.history_values.exp() if log else ascent.history_values.clamp_min(0)  # lost rows have -inf
        points = torch.cat([ends, fix_state(belief.snap(ascent.history_points), state), candidates])
        # scale rough values to full ones, by the ratio at the starts
        level = visited[: len(starts)].sum() / screened[chosen].sum().clamp_min(1e-300)
        # values along a search are optimistic, because its sampled states are fixed: cap them at the best final value
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
        self, acquisition: Unpriced, belief: Belief, starts: Tensor, tolerance: float, state: Tensor | None
    ) -> Ascent:
        """Local searches from starts (r, d)."""
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
        """Ends (k, d) of local searches from starts (r, d) with seeds (r,), with their full values (k,) and seeds."""
        ascent = self._climb(acquisition.for_seeds(seeds), belief, starts, tolerance, state)
        best = ascent.values.argsort(descending=True, stable=True)[: self.finalists]
        ends = fix_state(belief.snap(ascent.points[best]), state)
        return ends, acquisition.for_seeds(seeds[best])(ends), seeds[best]


def screening_points(belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Tensor:
    """Sobol points whose states follow P[s], some of them with actions near the present policy: (n, d)."""
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
    """Whether there are so many combinations of categories that few actions are screened in each.

    Local search does not change categories, so it cannot make up for that.
    """
    return prod(max(1, count) for count in belief.space.state_categories) > FEW_STATES


def crossed(belief: Belief, points: Tensor, values: Tensor) -> Tensor:
    """The actions of the best points, paired with the states of all points (n, d), because good pairs are rare."""
    d_s, order = belief.n_state_dims, values.argsort(descending=True, stable=True)
    states, actions = points[:, :d_s].unique(dim=0), points[order[:CROSSED_ACTIONS], d_s:]
    pairs = torch.cat([states.repeat_interleave(len(actions), 0), actions.repeat(len(states), 1)], -1)
    return belief.snap(pairs)


def fix_state(points: Tensor, state: Tensor | None) -> Tensor:
    """The points (n, d), with a given state (d_s,) in place of their own."""
    if state is None:
        return points
    return torch.cat([state.expand(len(points), -1), points[:, len(state) :]], -1)


def spread_best(belief: Belief, points: Tensor, values: Tensor, k: int) -> Tensor:
    """Indices of the best k points by value, penalized for similarity to each other."""
    chosen: list[int] = []
    score = values.clone()
    for _ in range(min(k, len(points))):
        if chosen:
            score = score * penalty(belief, points, points[chosen[-1:]])[:, 0].sqrt()
            score[chosen[-1]] = -1.0
        chosen.append(int(score.argmax()))
    return torch.tensor(chosen, device=points.device)


def distinct_ends(ascent: Ascent, k: int) -> Tensor:
    """The best k distinct ends (at most k, d) of local searches."""
    ends = ascent.points[ascent.values.argsort(descending=True, stable=True)]
    near = (ends[:, None] - ends).abs().amax(-1) < SAME_END
    return ends[~near.tril(-1).any(-1)][:k]


def box(like: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The unit cube, in which a given state stays fixed; so do categories, because their gradient is zero."""
    d = like.shape[-1]
    lower, upper = like.new_zeros(d), like.new_ones(d)
    if state is not None:
        lower[: len(state)] = upper[: len(state)] = state
    return lower, upper


def weighted_variance(belief: Belief, points: Tensor) -> Tensor:
    """P[s] times the posterior variance, divided by costs; it replaces the values if no point promises a gain."""
    d_s = belief.n_state_dims
    density = belief.states.density(points[:, :d_s].cpu()).to(points)
    value = density * belief.posterior.variance(points)
    return value if belief.cost is None else value / belief.cost.relative(points)


@dataclass(frozen=True)
class StochasticMaximizer:
    """The paper's maximizer: Adam (Kingma & Ba, 2014), with the random parts of the acquisition redrawn every step."""

    acquisition: AcquisitionRecipe
    screened: int = 128
    starts: int = 6
    iterations: int = 40
    step: float = 0.03  # in the unit cube

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """n points, apart from each other and from pending ones."""
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
