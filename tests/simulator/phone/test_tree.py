"""The tree and the hierarchy say the same, on every screen that experts come through."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from xml.sax.saxutils import quoteattr

import pytest
from PIL import Image

from distrl.evaluator.suites import SUITES, load_suite
from distrl.simulator.apps import APPS
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import hierarchy, interruptions, nodes, render
from distrl.simulator.phone.nodes import WIDTH, Node, walk
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.theme import LAYOUTS
from distrl.workers.envs.phone import PhoneEnv

SIZE = (540, 1200)
SCREEN = (0.0, 0.0, WIDTH, 800.0)


@pytest.fixture(scope="module")
def trees() -> list[Node]:
    """The screens that experts come through, with and without interruptions; then home, shade and drawer."""
    env, found = PhoneEnv(width=72, height=160), dict[Node, None]()
    suites = [load_suite(name) for name, path in SUITES.items() if path.startswith("distrl.simulator.")]
    for tasks in suites:
        for template in dict.fromkeys(task.template for task in tasks):
            first, *_, last = (task for task in tasks if task.template == template)
            params = last.params | {"interruptions": list(interruptions.KINDS)}
            for task in (first, last.model_copy(update={"params": params})):
                env.reset(task)
                while not (action := env.expert_action()).is_terminal:
                    found[env._backend.device.phone.tree()] = None  # type: ignore[attr-defined]
                    env.step(action)
    for layout in range(len(LAYOUTS)):
        phone = Phone(new_state(layout, installed=tuple(APPS)))
        found[phone.tree()] = None
        for swipe in ((300, 300, 60, 300), (180, 10, 180, 400), (180, 700, 180, 300), (180, 600, 180, 200)):
            phone.swipe(*swipe)
            found[phone.tree()] = None
    return list(found)


def bounds(element: ElementTree.Element) -> tuple[int, int, int, int]:
    match = re.fullmatch(r"\[(\d+),(\d+)\]\[(\d+),(\d+)\]", element.attrib["bounds"])
    assert match is not None
    left, top, right, bottom = (int(edge) for edge in match.groups())
    return left, top, right, bottom


def test_every_screen_has_unique_places_to_touch(trees: list[Node]) -> None:
    assert len(trees) >= 250
    for tree in trees:
        rids = [node.rid for node in walk(tree) if node.clickable]
        assert all(rids), "a clickable node has no resource id"
        assert len(rids) == len(set(rids)), rids


def test_visible_bounds_lie_on_the_screen(trees: list[Node]) -> None:
    for tree in trees:
        root = ElementTree.fromstring(hierarchy.xml(tree, *SIZE, "app"))
        for element in root.iter("node"):
            left, top, right, bottom = bounds(element)
            assert 0 <= left <= right <= SIZE[0], element.attrib
            assert 0 <= top <= bottom <= SIZE[1], element.attrib


def test_clickable_siblings_do_not_overlap(trees: list[Node]) -> None:
    for tree in trees:
        for parent in walk(tree):
            for a, b in combinations([child for child in parent.children if child.clickable], 2):
                left, top, right, bottom = nodes.intersect(a.box, b.box)
                assert right - left <= 0.01 or bottom - top <= 0.01, (a.rid, b.rid)


def test_targets_are_large_enough_for_a_coarse_grid(trees: list[Node]) -> None:
    """Every target but keys and slider steps holds its nearest cell centre on a 24-row, 12-column grid."""
    for tree in trees:
        for node, box in nodes.visible(tree, SCREEN):
            small = node.rid.startswith(("key_", "slider_"))
            if not node.clickable or small or box != node.box:
                continue
            x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
            column, row = int(x / WIDTH * 12), int(y / 800 * 24)
            hit = nodes.hit(tree, (column + 0.5) * WIDTH / 12, (row + 0.5) * 800 / 24)
            centre = nodes.hit(tree, x, y)
            assert centre is None or centre != node or hit == node, node.rid


SYSTEM_UI = ("shade", "status_bar", "nav_bar")


def dumped(tree: Node) -> list[Node]:
    """What shows in the windows that Android dumps: the app's or the shade's, and the system's bars."""
    system = [node for node in tree.children if node.rid in SYSTEM_UI]
    own = [node for node in tree.children if node.rid not in (*SYSTEM_UI, "keyboard")]
    if any(node.rid == "shade" for node in system):
        own = []
    return [node for part in (*own, *system) for node, _ in nodes.visible(part, SCREEN)]


def test_the_hierarchy_lists_what_can_be_touched_and_read(trees: list[Node]) -> None:
    for tree in trees:
        root = ElementTree.fromstring(hierarchy.xml(tree, *SIZE, "app"))
        elements = list(root.iter("node"))
        seen = dumped(tree)
        clickable = [
            e.attrib["resource-id"].split("/")[-1] for e in elements if e.attrib["clickable"] == "true"
        ]
        assert clickable == [node.rid for node in seen if node.clickable and node.cls != "widget.SeekBar"]
        texts = [e.attrib["text"] for e in elements if e.attrib["text"]]
        assert texts == [node.text or node.value for node in seen if node.text or node.value]


Elements = list[dict[str, str]]


def elements(device: SimDevice) -> Elements:
    return [element.attrib for element in ElementTree.fromstring(device.hierarchy()).iter("node")]


def having(found: Elements, **wanted: str) -> Elements:
    """The elements with these attributes (`_` for `-`, and `cls` for `class`)."""
    names = {name: "class" if name == "cls" else name.replace("_", "-") for name in wanted}
    return [each for each in found if all(each[names[name]] == value for name, value in wanted.items())]


def in_settings(*section: str) -> SimDevice:
    device = SimDevice()
    device.open_app("settings")
    if section:
        device.phone._dispatch(("settings", "section", *section))
    return device


def test_what_is_chosen_is_selected_and_what_is_on_is_checked() -> None:
    device = in_settings("network")
    (row,) = having(elements(device), resource_id="org.simphone.settings:id/switch_wifi")
    assert row["clickable"] == "true"
    assert {row["checkable"], row["checked"], row["selected"]} == {"false"}
    switches = having(elements(device), cls="android.widget.Switch", resource_id="android:id/switch_widget")
    assert [switch["checked"] for switch in switches][:2] == ["true", "false"]
    assert {(switch["checkable"], switch["selected"]) for switch in switches} == {("true", "false")}
    device.open_app("clock")
    (tab,) = having(elements(device), selected="true")
    assert (tab["content-desc"], tab["checkable"], tab["checked"]) == ("Alarm", "false", "false")
    device.phone.state["apps"]["clock"]["alarms"] = [{"minutes": 420, "on": True}]
    device.load(device.phone.state)
    (alarm,) = having(elements(device), cls="android.widget.Switch")
    assert (alarm["checkable"], alarm["checked"], alarm["clickable"]) == ("true", "true", "true")


def test_android_s_own_ids_are_where_android_has_them() -> None:
    device = in_settings("network")
    found = elements(device)
    titles = [each["text"] for each in having(found, resource_id="android:id/title")]
    assert titles[:2] == ["Wi-Fi", "Airplane mode"]
    assert having(found, resource_id="android:id/summary", text="Home network")
    root = ElementTree.fromstring(device.hierarchy())
    assert root[0][0].attrib["resource-id"] == "android:id/content"
    (scrolling,) = having(found, cls="androidx.recyclerview.widget.RecyclerView")
    assert scrolling["package"] == "org.simphone.settings"
    device.open_app("notes")
    assert not having(elements(device), resource_id="android:id/title"), "rows of an app have its own ids"


def test_every_attribute_is_quoted_as_the_standard_library_does(trees: list[Node]) -> None:
    words = ("&", "<b>", 'a "b"', "it's", '"it\'s"', "a\nb\tc\rd", "é 中 😀", "&amp;", "")
    odd = tuple(
        Node(0, 40 * row, 360, 40, rid=f"key_{word}", text=word, desc=word) for row, word in enumerate(words)
    )
    for tree in (*trees[::25], Node(0, 0, 360, 800, children=odd)):
        text = hierarchy.xml(tree, *SIZE, "app")
        written = re.findall("<node .*>", text)
        found = [element.attrib for element in ElementTree.fromstring(text).iter("node")]
        assert written == [
            "<node " + " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items()) + ">"
            for attributes in found
        ]
    assert [attributes["content-desc"] for attributes in found[-len(words) :]] == list(words)
    assert [attributes["text"] for attributes in found[-len(words) :]] == list(words)


def test_hidden_nodes_cannot_be_touched() -> None:
    under = Node(0, 0, 100, 100, rid="under", tap=("x", "y"))
    over = Node(0, 0, 100, 50, rid="over", fill="#ffffff")
    tree = Node(0, 0, 360, 800, children=(under, over))
    assert nodes.hit(tree, 10, 10) is None
    assert nodes.hit(tree, 10, 60) is under


def test_clipped_parts_cannot_be_touched_and_are_not_painted() -> None:
    child = Node(0, 0, 360, 400, rid="child", fill="#ff0000", tap=("x", "y"))
    window = Node(0, 0, 360, 200, clip=True, children=(child,))
    tree = Node(0, 0, 360, 800, fill="#ffffff", children=(window,))
    assert nodes.hit(tree, 10, 250) is None
    picture = render.draw(tree, 360, 800)
    assert picture.getpixel((10, 199)) == (255, 0, 0)
    assert picture.getpixel((10, 201)) == (255, 255, 255)
    assert isinstance(picture, Image.Image)
