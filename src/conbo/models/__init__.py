"""Gaussian processes: kernels, fitting, posteriors, and their fast inner loops."""
