"""What the console starts: jobs and training processes, and how far they are."""
