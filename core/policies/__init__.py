"""Policies and critics: what is trained and served. The first place where torch is imported.

A new policy is one file and one line in `POLICIES`, or `policy.import_path: "pkg.mod:Name"`; its class takes
(config, words, seed). The same arguments build the same policy in every process: before the first published
weights arrive, an inference server needs the configuration and the suite's words, nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from distrl.core.errors import PolicyError
from distrl.core.importing import choose

if TYPE_CHECKING:
    import torch

    from distrl.core.policies.base import Critic, Policy

POLICIES = {
    "autoui": "distrl.core.policies.autoui:AutoUIPolicy",
    "tiny": "distrl.core.policies.tiny:TinyPolicy",
    "hub": "distrl.core.policies.hub:HubPolicy",
    "reader": "distrl.core.policies.reader:ReaderPolicy",
    "arm": "distrl.core.policies.arm:ArmPolicy",
}


def build_policy(config: Any, words: Sequence[str], seed: int) -> Policy:
    """The policy that `config` describes, on its device, ready to act.

    Args:
        words: The words of the suite's goals (`vocabulary()` of the suite).
    """
    return make_policy(config, words, seed).to(resolve_device(config.device))


def make_policy(config: Any, words: Sequence[str], seed: int, **options: bool) -> Policy:
    """As `build_policy`, but in main memory.

    Args:
        options: Further arguments of the policy's class.
    """
    import torch

    if str(resolve_device(config.device)).startswith("cuda"):  # float32 weights and adapters: TensorFloat-32
        torch.set_float32_matmul_precision("high")
    policy_class = choose(POLICIES, config.kind, getattr(config, "import_path", None))
    policy: Policy = policy_class(config, list(words), seed, **options)
    return policy.eval()


def checkpoint_words(directory: Path) -> list[str] | None:
    """The words of the policy saved in `directory`, None if it is of a kind that has no word list.

    A checkpoint is served with its own words, whatever suite it is measured on.

    Raises:
        CheckpointError: If the tokenizer file is damaged.
    """
    from distrl.core.policies.tokenizer import saved_words

    return saved_words(directory)


def build_critic(
    policy: Policy,
    seed: int,
    has_action_values: bool = False,
    kind: str = "attention",
    device: str | None = None,
) -> Critic:
    """The critic that reads `policy`'s hidden states.

    Args:
        kind: "attention" or "head", see `distrl.core.policies.critic`.
        device: None: the policy's.
    """
    from distrl.core.policies.critic import AttentionCritic, HeadCritic

    critic = {"attention": AttentionCritic, "head": HeadCritic}[kind]
    return critic(policy, seed, has_action_values).to(policy.device if device is None else device)


def use_threads(count: int) -> None:
    """Lets torch compute with so many threads in this process."""
    import torch

    torch.set_num_threads(count)


def resolve_device(name: str) -> str:
    """ "auto" to "cuda" where there is one, else "cpu"; PolicyError if a named device is not here."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise PolicyError(
            f"Device {name!r} cannot be used: {str(error).splitlines()[0]}.", "Set device to 'auto' or 'cpu'."
        ) from error
    return name


@contextlib.contextmanager
def loading(key: str, model: str, remedy: str) -> Iterator[None]:
    """Turns what transformers raises when it cannot load `model` into a PolicyError that names its `key`."""
    from safetensors import SafetensorError

    kinds = (OSError, ValueError, ImportError, LookupError, AttributeError, RuntimeError)
    try:
        yield
    except (*kinds, UnpicklingError, SafetensorError) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise PolicyError(f"{key} {model!r} cannot be loaded: {reason}", remedy) from error


def number_format(name: str, device: str) -> torch.dtype:
    """The type of weights and activations: "auto" is bfloat16 on a GPU, float32 elsewhere."""
    import torch

    if name == "auto":
        name = "bfloat16" if resolve_device(device).startswith("cuda") else "float32"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]
