"""The double's android_world."""
