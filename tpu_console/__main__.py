"""Makes `python -m tpu_console` the command `tpu-console`."""

import sys

from .tui.cli import main

if __name__ == "__main__":
    sys.exit(main())
