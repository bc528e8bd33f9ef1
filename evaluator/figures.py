"""Pictures: the one place where matplotlib comes in, and how all of them look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distrl.core.errors import MissingDependency

INK, LINE = "#17191c", "#e4e5e2"


def new_figure(width: float, height: float) -> Any:
    """An empty figure of that many inches.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(
            "Pictures need the package matplotlib.", "Install the extra: pip install 'distrl[report]'."
        ) from error
    return Figure(figsize=(width, height), dpi=160, layout="constrained")


def finish(figure: Any, file: Path, title: str) -> None:
    """Gives the figure and its axes their looks, and writes it as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=0, labelsize=9)
        axis.set_axisbelow(True)
    figure.suptitle(title, fontsize=13, fontweight="bold", color=INK, x=0.01, ha="left")
    file.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(file))
