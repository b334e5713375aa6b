"""The runtime of a cluster's node: its engine may be dropped and opened anew, and has the cluster's
time.

Owns the change from one driver to the next: every thread has ended what it did for the old one before
the new one opens its files.  When that is to be is `host`'s to say.
"""

from collections.abc import Callable

from topics.protocol.cluster.acceptance import UnitAcceptance
from topics.protocol.driver.driver import Driver
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Store
from topics.server.runtime.clock import Clock
from topics.server.runtime.runtime import Runtime

OpenStore = Callable[[], Store]
"""A store over the node's data directory, not yet recovered."""


class ClusterRuntime(Runtime):
    """As `Runtime`, for one node of a cluster.

    Args:
        open_store: Called for the first driver, and for each that follows.

    Attributes:
        acceptance: That of the driver.
        opened: Called with that of each driver that has recovered its store; it starts the driver.
        when_failed: Called when this node's own log has failed.
    """

    acceptance: UnitAcceptance
    opened: Callable[[UnitAcceptance], None]
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

    # ------------------------------------------------------------------ time

    @property
    def clock_ms(self) -> int:
        """The machine's clock, by which a leader decides."""
        return self.clock.now_ms()

    @property
    def now_ms(self) -> int:
        """Engine time: of accepted events."""
        return self.acceptance.engine_ms

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
        self.driver = self._driver_over(self.store)
        self.engine = self.driver.engine

    def _driver_over(self, store: Store) -> Driver:
        self.acceptance = self._made(store)
        return self.acceptance.driver

    def _made(self, store: Store) -> UnitAcceptance:
        acceptance = UnitAcceptance(self)
        acceptance.attach(self._make_driver(store, self, acceptance=acceptance))
        return acceptance

    def _open(self) -> None:
        self.opened(self.acceptance)

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
        await self._sync_process.rest()
        # Each thread makes its calls in order: what was under way for the old driver is over.
        for worker in (self._writer, self._syncer, self._maintainer):
            await worker.wait_for(_nothing)
        old = self.store
        await self._maintainer.wait_for(lambda: old.close(None))
        await self._maintainer.wait_for(between)
        store = self._open_store()
        acceptance = self._made(store)
        driver = acceptance.driver
        await self._maintainer.wait_for(driver.recover)
        self.acceptance = acceptance
        self.store, self.driver, self.engine = store, driver, driver.engine
        self.opened(acceptance)
        self._set_alarm()


def _nothing() -> None:
    return
