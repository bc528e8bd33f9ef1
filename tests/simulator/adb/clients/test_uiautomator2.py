"""The package uiautomator2 with a simulated phone: it pushes its jar, starts it, and speaks with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_world import World

uiautomator2 = pytest.importorskip("uiautomator2", reason="needs uiautomator2: not installed")


@pytest.fixture(scope="module")
def connected(any_world: World) -> Iterator[uiautomator2.Device]:
    """The phone, with its server running."""
    adbutils = pytest.importorskip("adbutils", reason="needs adbutils: not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(any_world.server_port))
        client = adbutils.AdbClient(host="127.0.0.1", port=any_world.server_port)
        yield uiautomator2.connect(client.device(any_world.phone.serial))


@pytest.fixture
def d(connected: uiautomator2.Device) -> uiautomator2.Device:
    """The phone, on its home page."""
    connected.press("home")
    return connected


def test_what_it_knows_of_the_phone(d: uiautomator2.Device, any_world: World) -> None:
    size = (any_world.phone.width, any_world.phone.height)
    assert d.window_size() == size
    assert (d.info["displayWidth"], d.info["displayHeight"]) == size
    assert d.info["sdkInt"] == 34
    assert d.screenshot().size == size
    assert "<hierarchy" in d.dump_hierarchy()


def test_selectors_find_and_click(d: uiautomator2.Device) -> None:
    settings = d(description="Settings")
    if not settings.exists:
        settings = d(text="Settings")
    settings.click()
    assert d.info["currentPackageName"].endswith("settings")
    assert d(classNameMatches=r"android\..*").count > 3
    assert not d(text="no such text").exists
    assert not d(text="no such text").wait(timeout=0.1)
    assert d(text="no such text").wait_gone(timeout=0.1)
    d.press("back")
    assert d.info["currentPackageName"].endswith("launcher")


def test_xpath_and_swipes(d: uiautomator2.Device) -> None:
    before = d.dump_hierarchy()
    d.swipe(0.5, 0.8, 0.5, 0.3)
    assert d.dump_hierarchy() != before
    assert d.xpath("//node").all() or d.xpath("//*").all()


def test_text_goes_into_fields(d: uiautomator2.Device) -> None:
    d.app_start("org.simphone.browser")
    field = d(className="android.widget.EditText")
    assert field.wait(timeout=5)
    field.set_text("red shoes & more")
    assert d(focused=True).get_text() == "red shoes & more"
    d(focused=True).clear_text()
    d.send_keys("typed")
    assert "typed" in d(className="android.widget.EditText", focused=True).get_text()


def test_a_missing_element_is_its_own_error(d: uiautomator2.Device) -> None:
    with pytest.raises(uiautomator2.UiObjectNotFoundError):
        d.jsonrpc.objInfo({"text": "no such text"})
    with pytest.raises(uiautomator2.exceptions.RPCUnknownError, match="not on the simulated phone"):
        d.jsonrpc.makeCoffee()


def test_the_server_can_be_stopped_and_comes_back(d: uiautomator2.Device) -> None:
    d.stop_uiautomator()
    assert d.info["sdkInt"] == 34
