"""`python -m farlink_lab` is `farlink-lab`."""

from farlink_lab.cli import main

main()
