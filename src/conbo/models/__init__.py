"""Gaussian processes: kernels, fits, posteriors, and their compiled inner loops.

=============================  ====================================================================================
question                       file
=============================  ====================================================================================
which kernels there are        `kernels.py`, `category_kernels.py`, `main_effects.py`, `profiles.py`, `structures.py`
how hyperparameters are found  `fit.py`, `modes.py`, `log_posterior.py` (priors), `schedule.py` (how often)
what a fitted model can do     `posterior.py` (the protocol), `exact.py`, `approximate.py`, `botorch_model.py`
how models are averaged        `mixture.py`, `mixture_gains.py`, `hyperparameter_average.py` (for predictions)
how data are transformed       `warp.py` (inputs), `output_maps.py` and `transformed.py` (rewards)
how clipped rewards are used   `truncation.py` (formulas), `censored.py` (posterior), `censored_modes.py` (fit)
how noise is modeled           `heteroscedastic_noise.py`, `seed_effects.py` (common random numbers)
which loops are compiled       `compiled*.py`, which call `conbo.loops`
=============================  ====================================================================================

Words that recur in these files:

==================  ==========================================================================================
word                meaning
==================  ==========================================================================================
scaled inputs       states or actions as a kernel sees them: actions warped, categories one-hot, all divided by
                    lengthscales and multiplied by `Profile.unit`; correlations depend on their distances
width               number of columns of a state's, or of an action's, scaled inputs
profile             a stationary correlation, such as Matérn-5/2, as a function of a scaled distance
candidate           a point that may be evaluated next
look-ahead          what the posterior would be after one more reward, at a candidate
line                a posterior mean after one more reward, as a function of z: mean + slope z, where the reward
                    is z standard deviations above its prediction
node                a value of z for which the action with the highest line is sought
gain                the expected rise of a state's highest posterior mean: the knowledge gradient in this state
basin               a local maximum of the posterior mean over the actions of one state
family              a kernel whose hyperparameters are still to be fitted
loading             a hyperparameter that may be negative
pullback            a function that converts a gradient with respect to covariances into one with respect to
                    hyperparameters (a vector-Jacobian product)
mode                a local maximum of the posterior density of a model's hyperparameters
member              one of several models whose posteriors are averaged
site                a Gaussian pseudo-observation that replaces a clipped reward (expectation propagation)
==================  ==========================================================================================
"""
