"""`pipedec segment`: the work is in `pipedec_cli.data`."""


def segment() -> None:
    """Split the targets of a data set into subsequences."""
