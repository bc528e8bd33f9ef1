"""An install of LIBERO with two tasks and no simulator. Its import asks a question, as the real one's."""

from __future__ import annotations

from pathlib import Path

ASKS = """
import os
config_file = os.path.join(os.environ["LIBERO_CONFIG_PATH"], "config.yaml")
if not os.path.exists(config_file):
    input("Do you want to specify a custom path for the dataset folder? (Y/N): ")
"""


def make(folder: Path, assets: bool = True) -> Path:
    """Writes it to a folder for `sys.path`; returns the folder of its files."""
    root = folder / "libero" / "libero"
    for name, text in {
        "../__init__.py": "",
        "__init__.py": ASKS,
        "envs/__init__.py": "",
        "envs/env_wrapper.py": "",
        "bddl_files/libero_goal/open_it.bddl": "(define (problem P)\n (:language Open\n it)\n (:goal (x)))",
        "bddl_files/libero_goal/turn_on_the_stove.bddl": "(define (problem P) (:language Turn on the stove))",
        "../../scipy.py": "",
        **({"assets/scenes/table.xml": ""} if assets else {}),
    }.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root
