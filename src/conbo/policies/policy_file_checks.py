"""Checks the record of a saved policy field by field; if the record is damaged, an error names the field.

The bounds on numbers are far wider than any fit needs, but narrow enough that all computed values stay finite.
"""

import json
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import Any

from conbo.errors import RecordError
from conbo.models.profiles import PROFILES
from conbo.models.relative_family import LARGEST_WEIGHT
from conbo.prior_belief import with_study
from conbo.record_fields import Fields, checksum, parse_json, shown
from conbo.spaces import Categorical, Feasible, Space

FORMAT = "conbo-policy-3"  # the current format, in which a policy may have several models
ONE_MODEL, FIRST_FORMAT = "conbo-policy-2", "conbo-policy-1"  # FIRST_FORMAT is the format of conbo 0.1

LENGTHSCALES = (1e-6, 1e6)
VARIANCES = (0.0, 1e9)
LEAST_VARIANCE = 1e-9  # least sum of the variances of a kernel's terms
LARGEST_NOISE = 1e200  # largest variance of the noise of a standardized reward
LEAST_BETWEEN = 1e-9  # least absolute correlation of the effects of two listed seeds
LARGEST_LOADING = 1e6  # of a multi-task kernel
LARGEST_LOG_EXPONENT = 10.0  # of an input warping
LARGEST_SLOPE = 1e3  # of the log variance of heteroscedastic noise
MOST_MEMBERS = 40  # largest number of models
WIDTHS = (1e-30, 1e12)  # smallest and largest width of a reward tail, and scale of mapped rewards
LARGEST_SHIFT = 1e12  # largest absolute shift of mapped rewards
LARGEST_LIMIT = sys.float_info.max  # largest absolute limit of standardized rewards, which may be far from all rewards
ROUNDING = 1e-9  # distance by which points may be outside the unit cube
LARGEST_STANDARDIZED = 1e6  # largest absolute value of a typical standardized reward
LARGEST_OUTLIER = 1e100  # the same for any reward, because one that came after the last fit may be an outlier
LARGEST_SCALE = 10.0  # largest scale of the rewards, in units of the largest absolute reward
MOST_OBSERVATIONS = 1_000_000  # reading more would take minutes
MOST_CLIPPED = 2000  # largest number of rewards in a model of clipped rewards, whose cost is cubic in it
MOST_CANDIDATES = 4096  # largest number of candidate actions; their correlations with each other take 0.1 GB
MOST_STEPS = 100_000  # largest number of iterations of a policy gradient
MOST_CONSTRAINTS = 100
CONFIDENCES = (5e-324, 1 - 2**-53)  # all floats strictly between 0 and 1
LARGEST_THRESHOLD = 1e300  # largest absolute standardized slack

KERNELS = {  # names of the fields that hold the variances of each built-in kernel
    "product": ("outputscale",),
    "trend": ("trend", "difference", "constant"),
    "multi-task": ("loadings", "own", "constant"),
}

MAIN_EFFECTS = "main-effects"  # type of a kernel that adds main effects to a built-in kernel, or to the user's own
# names of the fields of each kind of output warping
OUTPUTS = {"low-tail": ("pivot", "width", "shift", "scale"), "limits": ("low", "high")}

_CONTENT = ("space", "direction", "shift", "scale", "points", "rewards", "reward_noise")
_MODEL = ("kernel", "constant", "noise")


def sealed(content: Mapping[str, Any], feasible: Feasible | None = None) -> dict[str, Any]:
    """Add the format, the version of conbo and a checksum to the content of a policy's record; return the record.

    The record is a dict that JSON can hold, and is checked before it is returned. `feasible` is the user's function
    that says which actions are feasible, or None. The check needs this function, because the record holds only the
    function's name.
    """
    record = {"format": FORMAT, "conbo": version("conbo"), **content}
    record |= {"checksum": checksum(record)}
    kernels = [member["kernel"] for member in content["members"]]
    kernels = [kernel["interaction"] if kernel.get("type") == MAIN_EFFECTS else kernel for kernel in kernels]
    own_kernel = any(k.get("type") not in KERNELS or k.get("profile") not in PROFILES for k in kernels)
    check(parse_json(json.dumps(record)), own_kernel, feasible)
    return record


def members(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the records of all models in the record of a policy; in earlier formats, there is a single model."""
    listed: list[Mapping[str, Any]] | None = record.get("members")
    return [{"weight": 1.0, **{name: record[name] for name in _MODEL}}] if listed is None else listed


def check(value: object, own_kernel: bool = False, feasible: Feasible | None = None) -> Space:
    """Check the record of a policy, which was read from JSON, and return its space.

    Raises RecordError if the format is unknown, the checksum does not match, or a field is missing or invalid; the
    message names the field. With `own_kernel`, the records of kernels are not checked here, but by the user's function
    that reads them. `feasible` is the space's own function that says which actions are feasible, if it has one; the
    record holds only the function's name.
    """
    record = Fields.of(value)
    formats = (FORMAT, ONE_MODEL, FIRST_FORMAT)
    if (given := record.record.get("format")) not in formats:
        writer = f", written by conbo {record.record['conbo']}" if record.has("conbo") else ""
        rule = f"a policy file must be of one of the formats {', '.join(formats)}"
        raise RecordError(f"{rule}, but got {given!r}{writer}.")
    model = ("members",) if given == FORMAT else _MODEL
    if given == FIRST_FORMAT:
        record.only(("format", *_CONTENT, *model), optional=("policy",))
        warnings.warn("this policy was saved by conbo 0.1, without a checksum: save it again.", stacklevel=5)
    else:
        _check_seal(record, model)
    space = Space.from_dict(record.value("space"), feasible)
    record.text("direction", ("maximize", "minimize"))
    prior = _check_prior(record, space) if "prior" in record.record else []
    _check_observations(record, space.n_state_dims + space.n_action_dims, prior)
    modeled = with_study(space) if prior else space
    if given == FORMAT:
        _check_members(record, "members", modeled, own_kernel)
        if "predictive" in record.record:
            _check_members(record, "predictive", modeled, own_kernel)
    else:
        _check_model(record, modeled, own_kernel)
    if record.has("policy"):
        _check_recipe(record.fields("policy"), space)
    if "constraints" in record.record:
        _check_constraints(record.fields("constraints"), space)
    return space


def _check_constraints(learned: Fields, space: Space) -> None:
    learned.only(("confidence", "outcomes", "success")).number("confidence", *CONFIDENCES)
    items = learned.items("outcomes")
    if len(items) > MOST_CONSTRAINTS or not (items or learned.has("success")):
        rule = f"{learned.path('outcomes')} must be at most {MOST_CONSTRAINTS} constraints, and one without `success`"
        raise RecordError(f"{rule}, but are {len(items)}.")
    constraints = [Fields.of(item, f"{learned.where}.outcomes[{place}]") for place, item in enumerate(items)]
    if learned.has("success"):
        constraints.append(learned.fields("success"))
    for one in constraints:
        one.only(("name", "threshold", "points", "slacks", "model"), optional=("prior", "predictive")).text("name")
        one.number("threshold", -LARGEST_THRESHOLD, LARGEST_THRESHOLD)
        slacks = one.numbers("slacks", None, -LARGEST_OUTLIER, LARGEST_OUTLIER)
        prior = _check_prior(one, space) if "prior" in one.record else []
        least = 0 if prior else 1
        if not least <= len(slacks) <= MOST_OBSERVATIONS:
            rule = f"{one.path('slacks')} must be {least} to {MOST_OBSERVATIONS} numbers"
            raise RecordError(f"{rule}, but are {len(slacks)}.")
        one.rows("points", len(slacks), space.n_state_dims + space.n_action_dims, -ROUNDING, 1 + ROUNDING)
        modeled = with_study(space) if prior else space
        _check_model(one.fields("model").only(_MODEL), modeled, own_kernel=False)
        if "predictive" in one.record:
            _check_members(one, "predictive", modeled, own_kernel=False)


def _check_seal(record: Fields, model: Collection[str]) -> None:
    optional = ("seeds", "measured", "constraints", "prior", *(["predictive"] if "members" in model else []))
    record.only(("format", "conbo", "checksum", "policy", *_CONTENT, *model), optional)
    writer, expected = record.text("conbo"), record.text("checksum")
    content = {name: value for name, value in record.record.items() if name != "checksum"}
    if checksum(content) != expected:
        raise RecordError(f"`checksum` must be that of the record, but is not: what conbo {writer} wrote has changed.")


def _check_prior(record: Fields, space: Space) -> list[float]:
    """Check the observations of an earlier study in the field `prior`, and return their standardized rewards."""
    prior = record.fields("prior").only(("points", "rewards", "noise"))
    rewards = prior.numbers("rewards", None, -LARGEST_STANDARDIZED, LARGEST_STANDARDIZED)
    if not 1 <= len(rewards) <= MOST_OBSERVATIONS:
        raise RecordError(f"{prior.path('rewards')} must be 1 to {MOST_OBSERVATIONS} numbers, but are {len(rewards)}.")
    prior.rows("points", len(rewards), space.n_state_dims + space.n_action_dims, -ROUNDING, 1 + ROUNDING)
    if prior.has("noise"):
        prior.numbers("noise", len(rewards), 0, LARGEST_NOISE)
    return rewards


def _check_observations(record: Fields, n_dims: int, prior: Sequence[float]) -> None:
    rewards, least = record.numbers("rewards"), 0 if prior else 1
    if not least <= len(rewards) <= MOST_OBSERVATIONS:
        raise RecordError(f"`rewards` must be {least} to {MOST_OBSERVATIONS} numbers, but are {len(rewards)}.")
    record.rows("points", len(rewards), n_dims, -ROUNDING, 1 + ROUNDING)
    shift, scale = record.number("shift"), record.number("scale", least=5e-324)
    both = [*rewards, *(shift + scale * reward for reward in prior)]
    standardized = [abs(reward / scale - shift / scale) for reward in both]
    fits = all(reward <= LARGEST_OUTLIER for reward in standardized) and median(standardized) <= LARGEST_STANDARDIZED
    largest = max(map(abs, both)) or 1.0  # the scale of rewards that are all the same
    if not fits or scale / largest > LARGEST_SCALE:
        raise RecordError(f"`shift` and `scale` must be those of the rewards, but got shift={shift}, scale={scale}.")
    if record.has("seeds"):
        seeds = record.fields("seeds").only(("values", "total"))
        seeds.wholes("values", len(rewards))
        if seeds.has("total"):
            seeds.whole("total", least=2)
    if record.has("reward_noise"):
        record.numbers("reward_noise", len(rewards), least=0)
    if record.has("measured"):
        measured = record.fields("measured")
        for name in measured.record:
            outcome = measured.fields(name).only(("rows", "values"))
            outcome.numbers("values", len(outcome.wholes("rows", most=len(rewards) - 1)))


def _check_members(record: Fields, name: str, space: Space, own_kernel: bool) -> None:
    items = record.items(name)
    if not 1 <= len(items) <= MOST_MEMBERS:
        raise RecordError(f"`{name}` must be 1 to {MOST_MEMBERS} models, but are {len(items)}.")
    total = 0.0
    for place, item in enumerate(items):
        optional = ("output", "floor", "seed_effect", "shear")
        member = Fields.of(item, f"{name}[{place}]").only(("weight", *_MODEL), optional=optional)
        total += member.number("weight", 5e-324, 1 + ROUNDING)
        _check_model(member, space, own_kernel)
        if "output" in member.record:
            _check_output(member.fields("output"))
        if "floor" in member.record:
            _check_floor(member, record)
        if "seed_effect" in member.record:
            _check_seed_effect(member, record, space)
        if "shear" in member.record:
            _check_shear(member, space)
    if abs(total - 1) > ROUNDING:
        raise RecordError(f"the weights of `{name}` must add up to 1, but add up to {total}.")


def _check_model(model: Fields, space: Space, own_kernel: bool) -> None:
    model.number("constant", -LARGEST_STANDARDIZED, LARGEST_STANDARDIZED)
    kernel = model.fields("kernel")
    if kernel.record.get("type") == MAIN_EFFECTS:
        _check_main_effects(kernel, space, own_kernel)
    elif not own_kernel:
        _check_kernel(kernel, space)
    _check_noise(model, space)


def _check_output(output: Fields) -> None:
    kind = output.text("type", tuple(OUTPUTS))
    if kind == "limits":
        _check_limits(output.only(("type", *OUTPUTS[kind]), optional=("tail",)))
        return
    output.only(("type", *OUTPUTS[kind]), optional=("power",))
    output.number("pivot", -LARGEST_STANDARDIZED, LARGEST_STANDARDIZED)
    output.number("shift", -LARGEST_SHIFT, LARGEST_SHIFT)
    for name in ("width", "scale"):
        output.number(name, *WIDTHS)
    if "power" in output.record:  # policies of earlier versions have none
        output.number("power", 0, 1)


def _check_limits(output: Fields) -> None:
    names = [name for name in OUTPUTS["limits"] if output.value(name) is not None]
    given = [output.number(name, -LARGEST_LIMIT, LARGEST_LIMIT) for name in names]
    if not given or (len(given) == 2 and not given[0] < given[1]):
        raise RecordError(f"{output.path('low')} must be below the high limit, but got {shown(output.record)}.")
    if "tail" in output.record:
        tail = output.fields("tail")
        if tail.value("type") == "limits":
            raise RecordError(f"{tail.path('type')} must be low-tail, but got 'limits'.")
        _check_output(tail)


def _check_floor(member: Fields, record: Fields) -> None:
    member.number("floor", -LARGEST_SHIFT, LARGEST_SHIFT)
    output = member.record.get("output")
    if output is None or output["type"] != "limits" or "tail" in output:
        raise RecordError(f"{member.path('output')} must be limits for {member.path('floor')}, but is {shown(output)}.")
    if len(record.items("rewards")) > MOST_CLIPPED:
        raise RecordError(f"`rewards` must be at most {MOST_CLIPPED} for {member.path('floor')}, but are more.")


def _check_shear(member: Fields, space: Space) -> None:
    most = LARGEST_WEIGHT + ROUNDING
    member.rows("shear", space.n_action_dims, space.n_state_dims, -most, most)
    other = next((name for name in ("floor", "seed_effect") if name in member.record), None)
    if other is not None:
        raise RecordError(f"{member.path('shear')} must not be there with {member.path(other)}, but is.")
    if space.feasible_set is not None:
        raise RecordError(f"{member.path('shear')} must not be there in a space with limits, but is.")


def _check_seed_effect(member: Fields, record: Fields, space: Space) -> None:
    if not record.has("seeds"):
        raise RecordError(f"`seeds` must be there for {member.path('seed_effect')}, but are missing.")
    member.number("noise", 0, LARGEST_NOISE)  # the same everywhere
    effect = member.fields("seed_effect").only(("constant", "function", "between"))
    constant = effect.number("constant", *VARIANCES)
    if -LEAST_BETWEEN < effect.number("between", -1, 0) < 0:
        raise RecordError(f"{effect.path('between')} must be 0 or at most -{LEAST_BETWEEN:g}, but is closer to 0.")
    if effect.has("function"):
        function = effect.fields("function")
        function.text("type", ("product",))
        _check_kernel(function, space)
    elif constant < LEAST_VARIANCE:
        raise RecordError(f"{effect.path('constant')} must not be zero where seeds have no function, but is.")


def _check_noise(record: Fields, space: Space) -> None:
    if not isinstance(record.value("noise"), Mapping):
        record.number("noise", 0, LARGEST_NOISE)
        return
    noise = record.fields("noise").only(("log_level", "slopes"))
    features = sum(max(count, 1) for count in space.state_categories + space.action_categories)
    noise.number("log_level", -LARGEST_SLOPE, LARGEST_SLOPE)
    noise.numbers("slopes", features, -LARGEST_SLOPE, LARGEST_SLOPE)


def _check_main_effects(kernel: Fields, space: Space, own_kernel: bool) -> None:
    kernel.only(("type", "interaction", "action_variance", "state_variance", "effect_lengthscales"))
    interaction = kernel.fields("interaction")
    if not own_kernel:
        _check_kernel(interaction, space)
    for name in ("action_variance", "state_variance"):
        kernel.number(name, *VARIANCES)
    # the main effect depends on all state columns, except for categories whose covariances are in the kernel's tables
    looked_up = interaction.record.get("type") != "product"
    count = sum(not (choices and looked_up) for choices in space.state_categories)
    if not kernel.numbers("effect_lengthscales", None if own_kernel else count, *LENGTHSCALES):
        raise RecordError(f"{kernel.path('effect_lengthscales')} must not be empty, but is.")


def _check_kernel(kernel: Fields, space: Space) -> None:
    common = ("type", "profile", "state_lengthscales", "action_lengthscales")
    for name, known in (("type", KERNELS), ("profile", PROFILES)):
        if (given := kernel.text(name)) not in known:
            rule = f"{kernel.path(name)} must be one of {', '.join(known)}, but got {given!r}"
            raise RecordError(f"{rule}: read a kernel of your own with conbo.load_policy(..., kernel=...).")
    kind = kernel.text("type")
    kernel.only((*common, *KERNELS[kind]), optional=("warp",))
    kernel.numbers("state_lengthscales", space.n_state_dims, *LENGTHSCALES)
    kernel.numbers("action_lengthscales", space.n_action_dims, *LENGTHSCALES)
    if kernel.has("warp"):
        warp = kernel.fields("warp").only(("log_a", "log_b"))
        for name in ("log_a", "log_b"):
            warp.numbers(name, space.n_action_dims, -LARGEST_LOG_EXPONENT, LARGEST_LOG_EXPONENT)
    choices = [count for count in space.state_categories if count]
    if kind != "product" and not choices:
        raise RecordError(f"{kernel.path('type')} must be 'product' where no state is categorical, but got {kind!r}.")
    if kind == "multi-task":
        _check_tasks(kernel, choices)
    elif sum(kernel.number(name, *VARIANCES) for name in KERNELS[kind]) < LEAST_VARIANCE:
        raise RecordError(f"{kernel.path(KERNELS[kind][0])} must not be zero, as all variances of the kernel are.")


def _check_tasks(kernel: Fields, choices: list[int]) -> None:
    kernel.number("constant", *VARIANCES)
    all_loadings, all_own = kernel.items("loadings", len(choices)), kernel.items("own", len(choices))
    for count, loadings, own in zip(choices, all_loadings, all_own, strict=True):
        column = Fields({"loadings": loadings, "own": own}, kernel.where)
        rows = column.rows("loadings", count, None, -LARGEST_LOADING, LARGEST_LOADING)
        if len({len(row) for row in rows}) > 1:
            raise RecordError(f"{column.path('loadings')} must have rows of one length, but has others.")
        variances = column.numbers("own", count, *VARIANCES)
        if min(v + sum(w * w for w in row) for v, row in zip(variances, rows, strict=True)) < LEAST_VARIANCE:
            raise RecordError(f"{column.path('own')} must not be zero where the loadings are zero, too.")


def _check_recipe(recipe: Fields, space: Space) -> None:
    kind = recipe.text("type", ("model", "nearest-neighbors", "policy-gradient", "single-action", "on-steps"))
    if kind == "model":
        recipe.only(("type", "candidates", "starts", "similar"))
        for name in ("candidates", "starts"):
            recipe.whole(name, 1, MOST_CANDIDATES)
        recipe.number("similar", 1e-9, 1)
    elif kind == "nearest-neighbors":
        recipe.only(("type", "k")).whole("k", 1)
    elif kind == "policy-gradient":
        recipe.only(("type", "spread", "starts", "iterations"))
        recipe.number("spread", 1e-3, 1e6)
        recipe.whole("starts", 1, MOST_CANDIDATES)
        recipe.whole("iterations", 0, MOST_STEPS)
    elif kind == "on-steps":
        _check_steps(recipe.only(("type", "columns", "first", "step")), space)
    elif recipe.only(("type", "action")).has("action"):
        recipe.numbers("action", space.n_action_dims, -ROUNDING, 1 + ROUNDING)


def _check_steps(recipe: Fields, space: Space) -> None:
    parameters = list(space.actions.values())
    columns = recipe.wholes("columns", None, 0, len(parameters) - 1)
    first = recipe.numbers("first", len(columns))
    recipe.numbers("step", len(columns), least=5e-324)
    for column, value in zip(columns, first, strict=True):
        parameter = parameters[column]
        if isinstance(parameter, Categorical) or not parameter.low <= value <= parameter.high:
            raise RecordError(
                f"{recipe.path('first')} must be in the range of a number, but got {value} for {parameter}."
            )
