"""Entropy search per state: the mutual information between an observation and the peak of each state.

The observation y is at a candidate (s, x), f is the expected reward, and the peak is the best action or the best value
of a state s_i:

    ES_c = PES_c = I(y; x*_i),   MES_c = I(y; y*_i),   x*_i = argmax_x f(s_i, x),   y*_i = max_x f(s_i, x)

ES and PES are the same number, estimated in two ways.  The candidate's state s may differ from s_i, so the closed forms
for a single state do not apply.  Instead, f(s_i, ·) is drawn jointly at p actions that may well be the best of s_i.
Every draw gets a label that says where, or how high, its peak is.  `entropy_estimates.py` estimates the mutual
information between this label and y from the draws.  Derivations and measured errors are in docs/entropy.md.

References: Hennig & Schuler (2012), entropy search; Hernández-Lobato, Hoffman & Ghahramani (2014), predictive entropy
search; Wang & Jegelka (2017), max-value entropy search; the conditional forms are from the ConBO paper.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.entropy_estimates import (
    Estimate,
    PeakTables,
    gaussian_information,
    moments,
    predictive,
    retrospective,
    root_and_whitening,
    which_peak,
    which_value,
    whitened,
)
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.gains import LineGains
from conbo.models.snapping import FAR_BELOW, feasible_pairs
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates
from conbo.search.likely_peaks import every_action, joint_moments, likely_peaks
from conbo.search.path_peaks import path_peaks

FEATURES = 256  # random Fourier features of each drawn function whose maximum is a likely peak
POOL_DRAWS = 256  # joint draws at the actions of the pool, to find those that are likely peaks
CLIMBED = 0.375  # fraction of the likely peaks that are maxima of drawn functions, found by local search
POOL = 64  # quasi-random actions: candidates for likely peaks, and starts of local searches
CLIMB = 5  # steps of each local search
PAIRS = 512  # pairs of a candidate and a state that are computed in one pass
STATES = 4  # states whose functions are drawn in one pass, so that the draws of one pass fit into the cache
ROUGH_DRAWS = 512  # joint draws for rough values


@dataclass(frozen=True)
class _EntropySearch:
    """Settings that all three entropy searches share."""

    peaks: int = 32  # number of actions of each state that are likely to be its best one
    draws: int = 8192  # number of joint draws of the function at these actions

    def __post_init__(self) -> None:
        if self.peaks < 2 or self.draws < 4:
            given = f"peaks={self.peaks}, draws={self.draws}"
            raise SettingError(f"`peaks >= 2` and `draws >= 4` must hold, but got {given}.")


@dataclass(frozen=True)
class EntropySearch(_EntropySearch):
    """A recipe for conditional entropy search (ES_c).

    ES_c is how much an observation is expected to reduce the entropy of the distribution of a state's best action.
    """

    peaks: int = 24
    draws: int = 4096

    def build(self, belief: Belief, generator: torch.Generator) -> "Information":
        """Build the object that computes mutual information between observations and best actions, for one belief."""
        return Information(belief, generator, self.peaks, self.draws, which_peak, retrospective)


@dataclass(frozen=True)
class PredictiveEntropySearch(_EntropySearch):
    """A recipe for conditional predictive entropy search (PES_c).

    PES_c is how much the entropy of an observation is expected to fall if a state's best action becomes known.  With
    `estimate="density"`, entropies are computed from estimated densities of the observation.  With "moments", the
    observation given the best action is treated as Gaussian, so that only variances are estimated.  This is cheaper,
    but makes the result too low.
    """

    estimate: str = "density"

    def build(self, belief: Belief, generator: torch.Generator) -> "Information":
        """Build the object that computes mutual information between observations and best actions, for one belief."""
        return Information(belief, generator, self.peaks, self.draws, which_peak, _predictive(self.estimate))


@dataclass(frozen=True)
class MaxValueEntropySearch(_EntropySearch):
    """A recipe for conditional max-value entropy search (MES_c).

    MES_c is how much the entropy of an observation is expected to fall if a state's best value becomes known.  With
    `estimate="density"`, entropies are computed from estimated densities of the observation.  With "moments", the
    observation given the best value is treated as Gaussian, so that only variances are estimated.  This is cheaper,
    but makes the result too low.
    """

    draws: int = 16384
    estimate: str = "density"

    def build(self, belief: Belief, generator: torch.Generator) -> "Information":
        """Build the object that computes mutual information between observations and best values, for one belief."""
        return Information(belief, generator, self.peaks, self.draws, which_value, _predictive(self.estimate))


def _predictive(name: str) -> Estimate:
    estimates = {"density": predictive, "moments": moments}
    if name not in estimates:
        raise SettingError(f"`estimate` must be 'density' or 'moments', but got {name!r}.")
    return estimates[name]


class Information:
    """Computes mutual information between an observation at a candidate and the peak of a state, under one belief.

    The peak is the best action of the state or its best value, depending on the method.
    """

    def __init__(
        self,
        belief: Belief,
        generator: torch.Generator,
        peaks: int,
        draws: int,
        label: Callable[[Tensor], Tensor],
        estimate: Estimate,
    ) -> None:
        self.belief, self.posterior = belief, belief.posterior
        self.label, self.estimate = label, estimate
        self._every, self._peaks = every_action(belief, peaks), peaks
        self._paths = belief.draw_paths(int(CLIMBED * peaks), generator, FEATURES)
        self._pool = action_candidates(belief, POOL, generator)
        pool_normals = torch.randn(len(self._pool), POOL_DRAWS, generator=generator, dtype=torch.float64)
        self._pool_normals = pool_normals.to(belief.device)
        p = peaks if self._every is None else len(self._every)
        seed = int(torch.randint(2**31, (1,), generator=generator))
        uniform = sobol(draws, p + 1, seed).clamp(1e-12, 1 - 1e-12)
        normal = torch.special.ndtri(uniform).to(belief.device)
        self._normals, self._errors = normal[:, :-1], normal[:, -1]

    def at(self, states: Tensor) -> "StatesInformed":
        """Return a function that computes mutual information between an observation at a candidate and peaks of states.

        A peak is the best action or the best value of a state.  `states` (r, m, d_s) holds r sets of m states, and
        every candidate is given with the index of its set.  This method draws functions from the model in these states,
        and all calls of the returned function use the same draws.
        """
        flat = states.flatten(0, 1)
        known: dict[bytes, int] = {}
        index = [known.setdefault(row.tobytes(), len(known)) for row in flat.cpu().numpy()]
        first = [index.index(k) for k in range(len(known))]
        which = torch.tensor(index, device=flat.device).unflatten(0, states.shape[:2])
        return StatesInformed(self, states, self.tables(flat[first], climb=CLIMB), which)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a cheap function for screening, from candidates (r, d) to mutual information (r, m).

        The mutual information is between the observation at each of r candidates and the peak of each of the m `states`
        (m, d_s).  A peak is the best action or the best value of a state.  The function is cheap because it treats the
        observation given the peak as Gaussian, and uses fewer draws from the model.
        """
        tables, m = self.tables(states, climb=0), len(states)

        def function(candidates: Tensor) -> Tensor:
            slope = self.posterior.look_ahead_slopes(candidates, tables.points.flatten(0, 1))  # (r, m·p)
            parts = []
            for some in slope.unflatten(1, (m, -1)).split(max(1, PAIRS // m)):
                mine = tables.select(torch.arange(m, device=states.device).repeat(len(some)))
                parts.append(gaussian_information(whitened(some.flatten(0, 1), mine), mine).reshape(-1, m))
            return torch.cat(parts)

        return function

    def gains(self, candidates: Tensor, states: Tensor, tables: PeakTables, which: Tensor) -> LineGains:
        """Compute mutual information (k, m) between the observation at each of k candidates and the peak of each state.

        A peak is the best action or the best value of a state.  The candidates are (k, d), and each has m states of its
        own, `states` (k, m, d_s).  `tables` holds functions drawn from the model in these states, and `which` (k, m) is
        the index of each state in `tables`.
        """
        shape, mine = which.shape, tables.select(which.flatten())
        actions = mine.points[..., self.belief.n_state_dims :].unflatten(0, shape)
        lines = self.posterior.look_ahead_lines(candidates, states, actions)
        value, derivative = self.estimate(lines.slope.flatten(0, 1), mine)
        return LineGains(value.reshape(shape), derivative.unflatten(0, shape), lines)

    def tables(self, states: Tensor, climb: int) -> PeakTables:
        """Draw functions from the model in each of c states (c, d_s), at actions that may well be the state's best.

        A draw holds the values at all these actions.  Some of the actions are found by local searches of at most
        `climb` steps.  With `climb=0`, there are no local searches and fewer draws.
        """
        actions = self._actions(states, climb)
        c, p, _ = actions.shape
        points = torch.cat([states[:, None].expand(c, p, -1), actions], -1)
        mean, covariance = joint_moments(self.posterior, states, actions)
        if self.belief.space.feasible_set is not None:  # infeasible actions are no peaks
            mean = torch.where(self.belief.contains(points), mean, mean - FAR_BELOW)
        root, whitening = root_and_whitening(covariance, self.posterior.prior_variance(states))
        n = len(self._normals) if climb else ROUGH_DRAWS
        normals, errors = self._normals[:n, :p], self._errors[:n]
        keep = bool(climb) and self.estimate is retrospective
        kept, labels = [], []
        for some_means, roots in zip(mean.split(STATES), root.split(STATES), strict=True):
            values = torch.baddbmm(some_means[:, None], normals.expand(len(roots), -1, -1), roots.mT)  # (few, N, p)
            kept.append(values.mT.contiguous() if keep else values[:, :0])
            labels.append(self.label(values))
        return PeakTables(points, whitening, torch.cat(kept), torch.cat(labels), normals, errors)

    def _actions(self, states: Tensor, climb: int) -> Tensor:
        """Return, for each of c states (c, d_s), p actions (c, p, d_x) that may well be the state's best.

        Some of the actions are found by local searches of at most `climb` steps; with `climb=0`, none are.  If the
        space has few actions, all of them are returned.
        """
        if self._every is not None:
            return self._every.expand(len(states), -1, -1)
        climbed = self._paths.n if climb else 0
        feasible = feasible_pairs(self.belief.space, states, self._pool)
        likely = likely_peaks(self.posterior, self._pool, states, self._pool_normals, self._peaks - climbed, feasible)
        if self.belief.space.feasible_set is not None:
            likely = self.belief.snap_actions(likely, states[:, None])
        if not climbed:
            return likely
        return torch.cat([likely, path_peaks(self.belief, self._paths, self._pool, states, climb)], 1)


class StatesInformed:
    """A function that computes mutual information between an observation at a candidate and peaks of fixed states.

    A peak is the best action or the best value of a state.
    """

    def __init__(self, information: Information, states: Tensor, tables: PeakTables, index: Tensor) -> None:
        self._information, self._states, self._tables, self._index = information, states, tables, index

    def __call__(self, candidates: Tensor, rows: Tensor) -> LineGains:
        """Compute mutual information (k, m) between the observation at each of k candidates and the peak of each state.

        A peak is the best action or the best value of a state.  The candidates are (k, d).  There are several fixed
        sets of m states.  Candidate i is paired with the states of the set with index `rows[i]`.
        """
        return self._information.gains(candidates, self._states[rows], self._tables, self._index[rows])
