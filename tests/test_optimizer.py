"""Ask, tell, policy: what a suggestion depends on, what the proposal gets to see, and what is refused."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import conbo.learner
from conbo.belief import Belief
from conbo.errors import ConboError, PointError, RewardError, SettingError, SpaceError, TrialError
from conbo.gaussian_process import GaussianProcess
from conbo.method_table import Method
from conbo.optimizer import Optimizer
from conbo.proposals import Suggestion
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import Triangular, Weights

SPACE = Space(states={"s": Real(-5, 10)}, actions={"x": Real(0, 15), "n": Integer(1, 9)})


@dataclass(frozen=True)
class Greedy:
    """The best random points under the posterior mean: depends on all that a suggestion may depend on."""

    seen: list[tuple[Belief, Tensor | None]] = field(default_factory=list)

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        self.seen.append((belief, state))
        points = torch.rand(64, belief.observations.points.shape[1], generator=generator, dtype=torch.float64)
        if state is not None:
            points[:, : len(state)] = state
        return Suggestion(belief.snap(points)[belief.posterior.mean(points).topk(n).indices])


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
    trials = Optimizer(space, state_distribution=recipe, method="uniform", initial=256).ask(256)
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

    monkeypatch.setattr(conbo.learner, "fit_belief", refuse)
    assert len(told(Optimizer(SPACE, method="uniform", initial=2), 6).trials) == 6


def test_one_fit_serves_the_same_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []
    monkeypatch.setattr(conbo.learner, "fit_belief", counting(conbo.learner.fit_belief, fits))
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


def test_minimizing_mirrors_maximizing_and_keeps_the_user_s_sign() -> None:
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


def test_a_policy_changes_no_suggestion_of_a_joint_method_without_states() -> None:
    def suggested(with_policy: bool) -> dict[str, Any]:
        space = Space(actions={"x": Real(0, 1), "y": Real(0, 1)})
        optimizer = Optimizer(space, method="expected-improvement", initial=6, seed=1)
        for trial in optimizer.ask(6):
            optimizer.tell(trial, -((float(trial.action["x"]) - 0.3) ** 2) - float(trial.action["y"]))
        if with_policy:
            optimizer.policy()
        return optimizer.ask()[0].action

    assert suggested(True) == suggested(False)


def test_a_space_without_states() -> None:
    optimizer = told(Optimizer(Space(actions=SPACE.actions), method=greedy(), initial=4), 12)
    assert optimizer.trials[0].state == {}
    assert optimizer.ask(state={})[0].state == {}
    assert optimizer.policy()() == optimizer.policy()({})
    assert optimizer.policy_value() == pytest.approx(optimizer.policy().predict().mean, abs=0.1)


def test_the_value_of_a_policy_over_finitely_many_states_is_weighted() -> None:
    space = Space(states={"k": Categorical(list("ab"))}, actions={"x": Real(0, 1)})
    optimizer = Optimizer(space, state_distribution={"k": Weights({"a": 3, "b": 1})}, method="uniform")
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


@dataclass(frozen=True)
class Fixed:
    """A proposal of given points."""

    points: torch.Tensor

    def propose(self, belief: Any, n: int, generator: Any, state: Any = None) -> Suggestion:
        return Suggestion(self.points)


@pytest.mark.parametrize(
    ("points", "given"),
    [
        (torch.full((1, 3), 0.5), r"the shape \(1, 3\)"),
        (torch.full((2, 2), 0.5), r"the shape \(2, 2\)"),
        (torch.tensor([[0.5, 0.5, 0.5], [0.5, 1.5, 0.5]]), r"the coordinate 1\.5"),
        (torch.full((2, 3), torch.nan), "the coordinate nan"),
    ],
)
def test_wrong_suggestions_of_a_proposal(points: torch.Tensor, given: str) -> None:
    optimizer = Optimizer(SPACE, method=Method("mine", "wrong", "none", Fixed(points), uses_model=False), initial=1)
    told(optimizer, 1)
    with pytest.raises(SettingError, match=rf"'mine' must suggest 2 points \(2, 3\) of the unit cube, but got {given}"):
        optimizer.ask(2)
    assert len(optimizer.trials) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"space": "branin"}, "`space` must be a Space, but got 'branin'"),
        ({"direction": "up"}, "`direction` must be 'maximize' or 'minimize', but got 'up'"),
        ({"method": "unifrom"}, "unknown method 'unifrom': did you mean 'uniform'"),
        ({"model": 3}, "`model` must be a GaussianProcess or a function, but got 3"),
        ({"model": GaussianProcess}, r"`model` must be an instance, but got the class: use GaussianProcess\(\)"),
        ({"method": ["conbo"]}, r"unknown method \['conbo'\]"),
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
        Optimizer(SPACE, state_distribution={"S": Triangular()}, method="uniform")


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


# The best rewards of finitely many states


SETS = Space(states={"set": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)})
PEAKS = {"a": 0.2, "b": 0.5, "c": 0.8, "d": 0.65}


def height(trial: Any) -> float:
    return float(-((trial.action["x"] - PEAKS[trial.state["set"]]) ** 2))


def seen(optimizer: Optimizer, names: str) -> Optimizer:
    for name in names:
        (trial,) = optimizer.ask(state={"set": name})
        optimizer.tell(trial, height(trial))
    return optimizer


def test_the_best_trial_of_every_state() -> None:
    space = Space(states={"k": Categorical(["a", "b"]), "n": Integer(1, 2)}, actions={"x": Real(0, 1)})
    for direction, best in (("maximize", 2), ("minimize", 1)):
        optimizer = Optimizer(space, method="uniform", direction=direction)
        for reward_, state in ((0.0, ("a", 1)), (-1.0, ("b", 2)), (3.0, ("b", 2)), (5.0, ("b", 1)), (0.0, ("a", 1))):
            (trial,) = optimizer.ask(state=dict(zip("kn", state, strict=True)))
            optimizer.tell(trial, reward_)
        optimizer.ask(state={"k": "a", "n": 2})  # still running
        optimizer.fail(optimizer.ask(state={"k": "a", "n": 2})[0])

        rows = {(row["state"]["k"], row["state"]["n"]): row for row in optimizer.best_observed()}

        assert list(rows) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        assert [row["number"] for row in rows.values()] == [0, None, 3, best]
        assert [row["reward"] for row in rows.values()] == [0.0, None, 5.0, 3.0 if best == 2 else -1.0]
        assert rows["b", 2]["action"] == optimizer.trials[best].action
        assert rows["a", 2]["action"] is None


def test_states_of_probability_zero_are_listed_if_they_were_tried() -> None:
    optimizer = Optimizer(SETS, state_distribution={"set": Weights({"a": 1, "b": 1})}, method="uniform")
    assert [row["state"]["set"] for row in optimizer.best_observed()] == ["a", "b"]
    seen(optimizer, "c")
    assert [row["number"] for row in optimizer.best_observed()] == [None, None, 0]


def test_without_states_there_is_one_best_trial() -> None:
    optimizer = told(Optimizer(Space(actions=SPACE.actions), method="uniform"), 4)
    (row,) = optimizer.best_observed()
    assert row["state"] == {}
    assert row["reward"] == max(trial.reward or 0.0 for trial in optimizer.trials)


def test_the_best_trials_of_infinitely_many_states_cannot_be_listed() -> None:
    with pytest.raises(SettingError, match=r"needs finitely many states: use `policy\(\)`"):
        Optimizer(SPACE, method="uniform").best_observed()


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_an_improving_trial_is_better_than_all_that_the_state_had(direction: Any) -> None:
    sign = 1 if direction == "maximize" else -1
    optimizer = Optimizer(SETS, method="uniform", initial=2, seed=1, direction=direction)
    for name in "abcabcabc":
        (trial,) = optimizer.ask(state={"set": name})
        optimizer.tell(trial, sign * height(trial))
    before = {row["state"]["set"]: row["reward"] for row in optimizer.best_observed()}
    for name in "abc":
        trial = optimizer.ask_improving({"set": name})
        assert trial.state == {"set": name}
        assert trial == optimizer.trials[-1]
        optimizer.tell(trial, sign * height(trial))
    after = {row["state"]["set"]: row["reward"] for row in optimizer.best_observed()}
    assert all(sign * after[name] > sign * before[name] for name in "abc")


def test_an_improving_trial_in_a_state_without_rewards_follows_the_trend() -> None:
    optimizer = Optimizer(SETS, method="uniform", initial=2)
    for name in "abab" * 3:
        (trial,) = optimizer.ask(state={"set": name})
        optimizer.tell(trial, float(-((trial.action["x"] - 0.35) ** 2)))
    assert optimizer.ask_improving({"set": "c"}).action["x"] == pytest.approx(0.35, abs=0.12)


def test_an_improving_trial_before_any_reward_is_one_of_the_design() -> None:
    one, other = Optimizer(SETS, method="uniform"), Optimizer(SETS, method="uniform")
    assert one.ask_improving({"set": "b"}) == other.ask(state={"set": "b"})[0]


def test_an_improving_trial_depends_on_seed_number_and_rewards_and_keeps_apart_from_running_ones() -> None:
    one, other = (seen(Optimizer(SETS, method="uniform", initial=2), "abcabc") for _ in range(2))
    other.policy()
    other.suggest_improving({"set": "a"})  # leaves no record
    first = one.ask_improving({"set": "b"})
    assert first == other.ask_improving({"set": "b"})
    second = one.ask_improving({"set": "b"})
    assert abs(float(first.action["x"]) - float(second.action["x"])) > 0.01


@pytest.mark.parametrize("state", [{"set": "z"}, {}])
def test_an_improving_trial_of_an_unknown_state_is_refused(state: dict[str, Any]) -> None:
    optimizer = seen(Optimizer(SETS, method="uniform", initial=2), "ab")
    with pytest.raises(PointError, match="'set'"):
        optimizer.ask_improving(state)
    assert len(optimizer.trials) == 2


# New choices


def test_new_choices_lose_nothing() -> None:
    optimizer = seen(Optimizer(SETS, method=greedy(), initial=3), "abcab")
    optimizer.ask()
    before = optimizer.trials

    optimizer.add_choices("set", ["d"])

    assert optimizer.trials == before
    assert optimizer.space == SETS.with_choices("set", ["d"])
    assert [row["number"] is None for row in optimizer.best_observed()] == [False, False, False, True]
    trial = seen(optimizer, "d").trials[-1]
    assert (trial.number, trial.state) == (6, {"set": "d"})
    assert set(optimizer.policy()({"set": "d"})) == {"x"}


def test_suggestions_after_new_choices_depend_on_seed_and_trials_only() -> None:
    def widened(early: bool) -> Optimizer:
        optimizer = Optimizer(SETS, method=greedy(), initial=3, seed=4)
        if early:
            optimizer.add_choices("set", ["d"])
        seen(optimizer, "abcab")
        if not early:
            optimizer.policy()  # a fit of the narrow space must not be used again
            optimizer.add_choices("set", ["d"])
        return optimizer

    late, resumed = widened(early=False), Optimizer(SETS.with_choices("set", ["d"]), method=greedy(), initial=3, seed=4)
    resumed.restore(late.trials)
    assert late.suggest(3) == resumed.suggest(3)
    assert late.policy()({"set": "d"}) == resumed.policy()({"set": "d"})
    early = widened(early=True)
    resumed.restore(early.trials)
    assert early.suggest(2) == resumed.suggest(2)


def test_a_new_state_gets_its_share_of_a_uniform_distribution() -> None:
    optimizer = Optimizer(SETS, method="uniform", initial=256)
    optimizer.add_choices("set", ["d"])
    states = [trial.state["set"] for trial in optimizer.ask(256)]
    assert states.count("d") == pytest.approx(64, abs=2)


@pytest.mark.parametrize("recipe", [Weights({"a": 1, "b": 3}), {"set": Weights({"a": 1, "b": 3})}])
def test_weights_must_be_given_anew(recipe: Any) -> None:
    optimizer = Optimizer(SETS, state_distribution=recipe, method="uniform", initial=64)
    with pytest.raises(SettingError, match=r"`state_distribution` must be given with new choices of 'set'"):
        optimizer.add_choices("set", ["d"])
    assert optimizer.space == SETS

    optimizer.add_choices("set", ["d"], {"set": Weights({"d": 1, "b": 1})})

    assert {trial.state["set"] for trial in optimizer.ask(16)} == {"b", "d"}


def test_new_choices_of_an_action_and_a_density_need_no_new_distribution() -> None:
    space = Space(states={"set": Categorical(["a", "b"])}, actions={"c": Categorical(["u", "v"])})
    optimizer = Optimizer(space, state_distribution={"set": Weights({"a": 1})}, method="uniform", initial=64)
    optimizer.add_choices("c", ["w"])
    trials = optimizer.ask(16)
    assert {trial.action["c"] for trial in trials} == {"u", "v", "w"}
    assert {trial.state["set"] for trial in trials} == {"a"}
    dense = Optimizer(space, state_distribution=lambda state: 1.0 + (state["set"] == "z"), method="uniform", initial=64)
    dense.add_choices("set", ["z"])
    assert [trial.state["set"] for trial in dense.ask(64)].count("z") == pytest.approx(32, abs=2)


def test_bad_new_choices_change_nothing() -> None:
    optimizer = Optimizer(SETS, method="uniform")
    for name, choices in (("set", ["a"]), ("x", ["a"]), ("y", ["a"])):
        with pytest.raises(SpaceError):
            optimizer.add_choices(name, choices)
    with pytest.raises(SpaceError, match="unknown state parameter 'sett'"):
        optimizer.add_choices("set", ["d"], {"sett": Weights({"d": 1})})
    assert optimizer.space == SETS
