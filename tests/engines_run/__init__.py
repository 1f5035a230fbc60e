"""Engines that were run: how, and what of it is kept in tests/data/engines."""
