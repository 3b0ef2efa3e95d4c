"""The plots: a heatmap of a matrix, lines over a common axis, histograms of values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def pyplot() -> Any:
    """matplotlib's; it takes half a second to load, which only those who plot should wait for."""
    import matplotlib

    matplotlib.use("Agg")  # files only; no window system is needed
    from matplotlib import pyplot

    return pyplot


def heatmap(matrix: list[list[float]], path: Path, title: str, axis: str) -> None:
    """A square matrix with entries in [0, 1], row and column 0 in the upper left, each value in its cell."""
    plt, size = pyplot(), len(matrix)
    figure, axes = plt.subplots(figsize=(max(3.6, 0.45 * size + 1.6),) * 2, layout="constrained")
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
    axes.set(title=title, xlabel=axis, ylabel=axis, xticks=range(size), yticks=range(size))
    if size <= 15:
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                colour = "black" if value > 0.6 else "white"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, shrink=0.8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


Line = tuple[Sequence[float], Sequence[float]]


def lines(series: dict[str, Line], path: Path, title: str, x: str, y: str, marked: Sequence[float] = (),
          right: dict[str, Line] | None = None, log: bool = False) -> None:  # fmt: skip
    """Named lines of (x, y) values; vertical marks at the x values of `marked`; `right`: one line on its own axis;
    `log`: both axes in powers of two."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for name, (xs, ys) in series.items():
        axes.plot(xs, ys, marker="o" if len(xs) <= 50 else "", markersize=4, label=name)
    for position in marked:
        axes.axvline(position, color="grey", linestyle=":", linewidth=1)
    axes.set(title=title, xlabel=x, ylabel=y)
    if log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for which in (axes.xaxis, axes.yaxis):
            which.set_major_formatter("{x:g}")
    else:
        axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    if len(series) > 1:
        axes.legend()
    for name, (xs, ys) in (right or {}).items():
        other = axes.twinx()
        other.plot(xs, ys, marker="s", markersize=4, linestyle="--", color="C1")
        other.set_ylabel(f"{name} (dashed)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def histograms(series: dict[str, np.ndarray], path: Path, title: str, x: str) -> None:
    """The density of each named set of values over one axis, its outermost thousandth on either side left out."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    ends = [np.quantile(values, (0.001, 0.999)) for values in series.values()]
    bins = list(np.linspace(min(low for low, _ in ends), max(high for _, high in ends), 121))
    for name, values in series.items():
        axes.hist(values, bins=bins, density=True, histtype="step", label=name)
    axes.set(title=title, xlabel=x, ylabel="density")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)
