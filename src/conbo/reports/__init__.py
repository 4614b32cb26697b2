"""A study as one self-contained HTML page. Making the page needs the extra `plots`; showing it needs only a browser."""

from conbo.reports.html import report

__all__ = ["report"]
