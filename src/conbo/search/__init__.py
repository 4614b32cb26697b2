"""Searches over actions that every state shares."""
