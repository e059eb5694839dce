"""Reading files of users with line numbers in messages, and writing results atomically."""
