"""What can go wrong. Every message says what to do next."""


class WeirError(OSError):
    """Everything that goes wrong in the network, and the base of all errors here."""


class NotFound(WeirError, FileNotFoundError):
    """No router on the way knows the name, or its producer says that there is nothing."""


class TimedOut(WeirError, TimeoutError):
    """Nobody answers, or not within the time given."""


class VerificationError(WeirError):
    """What came is not what a producer that is believed has signed."""


class RefusedError(WeirError, PermissionError):
    """The producer or a router refuses."""


class Superseded(WeirError, ConnectionResetError):
    """An object that grew has a newer version, and will have no end."""


class NoRouter(WeirError, ConnectionRefusedError):
    """There is no router, or it cannot be reached."""


class PrefixInUse(WeirError):
    """Another producer of this process is bound to the prefix."""


class TooLong(WeirError):
    """More than fits into the output buffer, or into a packet."""


class ClosedError(WeirError, ValueError):
    """It was closed."""


class BusyError(WeirError):
    """Somebody else reads from it or writes to it at the same time."""


class ForkedError(WeirError, RuntimeError):
    """It was made before `os.fork`, and cannot be used in the child."""


class InvalidName(WeirError, ValueError):
    """It is no name, or not one below the prefix."""


class OptionError(WeirError, ValueError):
    """There is no such option, or it cannot have that value."""


class KeyChainError(WeirError):
    """The user's keys, or an anchor, cannot be read."""
