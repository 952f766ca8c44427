"""The command line program `intervae`."""

import sys

from intervae.cli.signals import handle_ctrl_c


def main() -> None:
    """Run the program, with Ctrl-C handled before large imports."""
    handle_ctrl_c()
    try:
        from intervae.cli.app import main as run

        run()
    except MemoryError:  # so little that not even the error could be printed
        sys.exit("error: not enough memory; free some, or raise the limit (`ulimit -v`).")


__all__ = ["main"]
