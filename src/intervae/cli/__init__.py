"""The command line program `intervae`."""

from intervae.cli.app import main

__all__ = ["main"]
