"""A study as one self-contained HTML page. Making it needs the extra `plots`, showing it only a browser."""

from conbo.reports.html import report

__all__ = ["report"]
