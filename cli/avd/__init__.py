"""What the commands about virtual devices share: progress, set-up scripts, the table of snapshots."""
