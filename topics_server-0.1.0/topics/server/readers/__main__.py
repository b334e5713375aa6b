"""A reader process, as `pool` starts it."""

import gc
import sys
from importlib import import_module

# Until all is loaded and read; what lives as long as the process is then frozen (`Reader`).
gc.disable()
sys.exit(import_module("topics.server.readers.reader").main(sys.argv[1:]))
