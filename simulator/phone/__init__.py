"""The simulated phone: a real program with real screens, deterministic, its state plain data.

events -> Phone (phone.py) -> state (state.py) -> apps/*.view -> Node tree (nodes.py)
                                                    Node tree -> picture   (render.py)
                                                    Node tree -> hierarchy (hierarchy.py)
"""
