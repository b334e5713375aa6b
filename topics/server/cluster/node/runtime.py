"""The runtime of a cluster's node: its engine may be dropped and opened anew, and has the cluster's
time.

Owns the change from one driver to the next: every thread has ended what it did for the old one before
the new one opens its files.  When that is to be is `host`'s to say.
"""

from collections.abc import Callable

from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Store
from topics.protocol.replication.driver import ClusterDriver
from topics.server.runtime.clock import Clock
from topics.server.runtime.runtime import Runtime

OpenStore = Callable[[], Store]
"""A store over the node's data directory, not yet recovered."""


class ClusterRuntime(Runtime):
    """As `Runtime`, for one node of a cluster.

    Args:
        open_store: Called for the first driver, and for each that follows.

    Attributes:
        opened: Called with each driver that has recovered its store; it starts it.
        when_failed: Called when this node's own log has failed.
    """

    _driver_type = ClusterDriver
    driver: ClusterDriver
    opened: Callable[[ClusterDriver], None]
    when_failed: Callable[[Exception], None]
    _is_attached = False

    def __init__(
        self,
        limits: Limits,
        open_store: OpenStore,
        *,
        flush_ms: int = 200,
        sync_timeout_ms: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._open_store = open_store
        super().__init__(
            limits, open_store(), flush_ms=flush_ms, sync_timeout_ms=sync_timeout_ms, clock=clock
        )
        self.driver.clock = self

    # ------------------------------------------------------------------ time

    @property
    def clock_ms(self) -> int:
        """The machine's clock, by which a leader decides."""
        return self.clock.now_ms()

    @property
    def now_ms(self) -> int:
        """Engine time: of accepted events."""
        return self.driver.engine_ms

    def not_before(self, seen_ms: int) -> None:
        """A node's clock follows no log: the time of a leader that was ahead is not the machine's."""

    # ------------------------------------------------------------------ life

    def attach(self) -> None:
        """Serve what needs no data, on the running loop; the start may come much later."""
        self._attach()

    def _attach(self) -> None:
        if not self._is_attached:
            self._is_attached = True
            super()._attach()

    def prepare(self, open_store: OpenStore) -> None:
        """Have the driver over other stores, before the start: whose data it has to be is known only
        now."""
        self._open_store = open_store
        self.store = open_store()
        self.driver = self._made(self.store)
        self.engine = self.driver.engine

    def _made(self, store: Store) -> ClusterDriver:
        """The next driver, over a store that is not recovered."""
        driver = self._make_driver(store, self)
        assert isinstance(driver, ClusterDriver)
        driver.clock = self
        return driver

    def _open(self) -> None:
        self.opened(self.driver)

    def on_failed(self, error: Exception) -> None:
        super().on_failed(error)
        self.when_failed(error)

    def rouse(self) -> None:
        """The driver was told something: its alarm may have changed."""
        self._set_alarm()

    async def reopen(self, between: Callable[[], None] = lambda: None) -> None:
        """Close the store of a driver that was abandoned, open it anew, and call `opened`.

        Args:
            between: *Blocking.*  Called while no store is open.

        Raises:
            StoreError, OSError: It cannot be opened; the node has to end.
        """
        # Each thread makes its calls in order: what was under way for the old driver is over.
        for worker in (self._writer, self._syncer, self._maintainer):
            await worker.wait_for(_nothing)
        old = self.store
        await self._maintainer.wait_for(lambda: old.close(None))
        await self._maintainer.wait_for(between)
        store = self._open_store()
        driver = self._made(store)
        await self._maintainer.wait_for(driver.recover)
        self.store, self.driver, self.engine = store, driver, driver.engine
        self.opened(driver)
        self._set_alarm()


def _nothing() -> None:
    return
