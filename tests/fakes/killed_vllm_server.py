"""A process that starts vLLM for the model in a directory, writes what processes that are, and is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
from serving_world import make_config

from distrl.workers.inference.serve import start_vllm


def main() -> None:
    start_vllm(make_config(Path(sys.argv[1]), None), "a")
    children = psutil.Process().children(recursive=True)
    Path(sys.argv[2]).write_text(" ".join(str(child.pid) for child in children))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
