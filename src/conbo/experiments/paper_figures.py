"""The settings of all runs for the ConBO paper's figures, and for conbo's own figures on methods, models and seeds.

The paper gives the test functions, the methods and the values that are varied. Settings that it does not give (initial
points, budgets, repetitions, test states) are chosen here, the same for all methods.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from conbo.errors import SettingError
from conbo.experiments.alternatives import GRID_SIZES
from conbo.experiments.run_file import Key, Run, SeedHabit
from conbo.experiments.runner import Task
from conbo.experiments.scoring import Scoring
from conbo.experiments.sweep import Sweep
from conbo.experiments.variants import (
    WIDTHS,
    alternatives,
    global_methods,
    named,
    swept_label,
    width_problem,
    with_either_prior,
    with_model,
    with_our_model,
    with_wider_prior,
)
from conbo.method_table import DEFAULT_METHOD, METHODS, PUBLISHED_MODEL
from conbo.spaces import closest

ALL_METHODS = (
    "knn",
    "policy-gradient",
    "uniform",
    "expected-improvement",
    "peqi",
    "revi",
    "mts",
    "conbo-3",
    "conbo-5",
    DEFAULT_METHOD,
)
MODEL_RIVALS = ("revi", "conbo-5")  # the best rivals of the default method, which are also run with its model
SEED_LABELS: dict[SeedHabit, str] = {  # methods that differ in where the simulator's seeds come from
    "new": DEFAULT_METHOD,
    "chosen": f"{DEFAULT_METHOD}, chosen seeds",
    "one": f"{DEFAULT_METHOD}, one seed",
}

EXACT = Scoring(states=256, replications=1)  # expected rewards of the synthetic functions are known exactly
DAYS = Scoring(states=128, replications=400)
WAREHOUSES = Scoring(states=64, replications=64)


@dataclass(frozen=True)
class Figure:
    """A figure and the sweeps (sets of runs) that it shows; the sweeps in `quick` are small and take only minutes."""

    name: str
    title: str
    sweeps: Sequence[Sweep]
    quick: Sequence[Sweep]

    def tasks(self, quick: bool = False, seeds: int | None = None) -> list[Task]:
        """The tasks of all runs of the figure, or of its quick variant, ordered by seed.

        If `seeds` is given, only the tasks of the first `seeds` seeds of every sweep are returned.
        """
        sweeps = self.quick if quick else self.sweeps
        if seeds is not None:
            sweeps = [replace(sweep, seeds=min(seeds, sweep.seeds)) for sweep in sweeps]
        tasks = [task for sweep in sweeps for task in sweep.tasks()]
        return sorted(tasks, key=lambda task: task.settings.seed)

    def select(self, runs: Mapping[Key, Run], quick: bool = False) -> list[Run]:
        """Select the given runs that belong to the figure, or with `quick`, to its quick variant."""
        return [runs[key] for task in self.tasks(quick) if (key := task.settings.key) in runs]

    def shown(self, runs: Mapping[Key, Run]) -> list[Run]:
        """The complete runs of the figure, except on problems where fewer than half of the runs are complete."""
        planned = Counter(task.settings.problem for task in self.tasks())
        complete = [run for run in self.select(runs) if run.is_complete]
        made = Counter(run.settings.problem for run in complete)
        return [run for run in complete if 2 * made[run.settings.problem] >= planned[run.settings.problem]]

    def is_mostly_made(self, runs: Mapping[Key, Run]) -> bool:
        """Whether at least half of the figure's runs are complete."""
        return 2 * sum(run.is_complete for run in self.select(runs)) >= len(self.tasks())


_SYNTHETIC = Sweep(
    problems=[f"{f}{law}" for f in ("branin", "rosenbrock") for law in ("", ":state_distribution=triangular")],
    methods=named(*ALL_METHODS),
    evaluations=40,
    initial=6,
    seeds=20,
    every=2,
    scoring=EXACT,
)
_METHODS = replace(
    _SYNTHETIC,
    problems=["branin", "rosenbrock"],
    methods=[method for method in METHODS.values() if not method.needs_finite_states],
    seeds=10,
)
_MODELS = replace(
    _SYNTHETIC,
    methods=[
        *named(DEFAULT_METHOD),
        with_model(DEFAULT_METHOD, PUBLISHED_MODEL),
        *with_our_model(*MODEL_RIVALS),
    ],
)
_WIDTHS = replace(
    _SYNTHETIC,
    problems=[width_problem(f, width) for f in ("branin", "rosenbrock") for width in WIDTHS],
    methods=[
        *named("expected-improvement", "kg-hybrid", "conbo-5", DEFAULT_METHOD),
        *with_our_model("kg-hybrid", "conbo-5"),
    ],
)
_GLOBAL_PLANE = replace(_SYNTHETIC, problems=["branin_global", "rosenbrock_global"], methods=global_methods())
_GLOBAL_HARTMANN = replace(_GLOBAL_PLANE, problems=["hartmann6"], evaluations=70, initial=14, every=4)
_AMBULANCES = Sweep(
    problems=["ambulances"],
    methods=named(*ALL_METHODS),
    evaluations=200,
    initial=18,
    seeds=10,
    every=10,
    scoring=DAYS,
)
_WAREHOUSES = replace(_AMBULANCES, problems=["assemble_to_order"], evaluations=120, initial=20, scoring=WAREHOUSES)
_NETWORKS = Sweep(
    problems=["cifar_cnn_table"],
    methods=named("transfer-ei", "scot", "mts", "revi", "conbo-3", "conbo-5", DEFAULT_METHOD),
    evaluations=100,
    initial=18,
    seeds=10,
    every=10,
    scoring=Scoring(states=5, replications=1),  # the problem is a surrogate, whose expected rewards are known exactly
    final_round=True,
)
_FINITE = Sweep(
    problems=["branin_grid"],
    methods=[
        *named("uniform", "scot", "mts", "revi", "gp-c-ocba", DEFAULT_METHOD),
        *with_wider_prior("uniform", "scot", "mts", "revi", "gp-c-ocba"),
        *with_our_model("revi", "gp-c-ocba"),
    ],
    evaluations=100,
    initial=20,
    seeds=10,
    every=10,
    scoring=EXACT,
)
_NEWER_RIVALS = [
    replace(sweep, methods=[*with_either_prior("ps-bax", "ae-lsvi", "pmto"), *named(DEFAULT_METHOD)])
    for sweep in (_AMBULANCES, _WAREHOUSES, _NETWORKS)
]
_SEEDS: list[Sweep] = [
    replace(
        sweep,
        methods=[replace(METHODS[DEFAULT_METHOD], name=label)],
        seeds=repetitions,
        seed_habit=habit,
    )
    for sweep, repetitions in ((_AMBULANCES, 50), (_WAREHOUSES, 20))
    for habit, label in SEED_LABELS.items()
]
_NOISY_MODELS = [
    *(replace(sweep, methods=_MODELS.methods) for sweep in (_AMBULANCES, _WAREHOUSES, _NETWORKS)),
    replace(_AMBULANCES, methods=with_our_model("peqi")),  # the best rival there
]
_PAPERS = ("uniform", "expected-improvement", "peqi", "revi", "mts", "conbo-3", "conbo-5")
_NOISE_PRIORS = [
    *(replace(sweep, methods=with_either_prior(*_PAPERS)) for sweep in (_AMBULANCES, _WAREHOUSES)),
    replace(_NETWORKS, methods=with_either_prior("transfer-ei", "scot", "mts", "revi", "conbo-3", "conbo-5")),
]
_BATCHES = [
    replace(
        sweep,
        methods=[
            *with_either_prior("revi", "mts", "conbo-5"),
            *named(DEFAULT_METHOD),
            *with_our_model(*MODEL_RIVALS),
        ],
        batch=batch,
    )
    for sweep in (_AMBULANCES, _WAREHOUSES)
    for batch in (1, 4, 8)
]
_ALTERNATIVES = [
    part
    for sweep in (_SYNTHETIC, _AMBULANCES, _WAREHOUSES, _NETWORKS)
    for problem in sweep.problems
    if problem in GRID_SIZES["optuna"]
    for part in (
        replace(sweep, problems=[problem], methods=named(DEFAULT_METHOD), seeds=8),  # shared with other figures
        replace(sweep, problems=[problem], methods=alternatives(problem), seeds=8, final_round=False),
    )
]
_FRESH_RIVALS = [*named("conbo-5", DEFAULT_METHOD), *with_our_model("conbo-5")]
_FRESH_SIMULATED = [*_FRESH_RIVALS, *with_wider_prior("conbo-5")]
_FRESH_GLOBAL = [
    method for method in global_methods() if "n_z=" not in method.name or method.name == swept_label("kg-hybrid", 5)
]
_FRESH_SEEDS = [
    replace(
        _AMBULANCES,
        methods=[
            *_FRESH_RIVALS,
            *with_wider_prior("uniform", "expected-improvement", "peqi", "conbo-5"),  # clearly better on ten seeds
            *with_our_model("uniform", "peqi", "revi"),
        ],
        first_seed=10,
        seeds=40,
    ),
    replace(_WAREHOUSES, methods=_FRESH_SIMULATED, first_seed=10),
    replace(_WAREHOUSES, methods=_FRESH_SIMULATED, problems=["assemble_to_order:demand_enters=production_time"]),
    *(replace(sweep, methods=_FRESH_SIMULATED, first_seed=10) for sweep in _BATCHES if sweep.batch > 1),
    replace(
        _NETWORKS,
        methods=[*named("transfer-ei", DEFAULT_METHOD), *with_wider_prior("scot")],
        first_seed=10,
    ),
    replace(_FINITE, methods=[*named(DEFAULT_METHOD), *with_our_model("revi", "gp-c-ocba")], first_seed=10),
]
_FRESH_FUNCTIONS = [
    replace(_SYNTHETIC, methods=_FRESH_RIVALS, first_seed=20),
    replace(
        _WIDTHS,
        problems=[problem for problem in _WIDTHS.problems if problem not in _SYNTHETIC.problems],
        methods=[*_FRESH_RIVALS, *with_our_model("kg-hybrid")],
        first_seed=20,
    ),
    *(replace(sweep, methods=_FRESH_GLOBAL, first_seed=20) for sweep in (_GLOBAL_PLANE, _GLOBAL_HARTMANN)),
]

FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "synthetic",
            "Ten methods on Branin and Rosenbrock, with uniform and triangular states",
            [_SYNTHETIC],
            [
                replace(
                    _SYNTHETIC,
                    problems=["branin", "rosenbrock"],
                    methods=named("knn", "uniform", "expected-improvement", "conbo-5", DEFAULT_METHOD),
                    evaluations=26,
                    seeds=3,
                    every=10,
                )
            ],
        ),
        Figure(
            "methods",
            "Every method for continuous states on Branin and Rosenbrock",
            [_METHODS],
            [replace(_METHODS, problems=["branin"], evaluations=10, seeds=1)],
        ),
        Figure(
            "models",
            "Our default and its rivals on the papers' model and on ours",
            [_MODELS, *_NOISY_MODELS],
            [replace(_MODELS, problems=["branin"], evaluations=20, seeds=1)],
        ),
        Figure(
            "noise-priors",
            "The papers' methods, with priors that expect little noise or any",
            [replace(sweep, methods=[*sweep.methods, *named(DEFAULT_METHOD)]) for sweep in _NOISE_PRIORS],
            [replace(sweep, methods=sweep.methods[-2:], evaluations=24, seeds=1) for sweep in _NOISE_PRIORS],
        ),
        Figure(
            "widths",
            "Global methods on conditional problems: the width of the state space",
            [_WIDTHS],
            [replace(_WIDTHS, problems=["branin:width=0", "branin"], evaluations=20, seeds=2)],
        ),
        Figure(
            "global",
            "Global optimization: three knowledge gradients over n_z, and Thompson sampling",
            [_GLOBAL_PLANE, _GLOBAL_HARTMANN],
            [replace(_GLOBAL_PLANE, problems=["branin_global"], evaluations=16, seeds=1)],
        ),
        Figure(
            "ambulances",
            "Ten methods on ambulances in a square",
            [replace(_AMBULANCES, seeds=50)],
            [replace(_AMBULANCES, evaluations=24, seeds=1)],
        ),
        Figure(
            "assemble-to-order",
            "Ten methods on assemble to order",
            [_WAREHOUSES],
            [replace(_WAREHOUSES, evaluations=24, seeds=1)],
        ),
        Figure(
            "batches",
            "Batches of 1, 4 and 8 on ambulances and assemble to order",
            _BATCHES,
            [replace(sweep, evaluations=36, seeds=1) for sweep in _BATCHES],
        ),
        Figure(
            "common-random-numbers",
            "Chosen seeds, always a new seed and always the same one, on ambulances and assemble to order",
            _SEEDS,
            [replace(sweep, evaluations=24, seeds=1) for sweep in _SEEDS],
        ),
        Figure(
            "cnn",
            "Hyperparameters of a network for five data sets (surrogate), with and without a final round",
            [_NETWORKS],
            [replace(_NETWORKS, evaluations=40, seeds=1)],
        ),
        Figure(
            "finite",
            "Finitely many states and actions: GP-C-OCBA and others",
            [_FINITE],
            [replace(_FINITE, evaluations=30, seeds=1)],
        ),
        Figure(
            "newer-rivals",
            "Methods that are newer than the paper, on its applications",
            _NEWER_RIVALS,
            [replace(sweep, evaluations=24, seeds=1) for sweep in _NEWER_RIVALS],
        ),
        Figure(
            "alternatives",
            "What you would use instead: other libraries with the same evaluations",
            _ALTERNATIVES,
            [
                replace(_ALTERNATIVES[0], evaluations=14, seeds=1),
                replace(_ALTERNATIVES[1], methods=_ALTERNATIVES[1].methods[:3], evaluations=14, seeds=1),
            ],
        ),
        Figure(
            "fresh-seeds",
            "Simulators, networks and a grid with fresh seeds",
            _FRESH_SEEDS,
            [replace(sweep, evaluations=24, seeds=1) for sweep in _FRESH_SEEDS],
        ),
        Figure(
            "fresh-functions",
            "The functions with fresh seeds, with states and without",
            _FRESH_FUNCTIONS,
            [replace(sweep, evaluations=16, seeds=1) for sweep in _FRESH_FUNCTIONS],
        ),
    )
}


# pictures that `method_pictures` draws without any runs
PICTURES = {
    "per-state": "The knowledge gradient of every state, for one next point",
    "knowledge-gradients": "Three estimates of the knowledge gradient",
    "penalization": "The second point of a batch",
}


def known_name(name: str) -> str:
    """Return the name if a figure or a picture has it; raise SettingError otherwise."""
    if name not in FIGURES and name not in PICTURES:
        raise SettingError(f"unknown figure {name!r}: {closest(name, [*PICTURES, *FIGURES])}")
    return name
