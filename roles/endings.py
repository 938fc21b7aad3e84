"""How a process ended, in words."""

_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}


def spoken(code: int) -> str:
    """An exit code, or minus the number of the signal that ended it, as a person would say it."""
    if code == 0:
        return "ended by itself"
    if code > 0:
        return f"exit code {code}"
    return f"killed by {_SIGNALS.get(-code, f'signal {-code}')}"
