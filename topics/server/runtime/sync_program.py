"""What the process runs that syncs the log: wait for files, `fdatasync` each, say how that went.

Started by its path, as `python -I -S`, so that it is there within milliseconds: it imports nothing of the
package.  It knows no state between two syncs, holds no file but during a sync, and ends when the
server does, whatever signals the two get.

A message has the number of its descriptors in a byte, then the note that is to be written once all files are
durable; the descriptors are those of the files and, last, of the note's.  Both sides are woken by event counters: who is woken by a socket is moved by the
kernel to the CPU of who sent, which has just begun to do something else.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time

FILES_MAX = 3
"""A log has two files at most that are not durable."""
NOTE_BYTES_MAX = 4096
REFUSED = (errno.ENOSYS, errno.EPERM, errno.EACCES)
"""What a sandbox answers to a call that it does not allow."""
IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""A terminal, or a supervisor, sends them to the whole group; the server still syncs at its stop."""
READY = 1
"""The first value of the answers' counter."""
US_BITS = 40
ERRNO_AT = US_BITS + 8


def answer_of(number: int, took_us: int) -> int:
    """An answer as the value of an event counter, which is never 0."""
    return number << ERRNO_AT | 1 << US_BITS | min(took_us, (1 << US_BITS) - 1)


def read_answer(answer: int) -> tuple[int, int]:
    """The errno of an answer, 0 where all is durable, and how long that took, microseconds."""
    return answer >> ERRNO_AT, answer & (1 << US_BITS) - 1


def sync_file(descriptor: int) -> None:
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        os.fsync(descriptor)


def synced(note: bytes, descriptors: list[int]) -> int:
    """Sync the files, write the note; returns the answer."""
    begun_ns = time.monotonic_ns()
    try:
        for descriptor in descriptors[:-1] if note else descriptors:
            sync_file(descriptor)
    except OSError as error:
        return answer_of(error.errno or errno.EIO, 0)
    took_us = (time.monotonic_ns() - begun_ns) // 1000
    if note:
        with contextlib.suppress(OSError):  # evidence for a start: nothing depends on it
            os.pwrite(descriptors[-1], note, 0)
    return answer_of(0, took_us)


def main(channel_file: int, asked: int, answered: int) -> None:
    """Serve syncs until the channel ends.

    Args:
        channel_file: The descriptor of the socket with the messages.
        asked: The event counter that says that there is one.
        answered: The event counter of the answers.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=channel_file)
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    poll.register(channel_file, 0)  # its end
    os.eventfd_write(answered, READY)
    while all(file == asked for file, _ in poll.poll()):
        os.eventfd_read(asked)
        said, descriptors, _, _ = socket.recv_fds(channel, NOTE_BYTES_MAX, FILES_MAX + 1)
        try:
            if len(descriptors) != said[0]:
                return  # the kernel left out what it would not give: a thread of the server has to sync
            answer = synced(said[1:], descriptors)
        finally:
            for each in descriptors:
                os.close(each)
        os.eventfd_write(answered, answer)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
