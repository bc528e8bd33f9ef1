"""Names to objects, and what a wrong name says."""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import pytest

from distrl.core.errors import ConfigError, MissingDependency
from distrl.core.importing import choose, import_object


def test_import_paths_reach_names_and_nested_names() -> None:
    assert import_object("collections:OrderedDict") is collections.OrderedDict
    assert import_object("collections:OrderedDict.fromkeys") == collections.OrderedDict.fromkeys


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("collections.OrderedDict", "not an import path"),
        (":x", "not an import path"),
        ("collections:", "not an import path"),
        ("no_such_module_here:x", "there is no module no_such_module_here"),
        ("collections.nothing:x", r"there is no module collections\.nothing"),
        ("collections:OrderdDict", r"has no OrderdDict\. Did you mean 'OrderedDict'\?"),
    ],
)
def test_a_wrong_path_says_what_is_wrong(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_object(path)


def test_a_module_that_lacks_a_package_names_the_package(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "wants_more.py").write_text("import no_such_package_here\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependency, match="needs the package no_such_package_here"):
        import_object("wants_more:x")
    assert "wants_more" not in sys.modules


def test_choose_prefers_the_import_path_and_names_the_nearest_kind() -> None:
    registry = {"ordered": "collections:OrderedDict", "deque": "collections:deque"}
    assert choose(registry, "ordered") is collections.OrderedDict
    assert choose(registry, "ordered", "collections:Counter") is collections.Counter
    with pytest.raises(
        ConfigError, match=r"'orderd', which does not exist\. Did you mean 'ordered'\? Use one of deque"
    ):
        choose(registry, "orderd")


def test_modules_in_the_current_directory_are_found_after_installed_ones(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own_module_here.py").write_text("HERE = 1\n", encoding="utf-8")
    (tmp_path / "pydantic.py").write_text("HERE = 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert import_object("own_module_here:HERE") == 1
    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(ConfigError, match="pydantic has no HERE"):
        import_object("pydantic:HERE")
