"""Exceptions. Errors of the system or of a path are an `OSError` with its number, and none of these.

Each that casemate raises, an `OSError` too, has a `code` for programs, such as "wrong-key" or "no-room", and the names of
`advice`: what helps.
"""


class Error(Exception):
    """An error of casemate: something that it could not do, or found to be wrong. The text is complete."""

    code: str
    advice: tuple[str, ...]


class CorruptError(Error, ValueError):
    """A structure contradicts its format, or its checksum does not fit."""


class MismatchError(Error, ValueError):
    """Everything could be read and does not match: a root hash, a signature, a passphrase."""


class UnsupportedError(Error, NotImplementedError):
    """The format allows it, casemate does not have it."""


class LockedError(Error):
    """A key is missing."""


class ArgumentError(Error, ValueError):
    """A value outside its range, or a combination that can't be."""
