"""Trials that are run by hand, since they take data or time that the tests do not have; their figures are in the docs."""
