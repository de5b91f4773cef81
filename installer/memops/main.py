"""The entry point: runs a command, and turns a MemopsError into two sentences and an exit code.

``memops check`` alone follows Nagios: whatever keeps it from looking, wrong usage too, is one line and exit code 3.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> NoReturn:
    """Run the command line and exit with the documented code."""
    from memops import report
    from memops.cli import app

    if next((word for word in sys.argv[1:] if not word.startswith("-")), "") == "check":
        _check(app)
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


def _check(app: Callable[[], object]) -> NoReturn:
    """Run ``memops check``, whose only exits are a verdict, the help, and UNKNOWN."""
    from memops import check

    try:
        app()
    except check.Verdict:
        raise
    except SystemExit as end:
        sys.exit(check.unknown(end) if end.code else 0)
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(check.unknown(error))
    sys.exit(0)


if __name__ == "__main__":
    main()
