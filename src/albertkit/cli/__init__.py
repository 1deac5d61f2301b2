"""The command line: flags from public functions and from the options of tasks."""
