"""The web's shops inside the browser: what they sell, how each looks, and what can be done there."""
