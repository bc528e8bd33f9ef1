"""The protobuf messages of the emulator's gRPC services, as far as they are served.

Packages, names and numbers are those of the emulator's emulator_controller.proto, snapshot_service.proto and
snapshot.proto, so both ends understand each other; a field that is left out here is skipped when it comes.
They are made at run time in a pool of their own: a client in the same process may load the whole definitions.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CONTROL, SNAPSHOT = "android.emulation.control", "emulator_snapshot"
"""The protobuf packages."""

ENUMS: dict[str, dict[str, int]] = {
    "ImageFormat.ImgFormat": {"PNG": 0, "RGBA8888": 1, "RGB888": 2},
    "ImageTransport.TransportChannel": {"TRANSPORT_CHANNEL_UNSPECIFIED": 0, "MMAP": 1},
    "Rotation.SkinRotation": {"PORTRAIT": 0, "LANDSCAPE": 1, "REVERSE_PORTRAIT": 2, "REVERSE_LANDSCAPE": 3},
    "KeyboardEvent.KeyCodeType": {"Usb": 0, "Evdev": 1, "XKB": 2, "Win": 3, "Mac": 4},
    "KeyboardEvent.KeyEventType": {"keydown": 0, "keyup": 1, "keypress": 2},
    "VmConfiguration.VmHypervisorType": {"UNKNOWN": 0, "NONE": 1, "KVM": 2},
    "VmRunState.RunState": {
        "UNKNOWN": 0,
        "RUNNING": 1,
        "RESTORE_VM": 2,
        "PAUSED": 3,
        "SAVE_VM": 4,
        "SHUTDOWN": 5,
        "TERMINATE": 7,
        "RESET": 9,
        "INTERNAL_ERROR": 10,
    },
    "SnapshotPackage.Format": {"TARGZ": 0, "TAR": 1, "DIRECTORY": 2},
    "SnapshotFilter.LoadStatus": {"CompatibleOnly": 0, "All": 1},
    "SnapshotDetails.LoadStatus": {"Compatible": 0, "Incompatible": 1, "Loaded": 2},
}
"""The enumerations, each inside of its message."""

MESSAGES: dict[str, dict[str, str]] = {
    SNAPSHOT: {"Snapshot": "int32 version 1, int64 creation_time 2, string logical_name 12"},
    CONTROL: {
        "Empty": "",
        "Entry": "string key 1, string value 2",
        "EntryList": "repeated Entry entry 1",
        "VmConfiguration": (
            "VmHypervisorType hypervisorType 1, int32 numberOfCpuCores 2, int64 ramSizeBytes 3"
        ),
        "EmulatorStatus": (
            "string version 1, uint64 uptime 2, bool booted 3, VmConfiguration vmConfig 4, "
            "EntryList hardwareConfig 5"
        ),
        "VmRunState": "RunState state 1",
        "Rotation": "SkinRotation rotation 1, double xAxis 2, double yAxis 3, double zAxis 4",
        "ImageTransport": "TransportChannel channel 1, string handle 2",
        "ImageFormat": (
            "ImgFormat format 1, Rotation rotation 2, uint32 width 3, uint32 height 4, uint32 display 5, "
            "ImageTransport transport 6"
        ),
        "Image": "ImageFormat format 1, bytes image 4, uint32 seq 5, uint64 timestampUs 6",
        "Touch": "int32 x 1, int32 y 2, int32 identifier 3, int32 pressure 4",
        "TouchEvent": "repeated Touch touches 1, int32 display 2",
        "MouseEvent": "int32 x 1, int32 y 2, int32 buttons 3, int32 display 4",
        "KeyboardEvent": (
            "KeyCodeType codeType 1, KeyEventType eventType 2, int32 keyCode 3, string key 4, string text 5"
        ),
        "SnapshotPackage": (
            "string snapshot_id 1, bytes payload 2, bool success 3, bytes err 4, Format format 5, "
            "string path 6"
        ),
        "SnapshotFilter": "LoadStatus statusFilter 1",
        "SnapshotDetails": (
            f"string snapshot_id 1, {SNAPSHOT}.Snapshot details 2, LoadStatus status 3, uint64 size 4"
        ),
        "SnapshotList": "repeated SnapshotDetails snapshots 1",
    },
}
"""The messages by package: each field as "type name number"."""

_Field = descriptor_pb2.FieldDescriptorProto


def _file(package: str) -> Any:
    """The descriptor of all messages of a package."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"distrl/{package}.proto", package=package, syntax="proto3"
    )
    if package != SNAPSHOT:
        file.dependency.append(f"distrl/{SNAPSHOT}.proto")
    for name, fields in MESSAGES[package].items():
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
            _set_type(field, package, name, kind_name)
    return file


def _set_type(field: Any, package: str, message: str, name: str) -> None:
    scalar = getattr(_Field, f"TYPE_{name.upper()}", None)
    if scalar is not None:
        field.type = scalar
    elif f"{message}.{name}" in ENUMS:
        field.type, field.type_name = _Field.TYPE_ENUM, f".{package}.{message}.{name}"
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{name}" if "." in name else f".{package}.{name}"


_pool = descriptor_pool.DescriptorPool()
for _package in (SNAPSHOT, CONTROL):
    _pool.Add(_file(_package))


def descriptor(name: str) -> Any:
    """The description of a message, by its name with the package."""
    return _pool.FindMessageTypeByName(name)


def _made(name: str) -> Any:
    return message_factory.GetMessageClass(descriptor(f"{CONTROL}.{name}"))


Empty = _made("Empty")
EmulatorStatus = _made("EmulatorStatus")
VmConfiguration = _made("VmConfiguration")
VmRunState = _made("VmRunState")
ImageFormat = _made("ImageFormat")
ImageTransport = _made("ImageTransport")
Image = _made("Image")
Rotation = _made("Rotation")
Touch = _made("Touch")
TouchEvent = _made("TouchEvent")
MouseEvent = _made("MouseEvent")
KeyboardEvent = _made("KeyboardEvent")
SnapshotPackage = _made("SnapshotPackage")
SnapshotFilter = _made("SnapshotFilter")
SnapshotDetails = _made("SnapshotDetails")
SnapshotList = _made("SnapshotList")
