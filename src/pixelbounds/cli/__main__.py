"""For `python -m pixelbounds.cli` and `torchrun -m pixelbounds.cli`."""

from . import main

main()
