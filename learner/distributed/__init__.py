"""A learner of several processes, *ranks*: rank 0 owns the run, the others compute with it."""
