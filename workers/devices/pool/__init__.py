"""The pool of devices: slots as state machines, probes, recovery, post-mortems."""
