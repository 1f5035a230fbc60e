"""A target recorded by the engine that serves it, which runs in an environment of its own."""
