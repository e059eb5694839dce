"""Reading what users wrote, with lines to point at, and writing results whole or not at all."""
