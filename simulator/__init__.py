"""A simulated Android phone: apps, tasks with ground truth and experts, adb, and an emulator around it."""
