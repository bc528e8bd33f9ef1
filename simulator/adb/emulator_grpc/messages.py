"""The protobuf messages of the emulator's gRPC services, as far as they are served.

Names and numbers are those of the emulator's emulator_controller.proto and snapshot_service.proto, so that
both ends understand each other; a field that is left out here is skipped when it arrives. They are made at
run time in a pool of their own: a client in the same process may load the whole definitions.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CONTROL = "android.emulation.control"
"""The protobuf package."""
ENUMS: dict[str, dict[str, int]] = {
    "ImageFormat.ImgFormat": {"PNG": 0, "RGBA8888": 1, "RGB888": 2},
    "KeyboardEvent.KeyCodeType": {"Usb": 0, "Evdev": 1, "XKB": 2, "Win": 3, "Mac": 4},
    "KeyboardEvent.KeyEventType": {"keydown": 0, "keyup": 1, "keypress": 2},
    "VmRunState.RunState": {"UNKNOWN": 0, "SHUTDOWN": 5},
}
"""The enumerations, each inside of its message."""
MESSAGES: dict[str, str] = {
    "Empty": "",
    "EmulatorStatus": "string version 1, uint64 uptime 2, bool booted 3",
    "VmRunState": "RunState state 1",
    "ImageFormat": "ImgFormat format 1, uint32 width 3, uint32 height 4",
    "Image": "ImageFormat format 1, bytes image 4, uint64 timestampUs 6",
    "Touch": "int32 x 1, int32 y 2, int32 identifier 3, int32 pressure 4",
    "TouchEvent": "repeated Touch touches 1",
    "KeyboardEvent": "KeyCodeType codeType 1, KeyEventType eventType 2, int32 keyCode 3",
    "SnapshotPackage": "string snapshot_id 1, bool success 3, bytes err 4",
    "SnapshotDetails": "string snapshot_id 1",
    "SnapshotList": "repeated SnapshotDetails snapshots 1",
}
"""The messages: each field as "type name number"."""
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"distrl/{CONTROL}.proto", package=CONTROL, syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for path, values in ENUMS.items():
            owner, _, enum = path.partition(".")
            if owner == name:
                kind = message.enum_type.add(name=enum)
                for key, number in values.items():
                    kind.value.add(name=key, number=number)
        for text in filter(None, fields.split(", ")):
            *label, kind_name, field_name, number_text = text.split()
            field = message.field.add(name=field_name, number=int(number_text))
            field.label = _Field.LABEL_REPEATED if label else _Field.LABEL_OPTIONAL
            _set_type(field, name, kind_name)
    return file


def _set_type(field: Any, message: str, name: str) -> None:
    scalar = getattr(_Field, f"TYPE_{name.upper()}", None)
    if scalar is not None:
        field.type = scalar
    elif f"{message}.{name}" in ENUMS:
        field.type, field.type_name = _Field.TYPE_ENUM, f".{CONTROL}.{message}.{name}"
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{CONTROL}.{name}"


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def descriptor(name: str) -> Any:
    """The description of a message."""
    return _pool.FindMessageTypeByName(f"{CONTROL}.{name}")


def _made(name: str) -> Any:
    return message_factory.GetMessageClass(descriptor(name))


Empty = _made("Empty")
EmulatorStatus = _made("EmulatorStatus")
VmRunState = _made("VmRunState")
ImageFormat = _made("ImageFormat")
Image = _made("Image")
Touch = _made("Touch")
TouchEvent = _made("TouchEvent")
KeyboardEvent = _made("KeyboardEvent")
SnapshotPackage = _made("SnapshotPackage")
SnapshotDetails = _made("SnapshotDetails")
SnapshotList = _made("SnapshotList")
