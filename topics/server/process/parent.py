"""The process that started this one, which this one does not outlive.

A helper that is stopped (SIGSTOP, a cgroup that is frozen) when its parent ends hears of that only when
it goes on, and may have requests in its sockets by then that belong to the next server.  So the kernel
ends it with its parent, whatever it is doing, and before it answers, it looks whether its parent is still
there: the kernel may have been asked too late, or a sandbox may forbid it.
"""

import ctypes
import os
import signal
from typing import Final

PR_SET_PDEATHSIG: Final = 1


class Parent:
    """The one that started this process.

    Args:
        pid: As it said; another process that has become the parent since is not meant.
    """

    __slots__ = ("_pid",)

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def end_with_it(self) -> None:
        """Have the kernel send SIGKILL to this process when its parent ends; where the system has no such
        call, or forbids it, `is_there` has to do.

        The kernel means the thread that started this process: that must live as long as its process.
        """
        try:
            prctl = ctypes.CDLL(None, use_errno=True).prctl
        except (OSError, AttributeError):
            return  # not Linux
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    @property
    def is_there(self) -> bool:
        """Whether it has not ended; a system call of less than a tenth of a microsecond."""
        return os.getppid() == self._pid
