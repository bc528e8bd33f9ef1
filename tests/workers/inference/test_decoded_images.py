"""Pictures of requests: each is decoded once while its episode runs, several at a time, in order."""

import io
import threading

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from PIL import Image
from policy_fakes import png
from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.policies.images import decode_image
from distrl.workers.inference.decoded_images import DecodedImages

WAIT_S = 30.0


def test_episodes_that_show_all_their_screenshots_again_decode_each_once() -> None:
    decoded: list[bytes] = []
    files = {
        f"{slot}/{number}": png(100 * slot + number, (4, 4)) for slot in range(32) for number in range(15)
    }

    def decode(data: bytes) -> Tensor:
        decoded.append(data)
        return torch.empty(3, 1184, 544, dtype=torch.uint8)

    pictures = DecodedImages(decode)
    for step in range(1, 16):
        for slot in range(32):
            shown = [f"{slot}/{number}" for number in range(step)]
            pictures.of(shown, {name: files[name] for name in shown})
    assert sorted(decoded) == sorted(files.values())


def test_missing_pictures_are_decoded_several_at_a_time_and_stay_in_order() -> None:
    is_second_done = threading.Event()
    files = {str(number): png(number) for number in (1, 2, 3)}
    names = {data: name for name, data in files.items()}

    def decode(data: bytes) -> Tensor:
        if names[data] == "1":
            assert is_second_done.wait(WAIT_S), "nothing else is decoded meanwhile"
        elif names[data] == "2":
            is_second_done.set()
        return torch.tensor(int(names[data]))

    shown = ["1", "2", "1", "3"]
    found = DecodedImages(decode).of(shown, files)
    assert [int(picture) for picture in found] == [1, 2, 1, 3]


def test_the_first_unreadable_picture_is_told_and_the_next_request_goes_on() -> None:
    def decode(data: bytes) -> Tensor:
        if data != images["good"]:
            raise PolicyError(f"{'first' if data == images['a'] else 'second'} is no picture.")
        return decode_image(data, (4, 4))

    images = {"good": png(0), "a": png(1), "b": png(2)}
    pictures = DecodedImages(decode)
    with pytest.raises(PolicyError, match="first"):
        pictures.of(["good", "a", "b"], images)
    (found,) = pictures.of(["good"], images)
    assert torch.equal(found, decode_image(png(0), (4, 4)))


def of_size(width: int, height: int) -> bytes:
    """A picture of one colour: a small file, whatever its size."""
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_picture_of_too_many_pixels_is_refused() -> None:
    assert decode_image(of_size(4096, 4096), (4, 4)).shape == (3, 4, 4)
    with pytest.raises(PolicyError, match=r"4097x4096 pixels; the limit is 16,777,216"):
        decode_image(of_size(4097, 4096), (4, 4))


def test_a_request_whose_pictures_have_too_many_pixels_together_is_refused_before_any_is_decoded() -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> Tensor:
        decoded.append(data)
        return torch.zeros(3, 1, 1)

    images = {str(number): of_size(4096, 4096 - number) for number in range(33)}
    pictures = DecodedImages(decode)
    with pytest.raises(PolicyError, match=r"pixels together; the limit is 536,870,912"):
        pictures.of(list(images), images)
    assert not decoded
    assert len(pictures.of(list(images)[:32], images)) == 32
