"""The final round: one last evaluation in each of finitely many states, to raise that state's best observed reward.

A final round helps if the best result of each state is kept, such as the best trained network. In each state, it
evaluates the action with the highest expected improvement over the best observed reward of that state. For a method
with a policy of its own, such as "EI + transfer", it evaluates that policy's action instead.
"""

from collections.abc import Sequence

from conbo.experiments.evaluation import evaluate
from conbo.experiments.scoring import Scorer
from conbo.method_list import Method
from conbo.optimizer import Optimizer
from conbo.trials import Trial


def after_final_round(judge: Scorer, method: Method, seed: int, trials: Sequence[Trial]) -> float | None:
    """Estimate the score that a run would have reached, had its last evaluations been a final round.

    A final round is one last evaluation in each state. With k states, the last k trials of the run are dropped, and a
    final round is evaluated in their place. The score is the mean over P[s] of the best observed reward of each state.
    The result is None if no trials are left before the final round.
    """
    problem, kept = judge.problem, trials[: len(trials) - len(judge.states)]
    if not kept:
        return None
    optimizer = Optimizer(
        problem.space,
        state_distribution=problem.state_distribution,
        method=method,
        seed=seed,
        initial=1,
        outcome_constraints=problem.outcome_constraints,
    )
    optimizer.restore(kept)
    policy = None if method.policy is None else optimizer.policy()
    for state in judge.states:
        if policy is None:
            trial = optimizer.ask_improving(state)
        else:
            trial = Trial(len(optimizer.trials), dict(state), policy(state))
            optimizer.adopt([trial])
        told = evaluate(problem, seed, trial)
        optimizer.tell(trial, told.reward, outcomes=told.measured)
    return judge.best_observed(optimizer.trials)
