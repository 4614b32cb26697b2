"""The loop around an optimizer: evaluate, record, go on."""

from conbo.study.study import Study

__all__ = ["Study"]
