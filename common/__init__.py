"""What has nothing to do with any paper: arguments, data, models, training, metrics, results."""
