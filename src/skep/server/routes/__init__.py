"""One file per part of the API."""
