"""Android emulators: their processes, ports, AVDs, snapshots and boot."""
