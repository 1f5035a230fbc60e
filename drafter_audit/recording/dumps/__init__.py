"""States that other tools dumped, read as recordings: what a dump lacks is absent, and said."""
