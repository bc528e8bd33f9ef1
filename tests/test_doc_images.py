"""The pictures of the simulated phone in the documentation show the phone as it is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import PIL
import pytest
from PIL import Image, ImageChops, features

DOCS = Path(__file__).parents[1] / "simulator" / "docs"
DRAWN_WITH = ("13.0.0", "2.14.3")
"""The versions of Pillow and FreeType that the pictures were drawn with; others may smooth text otherwise."""
MOST_BYTES = 110_000


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("doc_images", DOCS.parent / "draw_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_picture_is_drawn_by_the_script_and_is_what_the_phone_shows(script: ModuleType) -> None:
    drawn = script.pictures()
    stored = {path.name: path for path in (DOCS / "images").glob("simphone-*.png")}
    shown = set(re.findall(r"images/(simphone-[\w-]+\.png)", (DOCS / "phone.md").read_text()))
    assert set(drawn) == set(stored) == shown
    assert max(path.stat().st_size for path in stored.values()) <= MOST_BYTES
    if (PIL.__version__, features.version("freetype2")) != DRAWN_WITH:
        pytest.skip(f"needs Pillow {DRAWN_WITH[0]} with FreeType {DRAWN_WITH[1]} to compare pictures")
    others = []
    for name, picture in drawn.items():
        with Image.open(stored[name]) as image:
            one, other = picture.convert("RGB"), image.convert("RGB")
        if one.size != other.size or ImageChops.difference(one, other).getbbox() is not None:
            others.append(name)
    assert others == [], "python simulator/draw_docs.py draws them anew"
