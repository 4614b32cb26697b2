from dataclasses import replace

import pytest

from conbo.experiments import origin
from conbo.experiments.botorch_contextual import BotorchContextual
from conbo.experiments.grid_search import GridSearch
from conbo.experiments.origin import code_lines, code_of, imports_of, is_stale, modules_of, origin_of
from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.problem_names import load_problem
from conbo.experiments.run_file import Origin, Run
from conbo.experiments.staleness import NO_RECORD, OTHER_RECIPE, stale_table, state_counts, why_stale
from conbo.method_table import METHODS


def task_of(figure, problem, method):
    return next(t for t in FIGURES[figure].tasks() if (t.settings.problem, t.settings.method) == (problem, method))


def code(problem, method):
    settings = task_of("synthetic", "branin", "conbo").settings
    return code_of(replace(settings, problem=problem), METHODS[method])


def followed(problem, method):
    settings = task_of("synthetic", "branin", "conbo").settings
    return modules_of(replace(settings, problem=problem), METHODS.get(method, method))


def test_the_code_of_a_run_is_what_its_method_and_problem_need():
    default = followed("branin", "conbo")
    assert {"conbo.acquisition.integral_over_states", "conbo.models.fit", "conbo.problems.synthetic"} <= default
    assert not {"conbo.acquisition.entropy", "conbo.problems.ambulance_simulator", "conbo.method_table"} & default
    assert not {module for module in default if module.split(".")[1] in ("study", "reports", "server", "plots", "cli")}
    assert "conbo.acquisition.entropy" in followed("branin", "conbo-pes")
    assert "conbo.problems.ambulance_simulator" in followed("ambulances", "uniform")
    assert "conbo.problems.synthetic" in followed("branin_global", "uniform")
    assert "conbo.optimizer" in default


@pytest.mark.parametrize("library", [GridSearch("optuna", 3), GridSearch("ax", 3), BotorchContextual()])
def test_runs_of_other_libraries_do_not_depend_on_our_optimizer_and_models(library):
    found = followed("branin", library)
    assert {"conbo.experiments.scoring", "conbo.problems.synthetic", library.__class__.__module__} <= found
    ours = ("acquisition", "models", "proposals", "loops", "optimizer", "learner", "belief")
    assert not {module for module in found if module.split(".")[1] in ours}


def test_runs_of_the_same_code_have_the_same_fingerprint():
    assert code("branin", "conbo") == code("branin:width=0.5", "conbo-5")  # settings are recorded elsewhere
    found = [code("branin", "conbo"), code("branin", "revi"), code("ambulances", "conbo"), code("branin", "uniform")]
    assert len(set(found)) == 4
    settings = task_of("synthetic", "branin", "conbo").settings
    assert code_of(settings, GridSearch("optuna", 3)) not in found


def test_words_do_not_change_a_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "SOURCE", tmp_path)

    def lines(name, text):  # names are new, because what is read is remembered
        (tmp_path / f"{name}.py").write_text(text)
        return code_lines(f"conbo.{name}")

    plain = lines("first_words", "def f(x):\n    return x + 1\n")
    told = '"""A module."""\n\n# why\ndef f(x):\n    """Twice\n    told."""\n\n    return x + 1\n'
    assert lines("second_words", told) == plain
    assert lines("third_words", "def f(x):\n    return x + 2\n") != plain
    assert lines("fourth_words", 'def f(x):  # "why"\n    return x + 1  # twice\n') == plain
    assert "#" in lines("fifth_words", 'COLOR = "#123456"\n')
    lines("__init__", "")
    lines("importing_words", "from conbo import first_words\nif TYPE_CHECKING:\n    from conbo.third_words import f\n")
    assert imports_of("conbo.importing_words") == {"conbo.first_words"}


def test_no_recorded_run_has_what_its_fingerprint_leaves_out():
    problems = {task.settings.problem for figure in FIGURES.values() for task in figure.tasks()}
    loaded = [load_problem(name) for name in problems]
    assert not any(one.outcome_constraints or one.space.feasible_set for one in loaded)


def test_checks_of_settings_do_not_change_a_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "SOURCE", tmp_path)

    def lines(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        return code_lines(f"conbo.{name}")

    plain = lines("no_check", "def f(x):\n    return x + 1\n")

    def checked(name, test, *body):
        return lines(
            name, f"def f(x):\n    if {test}:\n" + "".join(f"        {line}\n" for line in body) + "    return x + 1\n"
        )

    assert checked("check_1", "x < 0", 'raise SettingError("negative")') == plain
    assert checked("check_2", "x < 0", 'rule = "x >= 0"', 'raise SpaceError(f"{rule}")') == plain
    assert checked("check_3", "x < 0", "x = 0") != plain
    assert checked("check_4", "x < 0", "raise ValueError") != plain  # which a caller may catch
    assert checked("check_5", "(x := abs(x)) < 0", 'raise SettingError("negative")') != plain
    assert checked("check_6", "x < 0", 'raise SettingError("")', "else_ = 1") != plain
    assert lines("check_7", "def f(x):\n    check_sign(x)\n    rules.check_size(x)\n    return x + 1\n") == plain
    assert lines("check_8", "def f(x):\n    x = check_sign(x)\n    return x + 1\n") != plain
    assert lines("check_9", "def f(x):\n    change(x)\n    return x + 1\n") != plain


def test_statements_for_limited_actions_or_known_costs_do_not_change_a_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "SOURCE", tmp_path)

    def lines(name, statement):
        (tmp_path / f"{name}.py").write_text(f"def f(space, x):\n{statement}    return x + 1\n")
        return code_lines(f"conbo.{name}")

    plain = lines("free", "")
    assert lines("limited_1", "    if space.feasible_set is not None:\n        x = cut(x)\n") == plain
    assert lines("limited_2", "    if self.space.feasible_set is not None:\n        return 0\n") == plain
    assert lines("limited_3", "    if space.feasible_set is None:\n        x = cut(x)\n") != plain
    assert lines("limited_4", "    if space.actions is not None:\n        x = cut(x)\n") != plain
    assert (
        lines("limited_5", "    if space.feasible_set is not None:\n        x = 0\n    else:\n        x = 1\n") != plain
    )
    assert lines("limited_6", "    if x > 1 or space.feasible_set is not None:\n        x = cut(x)\n") != plain
    assert lines("priced_1", "    if callable(self.cost):\n        x = cheaper(x)\n") == plain
    assert lines("priced_2", "    if not callable(self.cost):\n        x = cheaper(x)\n") != plain


def test_ignored_methods_do_not_change_a_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "SOURCE", tmp_path)
    ignored = frozenset(f"conbo.saving_{number}.Policy.save" for number in (1, 2, 3))

    def lines(name, body, decorator=""):
        text = f"class Policy:\n{decorator}    def save(self):\n{body}\n    def many(self):\n        return 1\n"
        (tmp_path / f"{name}.py").write_text(text)
        return code_lines(f"conbo.{name}", ignored)

    assert lines("saving_1", "        return 2\n") == lines(
        "saving_2", "        from conbo.files import f\n        f()\n"
    )
    assert lines("saving_3", "        return 3\n", "    @property\n") == lines("saving_1", "        return 2\n")
    assert lines("saving_4", "        return 2\n") != lines("saving_1", "        return 2\n")  # is not ignored


def test_the_choice_of_final_evaluations_counts_only_for_runs_that_have_them(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "SOURCE", tmp_path)
    monkeypatch.setattr(origin, "IGNORED", frozenset())
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "final_round.py").write_text("")

    def fingerprints(name, action):
        text = f"class Learner:\n    def propose_improving(self):\n        return {action}\n"
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setattr(origin, "OF_FINAL_ROUND", frozenset({f"conbo.{name}.Learner.propose_improving"}))
        plain = (f"conbo.{name}",)
        return origin._fingerprint(plain, ()), origin._fingerprint((*plain, origin.FINAL_ROUND), ())

    (plain, final), (plain_later, final_later) = fingerprints("learner_1", 1), fingerprints("learner_2", 2)
    assert plain == plain_later
    assert final != final_later
    assert plain != final


def test_names_of_modules_do_not_change_a_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "SOURCE", tmp_path)

    def fingerprint(**sources):
        for name, text in sources.items():
            (tmp_path / f"{name}.py").write_text(text)
        return origin._fingerprint(tuple(sorted(f"conbo.{name}" for name in sources)), ())

    function, before = (
        "def f(x):\n    return x + 1\n",
        "from conbo.long_name import f as g\nfrom conbo.middle import h\n",
    )
    after = "from conbo.middle import h\nfrom conbo.short import f as g\n\n\n"  # in another order, as the name asks
    old = fingerprint(long_name=function, middle="h = 1\n", first_user=before + "y = g(h)\n")
    assert fingerprint(short=function, middle="h = 1\n", second_user=after + "y = g(h)\n") == old
    assert fingerprint(short=function, middle="h = 1\n", third_user=after + "y = g(2 * h)\n") != old
    assert fingerprint(short=function, middle="h = 1\n", fourth_user=after.replace(" as g", "") + "y = g(h)\n") != old


def test_a_run_is_stale_if_any_part_of_it_has_another_origin():
    task = task_of("synthetic", "branin", "uniform")
    now = origin_of(task.settings, task.method)
    old = Origin("0.1.0", "Linux x86_64", "other")
    assert not is_stale(Run(task.settings, [now]), now.code)
    assert is_stale(Run(task.settings, [old, now]), now.code)
    assert why_stale(Run(task.settings), task) == NO_RECORD
    assert why_stale(Run(task.settings, [now]), task) is None
    assert why_stale(Run(replace(task.settings, recipe="another"), [now]), task) == OTHER_RECIPE
    assert why_stale(Run(task.settings, [old]), task) == "code that they depend on has changed since 0.1.0"


def test_stale_runs_are_listed_by_figure_problem_and_method():
    figure = FIGURES["synthetic"]
    tasks = [task for task in figure.tasks() if task.settings.method == "uniform" and task.settings.seed < 2]
    runs = {task.settings.key: Run(task.settings) for task in tasks}
    first = tasks[0]
    runs[first.settings.key] = Run(first.settings, [origin_of(first.settings, first.method)])
    *_, last, _, said = stale_table([figure], runs).splitlines()
    assert said == f"{len(tasks) - 1} of {len(tasks)} recorded runs are stale."
    assert [cell.strip() for cell in last.strip("|").split("|")] == [
        "synthetic", "rosenbrock:state_distribution=triangular", "uniform", "2", NO_RECORD,
    ]  # fmt: skip
    assert state_counts(figure, runs) == {"made": 1, "stale": len(tasks) - 1}
    now = code_of(first.settings, first.method)
    runs[first.settings.key] = Run(first.settings, [Origin("0.1.0", "Linux x86_64", "other")], confirmed=[now])
    assert state_counts(figure, runs) == {"confirmed": 1, "stale": len(tasks) - 1}
    assert stale_table([figure], {}) == "0 of 0 recorded runs are stale."


@pytest.mark.parametrize("problem", ["ambulances", "assemble_to_order", "cifar_cnn_table"])
def test_tables_of_a_problem_belong_to_its_code(problem):
    assert problem in [path.stem for path in origin._data_files(problem)]
