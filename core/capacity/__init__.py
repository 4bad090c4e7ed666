"""How many users this machine carries: a short measurement, and the model that it feeds."""
