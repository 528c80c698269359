"""`python -m bertkit`, and so `accelerate launch -m bertkit`: the same command line as `bertkit`."""

import sys

from bertkit.cli import main

sys.exit(main())
