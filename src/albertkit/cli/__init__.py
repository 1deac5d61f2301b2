"""The command line: one module for each subcommand, which parses flags and prints results."""
