"""What `distrl doctor` looks at, by theme."""
