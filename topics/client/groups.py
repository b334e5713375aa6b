# Generated from aiogroups.py by topics/client/_generate.py; do not edit, run `make generate`.
"""The calls of a client that are about groups of consumers."""

from collections.abc import Iterator, Mapping

from topics.client import endpoints, paging
from topics.client.endpoints import Partition
from topics.client.models import Group, GroupDeleted, GroupOffset, GroupSummary, OffsetsCommitted
from topics.client.session import Session


class GroupCalls:
    """The part of `Client` for groups of consumers: cursors that the server keeps.

    Attributes:
        session: Sends the calls.
    """

    session: Session

    def groups(self, *, prefix: str = "", page_size: int = 1000) -> Iterator[GroupSummary]:
        """All groups whose name begins with `prefix`, page by page.

        Args:
            page_size: Groups of one request.
        """
        return self.session.items(paging.groups(prefix=prefix, page_size=page_size))

    def group(self, name: str) -> Group:
        """A group, its members, and its first 1,000 offsets.  Raises `GroupNotFound`."""
        return self.session.do(endpoints.group(name, page_size=1000, cursor=None))

    def group_offsets(self, name: str, *, page_size: int = 1000) -> Iterator[GroupOffset]:
        """How far a group is in each partition, with its lag and what it lost, page by page.

            for offset in client.group_offsets("billing"):
                print(offset.topic, offset.partition, offset.seq, offset.lag)

        Args:
            page_size: Offsets of one request.

        Raises:
            GroupNotFound: It does not exist, or has expired.
        """
        return self.session.items(paging.group_offsets(name, page_size=page_size))

    def commit_offsets(self, name: str, offsets: Mapping[Partition, int]) -> OffsetsCommitted:
        """Store how far a group is: all of these, or none.  The first commit makes the group.

            client.commit_offsets("billing", {"orders": 4096, ("clicks", 3): 17})

        A seq is the last record that is done with: read on with `from_seq=seq`.

        Raises:
            Conflict: The group has members, whose it is.
            TopicNotFound: A topic does not exist.
        """
        return self.session.do(endpoints.commit_offsets(name, offsets))

    def delete_group(self, name: str) -> GroupDeleted:
        """Forget a group and its offsets.

        Raises:
            GroupNotFound: It does not exist.
            Conflict: It has members.
        """
        return self.session.do(endpoints.delete_group(name))
