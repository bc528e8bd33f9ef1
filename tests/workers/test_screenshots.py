"""Encoding screenshots: the same pixels give the same bytes; a screen known by its key is drawn once."""

from __future__ import annotations

import io
from functools import lru_cache

import pytest
from PIL import Image

from distrl.configs.schema import WorkerConfig
from distrl.core.types import image_digest
from distrl.simulator.device import SimDevice
from distrl.workers import screenshots
from distrl.workers.devices.device import Screen
from distrl.workers.envs.base import Frame
from distrl.workers.screenshots import observe


@pytest.mark.parametrize("image_format", ["jpeg", "png"])
def test_the_observation_names_the_encoded_bytes(image_format: str) -> None:
    config = WorkerConfig(screenshot_format=image_format)
    observation, data = observe(Frame.of(Image.new("RGB", (8, 16), (250, 0, 0)), "app"), config)
    assert observation.image == image_digest(data)
    assert (observation.width, observation.height, observation.app) == (8, 16, "app")
    red, green, blue = Image.open(io.BytesIO(data)).convert("RGB").getpixel((4, 4))
    assert red > 240
    assert max(green, blue) < 10


def test_a_screen_with_a_key_is_drawn_once_until_it_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screenshots, "_encoded", lru_cache(2)(screenshots._encoded.__wrapped__))
    drawn: list[str] = []

    def frame(key: str) -> Frame:
        def picture() -> Image.Image:
            drawn.append(key)
            return Image.new("RGB", (4, 4), (ord(key), 0, 0))

        return Frame(Screen(picture, key))

    config = WorkerConfig(screenshot_format="png")
    shots = {key: observe(frame(key), config) for key in "aab"}
    assert drawn == ["a", "b"]
    assert shots["a"] == observe(frame("a"), config)
    observe(frame("c"), config)
    observe(frame("b"), config)
    assert drawn == ["a", "b", "c", "b"], "the least recently used left first"
    assert observe(frame("a"), WorkerConfig(screenshot_format="jpeg")) != shots["a"]


def test_the_simulated_phone_s_key_stands_for_its_picture() -> None:
    device = SimDevice()
    before = device.screen()
    device.swipe(270, 900, 270, 300)
    after = device.screen()
    assert before.key != after.key
    assert before.picture().tobytes() != after.picture().tobytes()
    assert after.picture().tobytes() == device.screenshot().tobytes()
    assert SimDevice().screen().key == before.key
