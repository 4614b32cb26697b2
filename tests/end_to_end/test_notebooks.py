"""Objects show themselves in a notebook, and its progress bar is that of notebooks."""

from typing import Any

import nbformat
from nbclient import NotebookClient

CELLS = [
    """
import conbo
space = conbo.Space(states={"a<b": conbo.Real(0, 1)}, actions={"x": conbo.Real(0, 1)})
study = conbo.Study(space, method="uniform", name="<i>")
study""",
    "study.run(lambda s, x: -(s['a<b'] - x['x']) ** 2, evaluations=8)",
    "study",
    "study.space",
    "policy = study.policy(); policy",
    "policy.predict({'a<b': 0.5})",
]


def test_objects_show_themselves() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=300).execute()
    empty, run, *others = (cell["outputs"] for cell in notebook.cells)
    assert "There is no policy yet." in shown(empty)
    assert "<i>" not in shown(empty)
    assert "Study &lt;i&gt;" in shown(empty)
    bars = [output for output in run if "application/vnd.jupyter.widget-view+json" in output.get("data", {})]
    assert len(bars) == 1
    learned, space, policy, prediction = map(shown, others)
    for text in ("8 completed", "uniform", "maximize", "<svg", "a&lt;b"):
        assert text in learned
    assert "<td>state</td><td>a&lt;b</td><td>Real(low=0.0, high=1.0, log=False)</td>" in space
    assert "x (0 to 1) over a&lt;b (0 to 1)" in policy
    assert "expected reward" in prediction


def shown(outputs: list[Any]) -> str:
    """The HTML of the last output of a cell."""
    html: str = outputs[-1]["data"]["text/html"]
    return html
