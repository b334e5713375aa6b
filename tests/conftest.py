"""What holds for every test."""

from hypothesis import settings

# A property is no benchmark: a busy machine makes an example slow, and the property still holds.
settings.register_profile("topics", deadline=None)
settings.load_profile("topics")
