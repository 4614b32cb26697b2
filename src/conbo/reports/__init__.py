"""A study as one page that needs nothing else: the extra `plots` makes it, a browser shows it."""

from conbo.reports.html import report

__all__ = ["report"]
