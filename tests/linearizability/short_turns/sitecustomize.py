"""Imported by each interpreter that starts with this directory on its path."""

from topics.protocol.model import limits

limits.LOOKS_MAX = 4
