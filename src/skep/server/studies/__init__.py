"""Studies: several policies on one trace, in processes beside the server."""
