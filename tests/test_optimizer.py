"""Ask, tell, policy: what a suggestion depends on, what the proposal gets to see, and what is refused."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import conbo.optimizer
from conbo.belief import Belief
from conbo.errors import ConboError, PointError, RewardError, SettingError, SpaceError, TrialError
from conbo.method_table import Method
from conbo.optimizer import Optimizer
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import Triangular, Weights

SPACE = Space(states={"s": Real(-5, 10)}, actions={"x": Real(0, 15), "n": Integer(1, 9)})


@dataclass(frozen=True)
class Greedy:
    """The best random points under the posterior mean: depends on all that a suggestion may depend on."""

    seen: list[tuple[Belief, Tensor | None]] = field(default_factory=list)

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Tensor:
        self.seen.append((belief, state))
        points = torch.rand(64, belief.observations.points.shape[1], generator=generator, dtype=torch.float64)
        if state is not None:
            points[:, : len(state)] = state
        return belief.snap(points)[belief.posterior.mean(points).topk(n).indices]


def greedy(**settings: bool) -> Method:
    return Method("greedy", "best of random points", "none", Greedy(), **settings)


def reward(trial: Any) -> float:
    return float(-((trial.action["x"] - 5 - trial.state.get("s", 0) / 2) ** 2) - abs(trial.action["n"] - 4))


def told(optimizer: Optimizer, n: int) -> Optimizer:
    for _ in range(n):
        (trial,) = optimizer.ask()
        optimizer.tell(trial, reward(trial))
    return optimizer


# What a suggestion depends on


@pytest.mark.parametrize("method", ["uniform", greedy()])
def test_the_same_seed_gives_the_same_suggestions(method: str | Method) -> None:
    runs = [told(Optimizer(SPACE, method=method, seed=seed, initial=4), 7).trials for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert all(a.action != b.action for a, b in zip(runs[0], runs[2], strict=True))


def test_suggestions_do_not_depend_on_the_order_of_the_rewards() -> None:
    one, other = (Optimizer(SPACE, method=greedy(), initial=4) for _ in range(2))
    for optimizer, order in ((one, [0, 1, 2, 3, 4]), (other, [3, 1, 4, 0, 2])):
        trials = optimizer.ask(5)
        for number in order:
            optimizer.tell(number, reward(trials[number]))
    assert one.ask(2) == other.ask(2)


def test_a_policy_asked_for_in_between_changes_nothing() -> None:
    one, other = (told(Optimizer(SPACE, method=greedy(), initial=4), 6) for _ in range(2))
    other.policy()
    other.policy_value()
    assert one.ask() == other.ask()


def test_torch_s_and_numpy_s_global_random_states_are_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()
    told(Optimizer(SPACE, method=greedy(), initial=3), 5).policy()({"s": 0.0})
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])


# The initial design


def test_initial_points_depend_on_seed_and_number_only() -> None:
    one, other = Optimizer(SPACE, seed=5, method="uniform"), Optimizer(SPACE, seed=5, method="uniform")
    together = one.ask(4)
    apart = [other.ask()[0] for _ in range(4)]
    assert together == apart


def test_initial_states_follow_their_distribution() -> None:
    space = Space(states={"s": Real(0, 1), "k": Categorical(list("abc"))}, actions={"x": Real(0, 1)})
    recipe = {"s": Triangular(mode=1.0), "k": Weights({"a": 3, "b": 1})}
    trials = Optimizer(space, recipe, method="uniform", initial=256).ask(256)
    kinds = [trial.state["k"] for trial in trials]
    assert kinds.count("a") == pytest.approx(192, abs=3)
    assert kinds.count("c") == 0
    assert np.mean([float(trial.state["s"]) for trial in trials]) == pytest.approx(2 / 3, abs=0.01)


def test_the_design_goes_on_until_enough_trials_are_completed() -> None:
    method = greedy()
    optimizer = Optimizer(SPACE, method=method, initial=3)
    trials = optimizer.ask(5)
    optimizer.fail(0)
    optimizer.tell(1, reward(trials[1]))
    optimizer.tell(2, reward(trials[2]))
    optimizer.ask()
    assert isinstance(method.proposal, Greedy)
    assert not method.proposal.seen
    optimizer.tell(3, reward(trials[3]))
    optimizer.ask()
    assert len(method.proposal.seen) == 1


@pytest.mark.parametrize(("dimensions", "expected"), [(1, 4), (2, 6), (8, 18), (20, 20)])
def test_default_size_of_the_design(dimensions: int, expected: int) -> None:
    space = Space(actions={f"x{i}": Real(0, 1) for i in range(dimensions)})
    assert Optimizer(space, method="uniform").initial == expected


# What a proposal gets to see


def test_pending_points_are_shown_to_the_proposal() -> None:
    method = greedy()
    optimizer = told(Optimizer(SPACE, method=method, initial=3), 3)
    waiting = optimizer.ask(2)
    optimizer.fail(waiting[0])
    optimizer.ask()
    assert isinstance(method.proposal, Greedy)
    belief, _ = method.proposal.seen[-1]
    pending = belief.observations.pending.numpy()
    assert SPACE.decode_actions(pending[:, 1:]) == [pytest.approx(waiting[1].action)]
    assert len(belief.observations) == 3


def test_states_may_be_handed_over_as_actions() -> None:
    method = greedy(states_as_actions=True)
    optimizer = told(Optimizer(SPACE, method=method, initial=3), 4)
    assert isinstance(method.proposal, Greedy)
    belief, _ = method.proposal.seen[-1]
    assert belief.space == SPACE.with_states_as_actions()
    assert set(optimizer.ask(state={"s": 2.5})[0].state) == {"s"}
    assert set(optimizer.policy()({"s": 2.5})) == {"x", "n"}


def test_a_method_without_a_model_never_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Belief:
        raise AssertionError("fitted")

    monkeypatch.setattr(conbo.optimizer, "believe", refuse)
    assert len(told(Optimizer(SPACE, method="uniform", initial=2), 6).trials) == 6


def test_one_fit_serves_the_same_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []
    monkeypatch.setattr(conbo.optimizer, "believe", counting(conbo.optimizer.believe, fits))
    optimizer = told(Optimizer(SPACE, method=greedy(), initial=3), 3)
    optimizer.ask(2)
    optimizer.ask(state={"s": 1})
    optimizer.policy()
    assert len(fits) == 1
    optimizer.tell(3, 1.0)
    optimizer.policy()
    assert len(fits) == 2


def counting(function: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    def counted(*arguments: object) -> Any:
        calls.append(arguments)
        return function(*arguments)

    return counted


# States, signs, noise


@pytest.mark.parametrize("method", ["uniform", greedy()])
def test_a_dictated_state_is_kept_as_given(method: str | Method) -> None:
    optimizer = Optimizer(SPACE, method=method, initial=3)
    for _ in range(6):
        (trial,) = optimizer.ask(state={"s": 1.1})
        assert trial.state == {"s": 1.1}
        optimizer.tell(trial, reward(trial))
    actions = {trial.action["x"] for trial in optimizer.trials}
    assert len(actions) > 1
    assert [trial.state for trial in optimizer.ask(3, state={"s": 0.3})] == [{"s": 0.3}] * 3


def test_minimising_mirrors_maximising_and_keeps_the_user_s_sign() -> None:
    up = Optimizer(SPACE, method=greedy(), initial=4)
    down = Optimizer(SPACE, method=greedy(), initial=4, direction="minimize")
    for _ in range(8):
        (high,), (low,) = up.ask(), down.ask()
        assert (high.state, high.action) == (low.state, low.action)
        up.tell(high, reward(high))
        down.tell(low, -reward(low))
    assert [trial.reward for trial in down.trials] == [-reward(trial) for trial in down.trials]
    best, worst = up.policy().predict({"s": 2.0}), down.policy().predict({"s": 2.0})
    assert (best.action, best.mean, best.std) == (worst.action, -worst.mean, worst.std)
    assert up.policy_value() == -down.policy_value()


def test_a_space_without_states() -> None:
    optimizer = told(Optimizer(Space(actions=SPACE.actions), method=greedy(), initial=4), 12)
    assert optimizer.trials[0].state == {}
    assert optimizer.ask(state={})[0].state == {}
    assert optimizer.policy()() == optimizer.policy()({})
    assert optimizer.policy_value() == pytest.approx(optimizer.policy().predict().mean, abs=0.1)


def test_the_value_of_a_policy_over_finitely_many_states_is_weighted() -> None:
    space = Space(states={"k": Categorical(list("ab"))}, actions={"x": Real(0, 1)})
    optimizer = Optimizer(space, {"k": Weights({"a": 3, "b": 1})}, method="uniform")
    for trial in optimizer.ask(16):
        height = {"a": 4.0, "b": 0.0}[str(trial.state["k"])]
        optimizer.tell(trial, height - (float(trial.action["x"]) - 0.5) ** 2)
    assert optimizer.policy_value() == pytest.approx(3.0, abs=0.1)


def test_known_noise_reaches_the_model() -> None:
    optimizer = Optimizer(SPACE, method="uniform")
    for trial in optimizer.ask(8):
        optimizer.tell(trial, reward(trial), noise=0.25 + trial.number)
    belief = optimizer.policy()._belief
    assert belief.observations.noise is not None
    assert belief.observations.noise.tolist() == [0.25 + number for number in range(8)]


def test_rewards_without_noise_at_the_same_point() -> None:
    optimizer = Optimizer(Space(actions={"x": Integer(1, 2)}), method="uniform")
    for trial in optimizer.ask(12):
        optimizer.tell(trial, float(trial.action["x"]), noise=0.0)
    assert optimizer.policy()() == {"x": 2}
    assert optimizer.policy().predict().mean == pytest.approx(2.0, abs=1e-3)


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"space": "branin"}, "`space` must be a Space, but got 'branin'"),
        ({"direction": "up"}, "`direction` must be 'maximize' or 'minimize', but got 'up'"),
        ({"method": "unifrom"}, "unknown method 'unifrom': did you mean 'uniform'"),
        ({"model": 3}, "`model` must be a GaussianProcess or a function, but got 3"),
        ({"seed": -1}, "`seed` must be an integer of at least 0, but got seed=-1"),
        ({"seed": 0.5}, "`seed` must be an integer of at least 0, but got seed=0.5"),
        ({"initial": 0}, "`initial` must be an integer of at least 1, but got initial=0"),
        ({"initial": True}, "`initial` must be an integer of at least 1, but got initial=True"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Optimizer(**{"space": SPACE, "method": "uniform", **settings})


def test_a_bad_state_distribution() -> None:
    with pytest.raises(SpaceError, match="unknown state parameter 'S': known are 's'"):
        Optimizer(SPACE, {"S": Triangular()}, method="uniform")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 0}, SettingError, "`n` must be an integer of at least 1, but got n=0"),
        ({"n": 1.5}, SettingError, "`n` must be an integer of at least 1, but got n=1.5"),
        ({"state": {"s": 11}}, PointError, "`-5.0 <= s <= 10.0` must hold, but got s=11"),
        ({"state": {"t": 1}}, PointError, "unknown state parameter 't'"),
        ({"state": {}}, PointError, "'s' is missing"),
        ({"state": 1.0}, PointError, "state must be a mapping from names to values, but got 1.0"),
    ],
)
def test_bad_questions_leave_no_trial(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    optimizer = Optimizer(SPACE, method="uniform")
    with pytest.raises(error, match=message):
        optimizer.ask(**arguments)
    assert optimizer.trials == ()


@pytest.mark.parametrize(
    ("noises", "given"), [([None, 0.1], "noise=0.1"), ([0.1, None], "noise=None")], ids=["late", "missing"]
)
def test_noise_is_for_all_or_for_none(noises: list[float | None], given: str) -> None:
    optimizer = Optimizer(SPACE, method="uniform")
    first, second = optimizer.ask(2)
    optimizer.tell(first, 1.0, noise=noises[0])
    before = optimizer.trials
    with pytest.raises(RewardError, match=f"with every reward or with none, but got {given} for trial 1"):
        optimizer.tell(second, 1.0, noise=noises[1])
    assert optimizer.trials == before


@pytest.mark.parametrize("number", [1, -1, "0", 0.0, None])
def test_unknown_trials(number: Any) -> None:
    optimizer = Optimizer(SPACE, method="uniform")
    optimizer.ask()
    for act in (lambda: optimizer.tell(number, 1.0), lambda: optimizer.fail(number)):
        with pytest.raises(TrialError, match=f"unknown trial {number!r}: known are 0 to 0"):
            act()


def test_unknown_trials_of_an_empty_study() -> None:
    with pytest.raises(TrialError, match="unknown trial 0: none was asked for yet"):
        Optimizer(SPACE, method="uniform").tell(0, 1.0)


def test_a_policy_without_rewards() -> None:
    optimizer = Optimizer(SPACE, method="uniform")
    optimizer.ask()
    with pytest.raises(ConboError, match="a policy needs at least one completed trial, but there is none"):
        optimizer.policy()
