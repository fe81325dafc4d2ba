"""`python -m stepwell` is the `stepwell` command."""

import sys

from stepwell.cli.main import main

sys.exit(main())
