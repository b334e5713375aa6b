"""A reader process, as `pool` starts it."""

import gc
import sys
from importlib import import_module

from topics.server.process.parent import Parent

# Before all else: to load the rest takes a while, in which it may be stopped and its engine end.
Parent(int(sys.argv[3])).end_with_it()
# Until all is loaded and read; what lives as long as the process is then frozen (`Reader`).
gc.disable()
sys.exit(import_module("topics.server.readers.reader").main(sys.argv[1:]))
