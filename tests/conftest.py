"""What holds for every test."""

import os

from hypothesis import settings

# Nobody's own profiles take part.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
for name in ("TOPICS_URL", "TOPICS_API_KEY", "TOPICS_PROFILE"):
    os.environ.pop(name, None)

# A property is no benchmark: a busy machine makes an example slow, and the property still holds.
settings.register_profile("topics", deadline=None)
settings.load_profile("topics")
