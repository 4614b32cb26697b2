"""How Sphinx builds these pages: `make docs`."""

import conbo

project = "conbo"
author = "The conbo developers"
copyright = "The conbo developers"
version = release = conbo.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"conbo {release}"
html_show_sphinx = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

default_role = "literal"  # docstrings use single backticks for code, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures' aliases say more than what they stand for
autodoc_preserve_defaults = True
