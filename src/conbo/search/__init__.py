"""Searches over actions that all states share."""
