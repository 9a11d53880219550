"""``python -m pipedec_cli`` is ``pipedec``."""

from pipedec_cli.cli.app import main

if __name__ == "__main__":
    main()
