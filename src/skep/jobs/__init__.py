"""What a user submits, in full: reading it, what the scheduler sees of it, what its exits mean."""
