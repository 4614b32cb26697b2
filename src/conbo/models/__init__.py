"""From data to beliefs: kernels, fitting, posteriors, and their fast inner loops."""
