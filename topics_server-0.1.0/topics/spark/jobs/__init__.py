"""Jobs that run as they are, and that may be copied from: `topics job NAME`."""
