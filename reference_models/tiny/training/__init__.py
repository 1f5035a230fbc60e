"""Builds the reference pair: `python -m reference_models.tiny.training`."""
