"""What has nothing to do with any paper: arguments, data, models, training, metrics, results."""

__version__ = "0.3.0"
