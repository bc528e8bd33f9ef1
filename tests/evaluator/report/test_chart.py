"""Chart geometry: round ticks, points in their places, means and thinning that keep the ends."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.evaluator.report.chart import (
    Curve,
    Line,
    curve_charts,
    draw,
    make_axis,
    nice_step,
    rolling_mean,
    short_number,
    thin,
)


@settings(deadline=None)
@given(st.floats(-1e5, 1e5), st.floats(1e-3, 1e5))
def test_ticks_are_round_few_and_on_the_axis(low: float, span: float) -> None:
    axis = make_axis(low, low + span)
    assert 1 <= len(axis.ticks) <= 6
    assert all(-1e-6 <= tick.position <= 100 + 1e-6 for tick in axis.ticks)
    assert float(f"{nice_step(span, 5):e}".split("e")[0]) in (1.0, 2.0, 2.5, 5.0)
    assert make_axis(low, low).low < low < make_axis(low, low).high


def test_paths_put_points_where_they_belong() -> None:
    x, y = make_axis(0.0, 10.0), make_axis(0.0, 1.0)
    lines = [
        Line([(0.0, 0.0), (5.0, 0.5), (10.0, 1.0)], "line", "a", "success"),
        Line([(10.0, 0.0)], "dots", "b"),
        Line([], "band", "c", "nothing"),
    ]
    chart = draw("title", lines, x, y)
    assert chart.paths == (
        ("line", "a", "M0.0 1000.0L500.0 500.0L1000.0 0.0"),
        ("dots", "b", "M1000.0 1000.0h0"),
    )
    assert [line.label for line in chart.legend] == ["success"]


def test_a_learning_curve_has_a_band_around_its_validations() -> None:
    curve = Curve([(0.0, 0.0), (60.0, 1.0)], [(0.0, 0.5), (60.0, 0.5)], [4, 4])
    (chart,) = curve_charts(
        "Success",
        [("elapsed_s", "Time", "minutes")],
        lambda column: curve,
        ("validation", "training", "start"),
        bounds=lambda value, n: (value - 1 / n, value + 1 / n),
        y=make_axis(0.0, 1.0),
    )
    band = {style: data for style, _, data in chart.paths}["band"]
    assert band == "M0.0 250.0L1000.0 250.0L1000.0 750.0L0.0 750.0"
    assert (chart.title, chart.short) == ("Success over minutes", "Time")
    assert [tick.label for tick in chart.x_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_rolling_mean_by_hand() -> None:
    points = [(float(i), float(v)) for i, v in enumerate([1, 2, 3, 10])]
    assert rolling_mean(points, 2) == [(0.0, 1.0), (1.0, 1.5), (2.0, 2.5), (3.0, 6.5)]


def test_thinning_keeps_the_ends() -> None:
    points = [(float(i), 0.0) for i in range(1000)]
    thinned = thin(points, 100)
    assert len(thinned) == 100
    assert (thinned[0], thinned[-1]) == (points[0], points[-1])
    assert thin(points[:5], 100) == points[:5]


def test_numbers_are_short() -> None:
    numbers = {0: "0", 5e-19: "0", 0.25: "0.25", 1250: "1,250", 12500: "12.5k", 3e6: "3M", 1e-5: "1.0e-05"}
    assert {value: short_number(value) for value in numbers} == numbers
