"""What `distrl sweep` does: `distrl train` once for each arm and seed, whatever happened to it before."""
