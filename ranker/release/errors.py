"""Errors of the release package.

RegistryError         the registry cannot do what was asked
├── VersionMissing    no such version, or no version is active
├── VersionCorrupt    a version, its manifest or a pointer is not what was published
├── VersionRefused    what was to be published cannot be a version
└── NotGated          no gate lets a version become active, and nobody has overridden it
"""

from __future__ import annotations


class RegistryError(Exception):
    """The registry cannot do what was asked."""


class VersionMissing(RegistryError):
    """There is no such version, or a pointer names none."""


class VersionCorrupt(RegistryError):
    """A version, its manifest or a pointer is not what was published; names the file and why."""


class VersionRefused(RegistryError):
    """What was to be published has a name, size or kind of file that a version may not have."""


class NotGated(RegistryError):
    """No gate lets a version become active; says why, and what would."""
