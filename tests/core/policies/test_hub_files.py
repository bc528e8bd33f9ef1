"""Loading from the hub: one request, and none for what is in the cache."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from autoui_models import save_t5
from tiny_qwen import save_qwen25_vl

from distrl.configs.policy import policy_config
from distrl.core.errors import PolicyError
from distrl.core.hub_files import has_weights, located
from distrl.core.policies import build_policy

NAME = "nobody/some-model"


@contextmanager
def hub(monkeypatch: pytest.MonkeyPatch, status: int | None) -> Iterator[list[str]]:
    """The hub answers everything with `status`, or hangs up; the paths that it was asked for."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "2")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache, which is empty, would have the model."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--nobody--some-model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    return folder / "snapshots" / "abc"


@pytest.mark.parametrize("status", [200, 404, 401])
def test_a_hub_that_answers_is_left_to_transformers(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with hub(monkeypatch, status) as asked:
        assert located("policy.model", NAME) == NAME
    assert asked == [f"/{NAME}/resolve/main/config.json"]
    assert not snapshot.parent.exists()


def test_a_hub_that_cannot_be_reached_is_asked_once_and_told_once(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = pytest.raises(PolicyError, match="is missing or incomplete here, and the hub cannot")
    with hub(monkeypatch, None) as asked, refused as caught:
        build_policy(policy_config(kind="hub", model=NAME, device="cpu"), [], 0)
    assert len(asked) == 1
    assert f"hf download {NAME}" in caught.value.remedy
    assert "HF_HOME" in caught.value.remedy
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        f"policy.model {NAME!r} is not in {snapshot.parents[2]}: requesting it from the hub."
    ]


@pytest.mark.parametrize(("kind", "save"), [("hub", save_qwen25_vl), ("autoui", save_t5)])
def test_what_is_in_the_cache_is_loaded_without_the_hub(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, kind: str, save: object
) -> None:
    assert callable(save)
    snapshot.parent.mkdir(parents=True)
    save(snapshot)
    with hub(monkeypatch, None) as asked:
        build_policy(policy_config(kind=kind, model=NAME, device="cpu"), [], 0)
        assert asked == []
        next(snapshot.glob("*.bin" if kind == "autoui" else "*.safetensors")).unlink()
        with pytest.raises(PolicyError, match="is missing or incomplete here"):
            build_policy(policy_config(kind=kind, model=NAME, device="cpu"), [], 0)


def test_offline_the_hub_is_not_asked(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with hub(monkeypatch, 200) as asked, pytest.raises(PolicyError, match="HF_HUB_OFFLINE is set"):
        located("policy.model", NAME)
    assert asked == []


def test_a_path_is_no_question_for_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub(monkeypatch, 200) as asked:
        for path in (str(tmp_path), "/no/such/folder", "./model", "a/b/c"):
            assert located("policy.model", path) == path
    assert asked == []


def test_weights_in_parts_are_there_when_all_parts_are(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    (tmp_path / "one.safetensors").touch()
    assert not has_weights(tmp_path)
    (tmp_path / "two.safetensors").touch()
    assert has_weights(tmp_path)
    index.write_text("{")
    assert not has_weights(tmp_path)
