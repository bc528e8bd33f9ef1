"""Settings that are passed on as they are: defaults, and what is said of one that is wrong."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from distrl.core.errors import ConfigError
from distrl.core.user_errors import first_problem, read_fields


class Pause(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seconds: tuple[float, ...] = (1.0,)


def test_fields_become_settings_and_settings_stay() -> None:
    settings = read_fields(Pause, {"seconds": [2, 3]}, "pause")
    assert settings.seconds == (2.0, 3.0)
    assert read_fields(Pause, settings, "pause") is settings
    assert read_fields(Pause, None, "pause") == Pause()


@pytest.mark.parametrize(
    ("fields", "said", "hint"),
    [
        ({"second": 1}, "`pause.second`: there is no such key.", "Did you mean 'seconds'? "),
        ({"seconds": [1, "x"]}, "`pause.seconds.1` is 'x', expected a valid number", ""),
        ({"seconds": "1"}, "`pause.seconds` is '1', expected a valid list.", ""),
    ],
)
def test_a_wrong_field_is_named_by_its_path_and_its_documentation(
    fields: dict[str, object], said: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_fields(Pause, fields, "pause")
    assert raised.value.message.startswith(said)
    assert raised.value.remedy == f"{hint}See {__name__}.Pause."


def test_a_value_that_is_wrong_as_a_whole_has_no_path() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(int).validate_python("x")
    assert first_problem(raised.value) == raised.value.errors()[0]["msg"]
