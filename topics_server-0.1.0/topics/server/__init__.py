"""The server: what runs the engine, what judges requests, and what carries their bytes."""
