"""The trained judge: a small image-text classifier of finished episodes that runs where it is asked."""
