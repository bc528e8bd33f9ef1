"""Buckets: their edges, their names, and histograms over them."""

from __future__ import annotations

import pytest

from distrl.core.buckets import MINUTES, VERSIONS, Buckets, Histogram


def test_versions_fall_into_powers_of_two() -> None:
    assert VERSIONS.labels == ("0", "1", "2-3", "4-7", "8-15", "16-31", "32+")
    edges = {0: "0", 1: "1", 2: "2-3", 3: "2-3", 4: "4-7", 7: "4-7", 8: "8-15", 15: "8-15", 16: "16-31"}
    edges |= {31: "16-31", 32: "32+", 10**6: "32+", -1: "0"}
    assert [VERSIONS.labels[i] for i in VERSIONS.index(list(edges))] == list(edges.values())


def test_minutes_have_no_gaps() -> None:
    assert MINUTES.labels == ("0-1", "1-2", "2-4", "4-8", "8-16", "16-32", "32-64", "64+")
    found = [MINUTES.labels[i] for i in MINUTES.index([0.0, 0.99, 1.0, 3.99, 64.0, -5.0])]
    assert found == ["0-1", "0-1", "1-2", "2-4", "64+", "0-1"]


def test_histograms_add_up() -> None:
    one = VERSIONS.count([0, 0, 5, 40])
    both = one + VERSIONS.count([5, 1])
    assert both.counts == (2, 1, 0, 2, 0, 0, 1)
    assert (both.total, VERSIONS.count(()).total) == (6, 0)
    assert both.as_metrics("age") == {"age/0": 2, "age/1": 1, "age/4-7": 2, "age/32+": 1}
    with pytest.raises(AssertionError, match="different buckets"):
        one + Histogram(Buckets((0, 1)), (1, 2))
