"""The variants of methods and problems that the figures compare, each with a label of its own.

A method may have another model or another number of samples; a problem may have a narrower range of states.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from conbo.acquisition.integral_over_states import ConBO, StateValueRecipe
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG, MonteCarloKG
from conbo.experiments.alternatives import GRID_SIZES
from conbo.experiments.botorch_contextual import BotorchContextual
from conbo.experiments.contestants import Entry
from conbo.experiments.grid_search import GridSearch
from conbo.gaussian_process import GaussianProcess
from conbo.method_table import DEFAULT_METHOD, METHODS, PUBLISHED_MODEL, Method
from conbo.proposals.maximizer import Maximizer

WIDTHS = (0.0, 0.25, 0.5, 0.75, 1.0)  # shares of their full range that states cover
# numbers n_z of actions or values of z with which each knowledge gradient is run
KNOWLEDGE_GRADIENTS = {"kg-discrete": (3, 5, 11, 21), "kg-monte-carlo": (3, 5, 11, 21), "kg-hybrid": (3, 5, 11, 21)}


def named(*names: str) -> list[Method]:
    """The built-in methods with these names."""
    return [METHODS[name] for name in names]


def width_problem(function: str, width: float) -> str:
    """The name of the variant of the problem `function` in which states cover the share `width` of their full range."""
    return function if width == 1 else f"{function}:width={width:g}"


def swept_label(name: str, n_z: int) -> str:
    """The label, such as "kg-hybrid n_z=5", of a knowledge gradient that is estimated from n_z actions or values of z.

    z is the standardized new observation.
    """
    return f"{name} n_z={n_z}"


def with_model(name: str, model: GaussianProcess) -> Method:
    """A built-in method with a model other than its own, labeled `method/profile`; see `GaussianProcess.profile`."""
    return replace(METHODS[name], name=f"{name}/{model.profile}", model=model)


def with_our_model(*names: str) -> list[Method]:
    """The built-in methods with these names, with the model of the default method instead of their own."""
    return [with_model(name, GaussianProcess()) for name in names]


def with_wider_prior(*names: str) -> list[Method]:
    """The built-in methods with these names, with the papers' model (`PUBLISHED_MODEL`) and a wider prior on the noise.

    Their labels are `method noise=auto`: the prior expects anything from small to large noise, and the noise may be
    heteroscedastic (see `GaussianProcess.noise`).
    """
    any_noise = replace(PUBLISHED_MODEL, noise="auto")
    return [replace(method, name=f"{method.name} noise=auto", model=any_noise) for method in named(*names)]


def with_either_prior(*names: str) -> list[Method]:
    """The built-in methods with these names as they are, followed by the same ones `with_wider_prior`."""
    return [*named(*names), *with_wider_prior(*names)]


def global_methods() -> list[Method]:
    """The methods that are compared on problems without states (global optimization).

    They are conbo's default method, Thompson sampling, and three estimates of the knowledge gradient. Each estimate is
    run with several values of n_z, which `KNOWLEDGE_GRADIENTS` lists; see `swept_label`. The hybrid estimate (with its
    usual n_z) and Thompson sampling are also run with the model of the default method.
    """
    recipes: dict[str, Callable[[int], StateValueRecipe]] = {
        "kg-discrete": DiscreteKG,
        "kg-monte-carlo": MonteCarloKG,
        "kg-hybrid": partial(HybridKG, spread=1.0, estimate="lower"),
    }
    swept = [
        replace(METHODS[name], name=swept_label(name, n_z), proposal=Maximizer(ConBO(recipes[name](n_z))))
        for name, sizes in KNOWLEDGE_GRADIENTS.items()
        for n_z in sizes
    ]
    return [*swept, *named("thompson", DEFAULT_METHOD), *with_our_model("kg-hybrid", "thompson")]


def alternatives(problem: str) -> list[Entry]:
    """The alternatives to conbo that are run on a problem: random search with conbo's model, and other libraries."""
    grids = [GridSearch(library, k) for library, sizes in GRID_SIZES.items() for k in sizes[problem]]
    return [*with_our_model("uniform"), BotorchContextual(), *grids]
