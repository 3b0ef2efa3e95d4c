"""Measurements: the pocket suite's own figures, the cost of each method's step, and the tables in README.md."""
