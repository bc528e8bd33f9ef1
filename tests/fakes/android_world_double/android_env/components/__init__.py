"""The double's android_env.components."""
