"""For `python -m pixelbounds.cli`."""

from . import main

main()
