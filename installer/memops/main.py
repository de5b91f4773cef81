"""The entry point: runs a command, and turns a MemopsError into two sentences and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

from memops.errors import MemopsError


def main() -> NoReturn:
    """Run the command line and exit with the documented code."""
    from memops import report
    from memops.cli import app

    code = 0
    try:
        app()
    except MemopsError as error:
        if os.environ.get("MEMOPS_DEBUG"):
            traceback.print_exc()
        report.error(error.message, error.hint)
        code = error.exit_code
    except KeyboardInterrupt:
        report.say("Interrupted.")
        code = 1
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter must not complain while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
