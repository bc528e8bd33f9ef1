"""The stand-in's avdmanager: `create avd -n NAME -k IMAGE [-d DEVICE]`, `list avd`, `delete avd -n NAME`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from distrl.core.errors import DistrlError
from distrl.simulator.emulator.fake_sdk import make_avd
from distrl.workers.devices.avd import AvdStore


def main(arguments: Sequence[str]) -> int:
    """Runs the program. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="avdmanager")
    parser.add_argument("verb", choices=("create", "list", "delete"))
    parser.add_argument("what", choices=("avd", "avds"))
    parser.add_argument("-n", "--name", default="")
    parser.add_argument("-k", "--package", default="")
    parser.add_argument("-d", "--device", default="")
    options = parser.parse_args(arguments)
    store = AvdStore()
    try:
        if options.verb == "list":
            for avd in store.list():
                print(f"    Name: {avd.name}\n    Path: {avd.directory}")
        elif options.verb == "delete":
            store.delete(options.name)
        else:
            _create(store, options.name, options.package)
    except DistrlError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _create(store: AvdStore, name: str, package: str) -> None:
    image = package.replace(";", "/")
    root = Path(os.environ.get("ANDROID_HOME", ""))
    if not image or not (root / image).is_dir():
        raise SystemExit(f"Error: Package path is not valid. Valid system image paths are:\n{_images(root)}")
    store.home.mkdir(parents=True, exist_ok=True)
    make_avd(store, name, image=f"{image}/")


def _images(root: Path) -> str:
    found = sorted((root / "system-images").glob("*/*/*"))
    return "\n".join(";".join(path.relative_to(root).parts) for path in found) or "null"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
