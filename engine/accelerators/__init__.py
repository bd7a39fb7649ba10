"""One class for each framework, which connects devices and owns all that depends on it, and several `hosts`."""
