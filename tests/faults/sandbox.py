"""`topics` in a sandbox: a filter of system calls (seccomp), as a container's profile has one, answers some
of them with an error.

Usage: sandbox.py ERRNO CALL[,CALL…] ARGUMENTS…
"""

import ctypes
import os
import platform
import struct
import sys
from typing import Final

NUMBERS = {
    "pwrite64": 18,
    "madvise": 28,
    "setsockopt": 54,
    "flock": 73,
    "fsync": 74,
    "fdatasync": 75,
    "ftruncate": 77,
    "rename": 82,
    "getrlimit": 97,
    "getrusage": 98,
    "fstatfs": 138,
    "statfs": 137,
    "prctl": 157,
    "setrlimit": 160,
    "sched_setaffinity": 203,
    "sched_getaffinity": 204,
    "fadvise64": 221,
    "clock_gettime": 228,
    "unlinkat": 263,
    "renameat": 264,
    "fallocate": 285,
    "preadv": 295,
    "pwritev": 296,
    "prlimit64": 302,
    "renameat2": 316,
    "memfd_create": 319,
    "preadv2": 327,
    "pwritev2": 328,
}
"""Of x86-64."""
WITH: Final = {"mmap:shared": (9, 3, 1), "socketpair:seqpacket": (53, 1, 4)}
"""Calls that are answered so only with a bit in an argument: number, argument, bit.  The interpreter
itself needs the others."""

LOAD, EQUAL, ANY, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER_AT, ARGUMENTS_AT = 0, 16
ALLOW, ERROR = 0x7FFF0000, 0x00050000
SECCOMP_MODE_FILTER = 2
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22


def is_possible() -> bool:
    """Whether this machine has such filters, by these numbers."""
    return platform.machine() == "x86_64" and os.path.exists("/proc/sys/kernel/seccomp")


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def program(number: int, calls: list[str]) -> bytes:
    """The filter, in the kernel's language (BPF)."""
    steps = []
    refuse = _step(RETURN, ERROR | number)
    for call in calls:
        steps.append(_step(LOAD, NUMBER_AT))
        if call in WITH:
            known, argument, bit = WITH[call]
            steps.append(_step(EQUAL, known, 0, 3))
            steps.append(_step(LOAD, ARGUMENTS_AT + 8 * argument))
            steps.append(_step(ANY, bit, 0, 1))
        else:
            steps.append(_step(EQUAL, NUMBERS[call], 0, 1))
        steps.append(refuse)
    return b"".join([*steps, _step(RETURN, ALLOW)])


def enter(number: int, calls: list[str]) -> None:
    """Have these calls answered with this error, here and in all that follows."""
    code = program(number, calls)
    text = ctypes.create_string_buffer(code)
    head = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(text))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    pointer = ctypes.create_string_buffer(head)
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(pointer), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "no filter of system calls here")


if __name__ == "__main__":
    enter(int(sys.argv[1]), sys.argv[2].split(","))
    os.execv(sys.executable, [sys.executable, "-m", "topics", *sys.argv[3:]])
