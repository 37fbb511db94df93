"""`python -m extender` is `linkwise`."""

from extender.cli import main

main()
