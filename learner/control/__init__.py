"""The learner of continuous control: a master that adds up what workers learn (APPO)."""
