"""`distrl serve-inference`: a checkpoint served by a real process, and failures as one line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from policy_fakes import WORDS, chat, png

from distrl.cli.serve_inference import serve
from distrl.configs.schema import Config
from distrl.core.checkpoints import write_checkpoint
from distrl.core.errors import CheckpointError
from distrl.core.policies import build_policy
from distrl.core.sockets import Wire
from distrl.core.types import Sampling, image_digest
from distrl.workers.act_client import ActClient

WAIT_S = 60.0
POLICY = "policy: {d_model: 16, num_heads: 2, d_ff: 16, num_layers: 1, image_size: [24, 40], device: cpu}\n"


def config(**sections: object) -> Config:
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40]}
    return Config.model_validate({"policy": {**sizes, "device": "cpu"}, **sections})


def save(directory: Path) -> Path:
    policy = build_policy(config().policy, WORDS, 3)
    return write_checkpoint(directory, "step_0", lambda path: policy.save(path / "policy"))


def test_a_process_serves_a_checkpoint_until_it_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(POLICY)
    command = [sys.executable, "-m", "distrl", "serve-inference", str(tmp_path / "c.yaml")]
    with subprocess.Popen(
        [*command, "--checkpoint", str(save(tmp_path / "checkpoints"))], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            endpoint = next(found[1] for line in lines if (found := re.search(r"Serving .* at (\S+)", line)))
            with Wire() as wire:
                client = ActClient(wire, lambda: [endpoint], timeout_s=WAIT_S)
                digest = image_digest(png(0))
                completion = client.act(chat("red", digest), {digest: png(0)}, Sampling())
                client.close()
            assert set(completion.weight_versions) == {0}
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()


def test_a_damaged_or_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        serve(config(), None, tmp_path / "nowhere", threading.Event())
    checkpoint = save(tmp_path)
    file = checkpoint / "policy" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        serve(config(), None, checkpoint, threading.Event())
