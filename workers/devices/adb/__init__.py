"""Speaking with the adb server: one client with one deadline a call, for shell, exec, files and state."""
