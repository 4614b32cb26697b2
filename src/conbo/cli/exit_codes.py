"""The exit codes of commands, besides 0 (success), 1 (an error) and 2 (wrong usage)."""

NOTHING_OR_FAILED = 3  # nothing was left to do, or evaluations failed
INTERRUPTED = 130  # Ctrl-C; by the convention of shells, 128 + SIGINT
