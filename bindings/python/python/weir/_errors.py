"""Exceptions. Every message says what to do next."""


class WeirError(OSError):
    """Base class of all errors, and errors of the network."""


class NotFound(WeirError, FileNotFoundError):
    """No router has a route to the name, or its producer says that it does not exist."""


class TimedOut(WeirError, TimeoutError):
    """No answer, or none within the timeout."""


class VerificationError(WeirError):
    """The content was not signed by a trusted producer."""


class RefusedError(WeirError, PermissionError):
    """The producer or a router refuses the operation."""


class Superseded(WeirError, ConnectionResetError):
    """A growing object was replaced by a newer version and will never end."""


class NoRouter(WeirError, ConnectionRefusedError):
    """No router is running, or it cannot be reached."""


class PrefixInUse(WeirError):
    """Another producer of this process is bound to the prefix."""


class TooLong(WeirError):
    """The content does not fit into the output buffer or a packet."""


class ClosedError(WeirError, ValueError):
    """The object was closed."""


class BusyError(WeirError):
    """Another task or thread is using the object."""


class ForkedError(WeirError, RuntimeError):
    """The object was created before `os.fork` and cannot be used in the child."""


class InvalidName(WeirError, ValueError):
    """The name is invalid, or not below the prefix."""


class OptionError(WeirError, ValueError):
    """Unknown option, or invalid value."""


class KeyChainError(WeirError):
    """The user's keys, or an anchor, cannot be read."""
