"""The quickstart suite looks and behaves the same from version to version: what is learned on it compares."""

from __future__ import annotations

import hashlib
from dataclasses import fields

from distrl.evaluator.suites import load_suite
from distrl.workers.envs.phone import PhoneEnv
from distrl.workers.simphone.nodes import Node, walk

DIGEST = "89a114ea704ac1690b70f79fd94e53f5"


def described(tree: Node) -> str:
    """What a node is besides a node's defaults, for every node of a screen."""
    names = [(field.name, field.default) for field in fields(Node) if field.name != "children"]
    return "\n".join(
        ",".join(f"{name}={value!r}" for name, default in names if (value := getattr(node, name)) != default)
        for node in walk(tree)
    )


def test_start_screens_and_expert_paths_are_what_they_were() -> None:
    digest = hashlib.blake2b(digest_size=16)
    env = PhoneEnv()
    phone = env._backend.device  # type: ignore[attr-defined]
    for task in load_suite("quickstart")[::3]:
        env.reset(task)
        action = env.expert_action()
        digest.update(described(phone.phone.tree()).encode())
        while not action.is_terminal:
            env.step(action)
            digest.update(f"{action!r}{described(phone.phone.tree())}".encode())
            action = env.expert_action()
    assert digest.hexdigest() == DIGEST
