"""Values of evaluating a point: improvement, knowledge gradient, and integrals over states."""
