"""YAML scalars as version 1.2 reads them."""

from __future__ import annotations

import pytest

from distrl.configs.parse import parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("-1.5E+3", -1500.0),
        (".5", 0.5),
        ("3.", 3.0),
        (".inf", float("inf")),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3", "1.2.3"),
        ("~", None),
        ("", None),
        ("'5'", "5"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    parsed = parse_yaml(text, "test")
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_merge_may_be_overridden() -> None:
    parsed = parse_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}", "test")
    assert parsed["b"] == {"x": 3, "y": 2}
