"""Takes a run away and brings others in: plain Keras scripts, converted models, runs of other tools."""
