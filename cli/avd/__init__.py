"""What the commands about virtual devices share."""
