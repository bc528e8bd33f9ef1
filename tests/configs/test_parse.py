"""YAML scalars as version 1.2 reads them."""

from __future__ import annotations

import pytest

from distrl.configs.parse import parse_yaml
from distrl.core.errors import ConfigError


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


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOMB, "aliases repeat more than 10,000 values"),
        (f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]", "aliases repeat more than 10,000 values"),
        ("a: &a [1, *a]", "an alias must not stand inside the value that it repeats"),
    ],
)
def test_aliases_that_expand_without_bound_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"test, line 1: .*{problem}"):
        parse_yaml(text, "test")


def test_large_documents_and_modest_aliases_are_read() -> None:
    shared = "a: &a {x: 1, y: [1, 2]}\nb: [" + ", ".join(["*a"] * 100) + "]\nc:\n" + "- 1\n" * 20_000
    parsed = parse_yaml(shared, "test")
    assert len(parsed["b"]) == 100
    assert len(parsed["c"]) == 20_000
