"""What a study has learned, in numbers and in two sentences."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from conbo.errors import ConboError
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.study import Study
from conbo.study_summary import Region, StudySummary, where_concentrated
from learned_studies import no_state, one_state, view

SUMMARY = StudySummary(
    evaluations=30,
    maximize=True,
    policy_value=165.93,
    policy_value_std=3.64,
    single_action={"stock": 70.0},
    single_action_value=110.44,
    single_action_value_std=4.0,
    value_of_state=55.49,
    value_of_state_std=4.2,
    expected_gain=3.2,
    most_to_learn=Region("demand", 80.3, 99.6),
    reward_scale=80.0,
)


@pytest.mark.parametrize("kind", ["one_state", "mixed", "wards"])
def test_the_value_of_the_state_is_that_of_the_model(kind: str) -> None:
    look = view(kind)
    summary = look.summary
    states, weights = look.typical_states
    assert summary.policy_value == pytest.approx(look.value[0])
    assert summary.policy_value_std == pytest.approx(look.value[1])
    assert summary.single_action is not None
    action = torch.from_numpy(look.space.encode_actions([summary.single_action])).expand(len(states), -1)
    mean, std = look.value_of(look.belief, torch.cat([states, action], -1))
    assert summary.single_action_value == pytest.approx(mean)
    assert summary.single_action_value_std == pytest.approx(std)
    assert summary.value_of_state == pytest.approx((summary.policy_value - mean) * look.sign)
    # no action of a fine grid is better for all states than the single one, by more than the search may miss
    others = torch.from_numpy(look.space.snap_actions(np.random.default_rng(0).random((100, action.shape[1]))))
    points = torch.cat([states.repeat(100, 1), others.repeat_interleave(len(states), 0)], -1)
    values = look.mean(points).reshape(100, -1) @ weights.numpy() * look.sign
    assert values.max() <= mean * look.sign + 0.01 * look.belief.scale


def test_a_study_says_it_and_so_does_its_page() -> None:
    study = one_state()
    summary = study.summary()
    assert summary == view("one_state").summary
    assert summary.evaluations == 30
    assert str(summary).startswith(f"The policy is worth {summary.policy_value:.1f} ± ")
    assert json.loads(json.dumps(summary.to_dict()))["value_of_state"] == summary.value_of_state


def test_without_states_there_is_no_value_of_the_state() -> None:
    summary = no_state().summary()
    assert (summary.value_of_state, summary.single_action, summary.most_to_learn) == (None, None, None)
    assert summary.sentences[0].startswith("The best action is worth ")
    assert "states" not in " ".join(summary.sentences)


def test_most_is_left_where_nothing_was_tried() -> None:
    space = Space(states={"ward": Categorical(list("ABCD"))}, actions={"dose": Real(0, 10)})
    study = Study(space, method="uniform")
    for trial in study.ask(24):
        if trial.state["ward"] == "D":
            study.fail(trial)
        else:
            study.tell(trial, -((float(trial.action["dose"]) - 2 * "ABC".index(str(trial.state["ward"]))) ** 2) / 10)
    summary = study.summary()
    assert summary.most_to_learn == Region("ward", choices=("D",))
    assert "Most is left to learn for ward D;" in str(summary)


def test_nothing_is_summarized_before_the_first_reward() -> None:
    with pytest.raises(ConboError, match="at least one completed trial"):
        Study(Space(actions={"x": Real(0, 1)})).summary()


def test_sentences() -> None:
    worth, left = SUMMARY.sentences
    assert worth == (
        "The policy is worth 165.9 ± 7.1; the best single action for all states 110.4: "
        "knowing the state is worth 55.5 ± 8.2."
    )
    assert left == (
        "Most is left to learn around demand 80 to 100; one more evaluation is expected to gain at most 3.2 "
        "in a typical state."
    )
    assert str(SUMMARY) == f"{worth} {left} (± is 1.96 standard deviations of the mean, without noise.)"
    cost = replace(SUMMARY, maximize=False).sentences[0]
    assert cost.startswith("The policy costs 165.9")
    assert "knowing the state saves 55.5" in cost
    assert replace(SUMMARY, value_of_state=5.0).sentences[0].endswith("5.0 ± 8.2, which may be nothing.")
    same = replace(SUMMARY, value_of_state=0.0, value_of_state_std=0.0).sentences[0]
    assert same.endswith("± 7.1; by what is known so far, one action is the best for all states.")
    assert replace(SUMMARY, most_to_learn=None).sentences[1].startswith("What is left to learn is spread over all")
    assert replace(SUMMARY, expected_gain=0.01).sentences[1].startswith("Little is left to learn: one more")


@pytest.mark.parametrize(
    ("region", "text"),
    [
        (Region("demand", 80.3, 99.6), "demand 80 to 100"),
        (Region("temperature", 1000.21, 1000.93), "temperature 1000.21 to 1000.93"),
        (Region("rate", 1.23e-5, 0.0456), "rate 1.2e-05 to 0.046"),
        (Region("age", 61, 75), "age 61 to 75"),
        (Region("day", 3, 3), "day 3"),
        (Region("ward", choices=("A", "C", "D")), "ward A, C and D"),
    ],
)
def test_regions_have_as_many_digits_as_they_need(region: Region, text: str) -> None:
    assert str(region) == text


def test_the_region_is_the_smallest_with_half_of_the_gains() -> None:
    space = Space(
        states={"age": Integer(1, 10), "sex": Categorical(["f", "m"]), "load": Real(0, 1)}, actions={"x": Real(0, 1)}
    )
    age, sex = np.meshgrid(np.arange(10), np.arange(2), indexing="ij")
    states = np.stack([(age.ravel() + 0.5) / 10, (sex.ravel() + 0.5) / 2, np.full(20, 0.5)], 1)
    weights = np.full(20, 1 / 20)
    old = weights * np.where(age.ravel() >= 8, 10.0, 1.0)
    assert where_concentrated(space, states, old, weights) == Region("age", 9, 10)
    women = weights * np.where(sex.ravel() == 0, 10.0, 1.0)
    assert where_concentrated(space, states, women, weights) == Region("sex", choices=("f",))
    assert where_concentrated(space, states, weights, weights) is None
    assert where_concentrated(space, states, 0 * weights, weights) is None


def test_best_observed_actions_are_preferred_where_rewards_are_nearly_exact() -> None:
    space = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})

    def told(noise: float, n: int, unit: float = 1.0) -> StudySummary:
        study = Study(space, method="uniform", direction="minimize")
        for trial in study.ask(n):
            best = 0.2 if trial.state["k"] == "a" else 0.7
            study.tell(trial, unit * (float(trial.action["x"]) - best) ** 2, noise)
        summary = study.summary()
        rewards = [row["reward"] for row in study.best_observed()]
        assert summary.best_observed_value in (None, pytest.approx(np.mean(rewards)))
        return summary

    exact = told(1e-8, 12)
    assert exact.best_observed_value is not None
    assert exact.sentences[2].startswith("Rewards are nearly exact, and the best observed action of every state cost ")
    assert told(0.0, 12, unit=1e200).best_observed_value is not None  # the square of the unit overflows
    assert told(0.1, 12).best_observed_value is None
    assert len(told(0.1, 12).sentences) == 2
