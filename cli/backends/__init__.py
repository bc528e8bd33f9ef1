"""Where the processes of a run are placed: on this machine, on hosts, or by a scheduler."""
