"""Acquisition functions: improvement, knowledge gradient, entropy, and their integrals over states."""
