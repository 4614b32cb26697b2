"""The value of one more evaluation, against ConBO's own estimates."""

import numpy as np
import pytest
import torch

from conbo import plots
from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.acquisition.knowledge_gradient_bounds import knowledge_gradient_bounds
from conbo.acquisition.remaining_gain import best_gains
from conbo.models.exact_gains import ExactGains
from learned_studies import view


@pytest.mark.parametrize("kind", ["one_state", "wards"])
def test_gains_of_states_are_knowledge_gradients(kind: str) -> None:
    seen = view(kind)
    states = seen.typical_states[0][:4]
    gains, points = best_gains(seen.belief, states, seen.actions(states))
    assert torch.equal(points[:, :1], states)
    gradient = HybridKG().build(seen.belief, torch.Generator().manual_seed(1))
    assert isinstance(gradient, ExactGains)
    with torch.no_grad():
        bounds = knowledge_gradient_bounds(gradient, points, states[:, None])
    scale = seen.belief.scale
    assert (gains >= bounds.lower[:, 0] * scale * 0.98).all()
    assert (gains <= bounds.upper[:, 0] * scale * 1.02).all()


def test_no_action_of_the_state_is_worth_much_more() -> None:
    seen = view("one_state")
    states = seen.typical_states[0][:3]
    gains, _ = best_gains(seen.belief, states, seen.actions(states))
    gradient = HybridKG().build(seen.belief, torch.Generator().manual_seed(1))
    actions = torch.linspace(0, 1, 41, dtype=torch.float64)[:, None]
    for state, gain in zip(states, gains, strict=True):
        points = torch.cat([state.expand(41, -1), actions], -1)
        with torch.no_grad():
            values = gradient.at(state.expand(41, 1, -1))(points, torch.arange(41)).values[:, 0] * seen.belief.scale
        assert gain >= 0.8 * float(values.max())


def test_the_acquisition_is_conbos() -> None:
    seen = view("wards")  # finitely many states: the integral is an exact sum
    surface, _, star, bars = plots.acquisition(seen).data
    dose = seen.space.actions["dose"]
    state = torch.from_numpy(seen.space.encode_states([{"ward": "ABCD"[int(star.x[0])]}]))
    action = seen.actions(state)
    action[:, 0] = float(dose.encode([float(star.y[0])])[0])  # type: ignore[arg-type]
    function = ConBO(HybridKG()).build(seen.belief, torch.Generator().manual_seed(0))
    with torch.no_grad():
        value = float(function(torch.cat([state, action], -1))) * seen.belief.scale
    assert value == pytest.approx(float(np.max(surface.customdata)), rel=0.05)
    weights = seen.typical_states[1].numpy()
    assert float(weights @ bars.y) == pytest.approx(value, rel=0.05)  # what its states gain adds up to it
