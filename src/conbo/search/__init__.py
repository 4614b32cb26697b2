"""Pools of actions and likely best actions, from which searches start."""
