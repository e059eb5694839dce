"""What a user submits, in full: reading it, the scheduler's view of it, the meaning of its exits."""
