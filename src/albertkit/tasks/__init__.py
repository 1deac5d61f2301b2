"""The tasks: one class in one file each."""
