"""Kernels and families with main effects of the action and of the state, in addition to their interaction.

    k = (A(s, s') + σ_X²) κ(x, x') + B(s, s') + σ_S² k_S'(s, s')

Here s, s' are states, x, x' are actions, κ and k_S' are correlations, and A and B are covariances that depend on the
states alone (see kernels.py).  The kernel A κ + B, called the interaction, learns nothing about a state from dissimilar
states.  The main effect of the action, with covariance σ_X² κ, is a function of the action that all states share.  The
main effect of the state, with covariance σ_S² k_S', is a function of the state that all actions share.  It has its own
lengthscales.  It ignores the categorical columns of the state if the interaction learns the covariance of their choices
(see category_kernels.py).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import Any, Self

import torch
from torch import Tensor

from conbo.models.columns import Columns, Features
from conbo.models.kernel_families import ExtendedFamily, Pullback, Term
from conbo.models.kernels import Factor, Kernel, pulled
from conbo.models.product_terms import HasProductTerms, ProductTerm, TermBlock
from conbo.models.profiles import Profile

SHARE = log(3.0)  # at the start of a search, interaction and main effects each have a third of the fitted variance


@dataclass(frozen=True)
class MainEffectsKernel(Kernel):
    """A kernel A κ + B (the interaction) plus a term of the action alone and a term of the state alone.

    κ is the correlation of actions; A and B are functions of the two states, as in every `Kernel`.
    """

    interaction: Kernel  # A κ + B
    state_effect: Factor  # k_S', a function of the state's features `effect_features`
    action_variance: float  # σ_X²
    state_variance: float  # σ_S²

    @property
    def states(self) -> Factor:  # type: ignore[override]
        """The factor that turns states into scaled inputs of the interaction, the kernel without main effects."""
        return self.interaction.states

    @property
    def actions(self) -> Factor:  # type: ignore[override]
        """The correlation of actions, which is the same with and without the main effect of the action."""
        return self.interaction.actions

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """Return A + σ_X² (..., p, q), which is multiplied by the correlation κ of actions in this kernel.

        The kernel without main effects is A κ + B, and σ_X² is the variance of the action's main effect. `a` and `b`
        are p and q states as scaled inputs.
        """
        return self.interaction.scale(a, b) + self.action_variance

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ψ (..., p, q): the gradient of `scale` with respect to the numeric columns of `a` is -ψ (a - b).

        `a` and `b` are p and q states as scaled inputs. The kernel without main effects has the same ψ, because the
        added variance is constant.
        """
        return self.interaction.scale_slope(a, b)

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Return B + σ_S² k_S' (..., p, q), the term of the kernel that does not depend on actions.

        The kernel without main effects is A κ + B, where κ is the correlation of actions. The main effect of the state
        adds the covariance σ_S² k_S', where k_S' is a correlation of states. `a` and `b` are p and q states as scaled
        inputs.
        """
        main = self.state_variance * self.state_effect.correlation(self._of_effect(a), self._of_effect(b))
        own = self.interaction.offset(a, b)
        return main if own is None else main + own

    def offset_slope(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Return ψ (..., p, q): the gradient of the offset B with respect to the numeric columns of `a` is -ψ (a - b).

        B is the offset of the kernel without main effects. The result is None if that kernel has no offset. `a` and `b`
        are p and q states as scaled inputs. The state's main effect is left out here, because it has lengthscales of
        its own; `weighted_gradient` adds its gradient.
        """
        return self.interaction.offset_slope(a, b)

    def variance(self, states: Tensor) -> Tensor:
        """Return the prior variances (...) of points with these states, given as scaled inputs (..., width).

        They are the variances of the kernel without main effects, plus the variances of the two main effects.
        """
        return self.interaction.variance(states) + (self.action_variance + self.state_variance)

    def weighted_gradient(self, here: Features, there: Features, weights: Tensor) -> Features:
        """Return the gradients of Σ_j weights[..., i, j] k(here_i, there_j) with respect to each of p points here_i.

        k is the kernel with its main effects. Arguments and results have the shapes of `Kernel.weighted_gradient`.
        Points are given as scaled inputs, divided by the lengthscales of the kernel without main effects, and the
        gradients are with respect to these scaled inputs.
        """
        in_states, in_actions = super().weighted_gradient(here, there, weights)
        mine, others = self._of_effect(here[0]), self._of_effect(there[0])
        own_partners = others.dim() == 3
        slope = self.state_effect.tables(mine[:, None] if own_partners else mine, others)[1]
        table = weights * self.state_variance * (slope[:, 0] if own_partners else slope)
        in_states = in_states.clone()
        in_states[..., self._features] += pulled(table, mine, others) * self._ratio
        return in_states, in_actions

    def record(self) -> dict[str, Any]:
        """Return the kernel without main effects, and the effects' variances and lengthscales, as plain values."""
        return {
            "type": "main-effects",
            "interaction": self.interaction.record(),
            "action_variance": self.action_variance,
            "state_variance": self.state_variance,
            "effect_lengthscales": self.state_effect.lengthscales.tolist(),
        }

    def page_columns(self) -> tuple[int, ...] | None:
        """Return the indices of the categorical state columns whose choices the report's web page looks up in tables.

        The result is the same as for the kernel without main effects. It is None if the page cannot compute that
        kernel.
        """
        return self.interaction.page_columns()

    def without_main_effects(self) -> Kernel:
        """Return the kernel without the main effects of state and action."""
        return self.interaction

    def page_main_effects(self) -> dict[str, Any]:
        """Return what the report's web page needs to compute the main effects: two variances, and state scales.

        There is one scale for each state column, by which the page multiplies the column before it computes distances.
        The scale is 0 if the state's main effect does not use the column.
        """
        scales = [0.0] * len(self.states.columns.categories)
        lengthscales = self.state_effect.lengthscales.tolist()
        for column, lengthscale in zip(effect_columns(self.states.columns), lengthscales, strict=True):
            scales[column] = self.state_effect.profile.unit / lengthscale
        return {"actionVariance": self.action_variance, "stateVariance": self.state_variance, "stateScales": scales}

    def with_actions(self, actions: Factor) -> Self:
        """Return a copy of the kernel with another correlation of actions."""
        return replace(self, interaction=self.interaction.with_actions(actions))

    def to(self, device: torch.device) -> Self:
        """Return a copy of the kernel on another device."""
        return replace(self, interaction=self.interaction.to(device), state_effect=self.state_effect.to(device))

    @cached_property
    def _features(self) -> slice | list[int]:
        """Indices of the scaled inputs that the state's main effect uses.

        If it uses all of them, they are given as a slice, because indexing by a list forces a GPU to synchronize.
        """
        used = effect_features(self.states.columns)
        return slice(None) if len(used) == self.states.columns.width else list(used)

    @cached_property
    def _ratio(self) -> Tensor:
        """Factors that convert scaled inputs of states from the interaction's lengthscales to the main effect's.

        The interaction is the kernel without main effects. The main effect of the state has lengthscales of its own.
        """
        return self.state_effect.feature_scales / self.states.feature_scales[self._features]

    def _of_effect(self, states: Tensor) -> Tensor:
        """Return the scaled inputs that the state's main effect uses, rescaled to its lengthscales.

        `states` (..., width) holds all scaled inputs of the states.
        """
        return states[..., self._features] * self._ratio


def effect_features(states: Columns) -> tuple[int, ...]:
    """Return the indices of the state's features (kernel inputs) that the state's main effect uses.

    If `states.coded` is false, these are all features. If it is true, a categorical column is a single feature, the
    index of its choice, and the main effect uses only the features of numeric columns.
    """
    return states.numeric_features if states.coded else tuple(range(states.width))


def effect_columns(states: Columns) -> tuple[int, ...]:
    """Return the indices of the state columns that the state's main effect uses.

    If `states.coded` is false, these are all columns. If it is true, a categorical column is given by the index of its
    choice, and the main effect uses only the numeric columns.
    """
    return states.numeric if states.coded else tuple(range(len(states.categories)))


@dataclass(frozen=True)
class MainEffectsFamily(ExtendedFamily):
    """A family of kernels with main effects of state and action, added to another family, the interaction.

    The lengthscales of the state's main effect come after the interaction's lengthscales. The main effects' variances,
    σ_X² of the action and σ_S² of the state, come after the interaction's variances.
    """

    profile: Profile

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales: those of the family without main effects, and those of the state's main effect.

        The main effect has one for each state column that it uses.
        """
        return self.family.n_lengthscales + len(effect_columns(self.states))

    @property
    def n_variances(self) -> int:
        """Number of variances: those of the family without main effects, and one for each of the two main effects."""
        return self.family.n_variances + 2

    @property
    def terms(self) -> tuple[ProductTerm, ...]:
        """The terms σ² φ_S φ_X whose sum is the covariance, including one for each of the two main effects.

        φ_S and φ_X are correlations of states and of actions, and σ² is a variance. Empty if the covariance without
        main effects is not a sum of such terms.
        """
        own = self.family.terms if isinstance(self.family, HasProductTerms) else ()
        if not own:
            return ()
        n_l, n_v = self.family.n_lengthscales, self.family.n_variances
        columns = effect_columns(self.states)
        variances = n_l + len(columns)  # index of the first variance, after the lengthscales of the state's main effect
        chosen = Columns(tuple(self.states.categories[column] for column in columns))
        of_state = TermBlock(chosen, columns, tuple(range(n_l, variances)))
        of_action, nothing = own[0].actions, TermBlock(Columns(()), (), ())
        return (
            *(replace(term, variance=term.variance + len(columns)) for term in own),
            ProductTerm(self.profile, nothing, of_action, variances + n_v),
            ProductTerm(self.profile, nothing, of_state, variances + n_v + 1),
        )

    def kernel(self, parameters: Tensor) -> MainEffectsKernel:
        """Return the kernel with parameters (p,): log-lengthscales, log-variances, then loadings.

        Loadings are parameters that may be negative.
        """
        own, effect, variances = self._split(parameters)
        columns = tuple(self.states.categories[column] for column in effect_columns(self.states))
        factor = Factor(Columns(columns), effect.exp(), self.profile)
        of_action, of_state = variances.exp().tolist()
        return MainEffectsKernel(self.family.kernel(own), factor, of_action, of_state)

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances (r, n, n) of points (n, d) for r sets of p parameters (r, p), and their pullback.

        The pullback is a vector-Jacobian product: it converts a gradient with respect to the covariances into one with
        respect to the parameters.
        """
        own, effect, variances = self._split(parameters)
        d_s, d_x = len(self.states.categories), len(self.actions.categories)
        columns = effect_columns(self.states)
        # the interaction's lengthscales end with those of the actions
        in_actions = own[:, self.family.n_lengthscales - d_x : self.family.n_lengthscales]
        chosen = Columns(tuple(self.states.categories[column] for column in columns))
        interaction, pullback = self.family.covariance(own, points)
        of_action = Term(self.actions, self.profile, points[:, d_s:], in_actions, variances[:, 0].exp())
        of_state = Term(chosen, self.profile, points[:, list(columns)], effect, variances[:, 1].exp())

        def with_main_effects(gradient: Tensor) -> list[Tensor]:
            in_own = torch.cat(pullback(gradient), -1)
            lengthscales, action_variance = of_action.pullback(gradient)
            in_own[:, self.family.n_lengthscales - d_x : self.family.n_lengthscales] += lengthscales
            in_effect, state_variance = of_state.pullback(gradient)
            return [self._joined(in_own, in_effect, torch.stack([action_variance, state_variance], -1))]

        return interaction + of_action.matrix + of_state.matrix, with_main_effects

    def from_interaction(self, parameters: Tensor) -> Tensor:
        """Return parameters (p,) to start a fit from, given the fitted parameters of the family without main effects.

        Each variance of the family without main effects starts at a third of its fitted value, and the variance of each
        main effect at a third of the sum of these fitted values. The state's main effect starts with the fitted
        lengthscales of states. All other parameters stay the same.
        """
        own, n_l, n_v = parameters[None].clone(), self.family.n_lengthscales, self.family.n_variances
        total = own[:, n_l : n_l + n_v].exp().sum().log()
        own[:, n_l : n_l + n_v] -= SHARE
        effect = own[:, : len(effect_columns(self.states))]  # lengthscales of the state come first
        return self._joined(own, effect, (total - SHARE).expand(1, 2))[0]

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split p parameters (..., p) into three parts, of which two belong to the main effects.

        The first part has all parameters of the family without main effects, the second the log-lengthscales of the
        state's main effect, and the third the log-variances of the main effects of action and state.
        """
        n_l, n_e, n_v = self.family.n_lengthscales, len(effect_columns(self.states)), self.family.n_variances
        lengthscales, effect, own, main, rest = parameters.split(
            [n_l, n_e, n_v, 2, parameters.shape[-1] - n_l - n_e - n_v - 2], -1
        )
        return torch.cat([lengthscales, own, rest], -1), effect, main

    def _joined(self, own: Tensor, effect: Tensor, main: Tensor) -> Tensor:
        """Join three parts of r sets of p parameters into a tensor (r, p), in the order of this family's parameters.

        `own` has all parameters of the family without main effects, `effect` the log-lengthscales of the state's main
        effect, and `main` the log-variances of the main effects of action and state.
        """
        n_l, n_v = self.family.n_lengthscales, self.family.n_variances
        return torch.cat([own[:, :n_l], effect, own[:, n_l : n_l + n_v], main, own[:, n_l + n_v :]], -1)
