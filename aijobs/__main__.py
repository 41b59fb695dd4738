"""`python -m aijobs`: the same as the `aijobs` command, for a process that wants its own interpreter."""

from aijobs.cli import main

main()
