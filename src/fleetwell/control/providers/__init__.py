"""Who replaces a machine: one file for each way of asking for it."""
