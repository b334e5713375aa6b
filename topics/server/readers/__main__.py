"""A reader process, as `pool` starts it."""

import sys

from topics.server.readers.reader import main

sys.exit(main(sys.argv[1:]))
