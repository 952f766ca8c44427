"""`python -m intervae`: the command line, where the script `intervae` is not on the path."""

from intervae.cli import main

if __name__ == "__main__":
    main()
