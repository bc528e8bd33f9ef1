"""Tasks on the simulated phone: what templates are made of, how they are played, and suites of them."""
