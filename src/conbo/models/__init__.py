"""Gaussian processes: kernels, fits, posteriors, and their compiled inner loops.

=============================  ====================================================================================
question                       file
=============================  ====================================================================================
which kernels there are        `kernels.py`, `category_kernels.py`, `main_effects.py`, `profiles.py`, `structures.py`
how hyperparameters are found  `fit.py`, `modes.py`, `log_posterior.py` (priors), `schedule.py` (how often)
what a fitted model can do     `posterior.py` (the protocol), `exact.py`, `approximate.py`, `botorch_model.py`
how models are averaged        `mixture.py`, `hyperparameter_average.py` (which corrects the winner's curse)
how data are transformed       `warp.py` (inputs), `output_maps.py` and `transformed.py` (rewards)
how clipped rewards are seen   `truncation.py` (formulas), `censored.py` (posterior), `censored_modes.py` (fit)
how noise is modeled           `heteroscedastic_noise.py`, `seed_effects.py` (common random numbers)
which loops are compiled       `compiled*.py`, which call `conbo.loops`
=============================  ====================================================================================
"""
