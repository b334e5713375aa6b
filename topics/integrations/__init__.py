"""Brokers for task frameworks, each on the public client and under the framework's own extra."""
