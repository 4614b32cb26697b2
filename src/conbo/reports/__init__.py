"""Writes a study as one self-contained HTML page. Writing needs `conbo[plots]`; reading needs only a browser."""

from conbo.reports.html import report

__all__ = ["report"]
