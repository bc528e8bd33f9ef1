"""Workers that train: transitions, local PPO and greedy evaluation in gymnasium environments (APPO)."""
