"""Moved to common/sources.py."""

from common.sources import *  # noqa: F403
