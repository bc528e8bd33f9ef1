"""The controller: here only a holder of the emulator."""

from __future__ import annotations

import enum
from typing import Any


class A11yMethod(enum.Enum):
    A11Y_FORWARDER_APP = "a11y_forwarder_app"
    UIAUTOMATOR = "uiautomator"
    NONE = "none"


class AndroidWorldController:
    def __init__(
        self,
        env: Any,
        a11y_method: A11yMethod = A11yMethod.A11Y_FORWARDER_APP,
        install_a11y_forwarding_app: bool = True,
    ) -> None:
        assert isinstance(a11y_method, A11yMethod)
        self.env = env
