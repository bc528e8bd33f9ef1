"""What `distrl train` does: all roles as processes of this machine, watched until the run is over."""
