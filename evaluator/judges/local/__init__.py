"""The trained judge: a classifier of finished episodes on the encoder of a policy."""
