"""Which app a name means."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from distrl.workers.devices.apps import components, find
from distrl.workers.devices.errors import BlankFrame, FrameTruncated
from distrl.workers.devices.screen import Frames

PACKAGES = (
    "com.android.camera2",
    "com.android.chrome",
    "com.android.settings",
    "com.android.vending",
    "com.google.android.apps.docs",
    "com.google.android.deskclock",
    "com.google.android.gm",
    "com.simplemobiletools.calendar.pro",
    "com.simplemobiletools.gallery.pro",
    "net.gsantner.markor",
    "org.videolan.vlc",
)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("com.android.settings", "com.android.settings"),
        (" COM.Android.Settings ", "com.android.settings"),
        ("Settings", "com.android.settings"),
        ("the settings app", "com.android.settings"),
        ("Chrome", "com.android.chrome"),
        ("Google Chrome", "com.android.chrome"),
        ("browser", "com.android.chrome"),
        ("Clock", "com.google.android.deskclock"),
        ("Camera", "com.android.camera2"),
        ("Gmail", "com.google.android.gm"),
        ("Google Drive", "com.google.android.apps.docs"),
        ("Play Store", "com.android.vending"),
        ("Markor", "net.gsantner.markor"),
        ("VLC", "org.videolan.vlc"),
        ("calendar", "com.simplemobiletools.calendar.pro"),
        ("Simple Calendar Pro", "com.simplemobiletools.calendar.pro"),
    ],
)
def test_a_name_means_an_app(name: str, package: str) -> None:
    assert find(name, PACKAGES) == package
    assert find(name, reversed(PACKAGES)) == package


@pytest.mark.parametrize(
    "name", ["", " ", "?!", "app", "Simple", "simplemobiletools", "com", "Pro", "Telegram", "com.android"]
)
def test_a_name_that_means_none_or_several_opens_none(name: str) -> None:
    assert find(name, PACKAGES) is None


def test_an_app_that_calls_itself_by_a_common_word_is_found_all_the_same() -> None:
    assert find("Google", ("com.google.android.googlequicksearchbox",)) is not None
    assert find("app", ("org.app",)) == "org.app"


def test_the_activities_are_read_from_both_forms_of_the_answer() -> None:
    brief = "1 activities found:\n  Activity #0:\n    priority=0 match=0x108000\n    com.a/.Main\n"
    assert components(brief) == components("com.a/.Main\ncom.a/.Second\n") == {"com.a": "com.a/.Main"}
    assert components("No activities found\n") == {}


def picture(mode: str = "RGB") -> Image.Image:
    image = Image.linear_gradient("L").resize((90, 200)).convert(mode)
    image.putpixel((3, 4), image.getpixel((80, 190)))
    return image


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_a_whole_picture_passes(mode: str) -> None:
    frame = Frames().judge(png(picture(mode)))
    assert (frame.size, frame.picture().mode) == ((90, 200), "RGB")
    assert frame.picture().tobytes() == picture(mode).convert("RGB").tobytes()


def test_equal_pictures_have_equal_keys_and_belong_to_who_asks() -> None:
    frames = Frames()
    first, second = (frames.judge(png(picture())).screen() for _ in range(2))
    assert first.key == second.key
    first.picture().putpixel((0, 0), (1, 2, 3))
    assert first.picture().tobytes() == second.picture().tobytes()
    other = picture()
    other.putpixel((0, 0), (200, 0, 0))
    assert frames.judge(png(other)).screen().key != first.key


def test_a_warning_before_the_picture_is_passed_over() -> None:
    warned = b"[Warning] Multiple displays were found, but no display id was specified!\n" + png(picture())
    assert Frames().judge(warned).size == (90, 200)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-12],
        lambda data: data[: len(data) // 2] + data[-12:],
        lambda data: data[:60] + bytes(40) + data[100:],
        lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n", 1)[:8] + b"\r" + data[8:],
        lambda data: b"screencap: not found",
    ],
)
def test_what_is_no_whole_picture_does_not_pass(spoil) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FrameTruncated, match="phone: its screenshot"):
        Frames("phone").judge(spoil(png(picture())))


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (12, 34, 56)])
def test_a_picture_of_one_colour_does_not_pass(colour: tuple[int, int, int]) -> None:
    frames = Frames("phone")
    for _ in range(2):  # nor when it comes again
        with pytest.raises(BlankFrame, match="phone: its screenshot is of one colour"):
            frames.judge(png(Image.new("RGB", (90, 200), colour)))
    almost = Image.new("RGB", (90, 200), colour)
    almost.putpixel((89, 199), (1, 1, 1))
    assert frames.judge(png(almost)).size == (90, 200)
