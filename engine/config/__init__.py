"""What a run is asked to do: the configuration, its tables and types, facts without files, reading and checking."""
