"""How Sphinx builds these pages: `make docs`."""

import conbo

project = "conbo"
author = "The conbo developers"
copyright = "The conbo developers"
version = release = conbo.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"conbo {release}"
html_show_sphinx = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

default_role = "literal"  # docstrings use single backticks for code, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "description"  # beside the parameters: in signatures they would hide the names
autodoc_typehints_description_target = "documented_params"
autodoc_type_aliases = {
    name: name
    for name in (
        "Array",
        "Cost",
        "Direction",
        "Feasible",
        "KernelReader",
        "ModelLike",
        "RecipeLike",
        "Storage",
    )
}
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_preserve_defaults = True
