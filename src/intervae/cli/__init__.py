"""The command line program `intervae`."""

from intervae.cli.signals import install_handlers


def main() -> None:
    """Run the program, with the handlers of signals in place before large imports."""
    install_handlers()
    from intervae.cli.app import main as run

    run()


__all__ = ["main"]
