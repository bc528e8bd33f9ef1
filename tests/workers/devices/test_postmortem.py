"""Post-mortem bundles: what is in them, and that they stay few and small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.workers.devices import postmortem
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.postmortem import Bundle

ERROR = DeviceTimeout("no answer.", "Look at its cable.", serial="a:1", evidence="silence \udcff")


def begin(folder: Path, device: str = "a") -> Bundle:
    return Bundle(folder, device, ERROR, {"screen-0.jpg": b"picture"})


def record(bundle: Bundle) -> dict[str, object]:
    read: dict[str, object] = json.loads((bundle.folder / "fault.json").read_text())
    return read


def test_a_bundle_tells_what_happened(tmp_path: Path) -> None:
    bundle = begin(tmp_path, "../a:1")
    assert record(bundle)["result"] == "under way"  # at once: the process may die over the repair
    bundle.step("wait", 5.0, "still silent")
    bundle.collect(lambda: {"logcat.txt": b"log"})
    bundle.collect(lambda: {"later.txt": b"log"})
    bundle.close("ready")
    assert bundle.folder.parent == tmp_path
    assert bundle.folder.name.endswith("_.._a_1")
    assert {path.name for path in bundle.folder.iterdir()} == {"fault.json", "screen-0.jpg", "logcat.txt"}
    told = record(bundle)
    assert told["error"] == {
        "type": "DeviceTimeout",
        "scope": "device",
        "message": "a:1: no answer.",
        "remedy": "Look at its cable.",
        "evidence": "silence \udcff",
        "caused_by": "",
    }
    assert (told["device"], told["result"]) == ("../a:1", "ready")
    assert told["ladder"] == [{"name": "wait", "seconds": 5.0, "error": "still silent"}]


def test_the_oldest_make_room_by_number_and_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({begin(tmp_path / "p").folder for _ in range(3)}) == 3  # of one second
    for second in range(4):
        (tmp_path / "q" / f"1970-{second}").mkdir(parents=True)
    monkeypatch.setattr(postmortem, "MAX_COUNT", 3)
    begin(tmp_path / "q")
    assert [path.name for path in sorted((tmp_path / "q").iterdir())][:2] == ["1970-2", "1970-3"]
    monkeypatch.setattr(postmortem, "MAX_BYTES", 10)
    last = begin(tmp_path / "q")
    assert list((tmp_path / "q").iterdir()) == [last.folder]


def test_a_folder_that_cannot_be_written_costs_no_more_than_the_bundle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    begin(tmp_path / "file").close("ready")
    assert "no post-mortem in" in caplog.text
