"""What a user might write. `make check` holds it to mypy --strict and pyright's strict mode; it is never run."""

from collections.abc import Mapping
from typing import assert_type

import conbo

space = conbo.Space(states={"demand": conbo.Real(10, 100)}, actions={"stock": conbo.Real(0, 150)})


def profit(state: dict[str, float], action: dict[str, float]) -> float:
    return 5 * min(state["demand"], action["stock"]) - 2 * action["stock"]


class Simulator:
    """An objective may be any object that can be called, and may return more than a reward."""

    def __call__(self, state: Mapping[str, float], action: Mapping[str, float]) -> dict[str, float]:
        return {"reward": action["stock"] - state["demand"], "wait": 4.2}


objectives: list[conbo.Objective] = [profit, Simulator(), lambda state, action: action["stock"]]


def seeded_profit(state: dict[str, float], action: dict[str, float], seed: int) -> float:
    return profit(state, action) + seed % 7


def watch(study: conbo.Study, trial: conbo.Trial) -> None:
    if trial.reward is not None and trial.reward > 100:
        study.stop()


study = conbo.Study(space, state_distribution={"demand": conbo.Triangular(30)}, direction="maximize", seed=1)
for objective in objectives:
    assert_type(study.run(objective, evaluations=3, callbacks=[watch], progress=False), conbo.RunSummary)

with_seeds = conbo.Study(space, common_random_numbers=True, seeds=[1, 2, 3])
assert_type(with_seeds.run(seeded_profit, evaluations=3), conbo.RunSummary)
assert_type(with_seeds.ask().seed, int | None)

assert_type(study.ask(), conbo.Trial)
assert_type(study.ask(2), list[conbo.Trial])
assert_type(study.enqueue({"demand": 60}, {"stock": 60}), conbo.Trial)
assert_type(study.add_trial({"demand": 60}, {"stock": 60}, reward=1.0), conbo.Trial)
trial = study.ask(state={"demand": 50})
study.tell(trial, 1.5, outcomes={"wait": 2.0})

policy = study.policy()
assert_type(policy, conbo.Policy)
assert_type(policy.predict({"demand": 60}), conbo.Prediction)
assert_type(policy.predict({"demand": 60}).mean, float)
assert_type(conbo.load_policy("policy.json"), conbo.Policy)
assert_type(conbo.open_study("warehouse.db"), conbo.Study)
assert_type(conbo.study_names("warehouse.db"), list[str])
conbo.report(study, "report.html")
