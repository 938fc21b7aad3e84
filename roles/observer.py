"""Look at a cluster without being part of it: hear its news, ask its agents, be seen by nobody.

For commands that come and go. An observer sends no beacon, so it is in no table and nobody's
statistics, and a script that runs `softstate status` each second leaves no trace.
"""

import secrets
from collections.abc import Callable
from types import TracebackType

import gevent

from bus.client import Client
from bus.clock import now, wall_s
from bus.config import NODE, Config
from bus.errors import NotReady
from bus.headers import News as NewsHeader
from bus.identity import Identity
from bus.keys import load_security
from bus.liveness import Liveness
from bus.member import BEACON_TOPIC, EVENT_TOPIC
from bus.messages import Beacon, Happening
from bus.news import HeardNews, News
from bus.peers import Peer
from bus.pump import Pump

PERIODS_MAX = 3  # Who has not been heard by then is not there.
CONNECT_S = 1.0  # Beyond those, for connections to be made, by a machine that is busy.

_STEP_S = 0.01


class Observer:
    """Sees who beacons from `with` to its end."""

    def __init__(self, config: Config) -> None:
        hub = gevent.get_hub()
        hub.NOT_ERROR = (*hub.NOT_ERROR, KeyboardInterrupt)  # Ctrl-C is no news to print.
        me = Identity(f"observer-{secrets.randbits(48)}", "observer", "", int(wall_s() * 1000))
        beacons = config.beacons
        self._config = config
        self._began_at = now()
        self._liveness = Liveness(
            me.id,
            me.incarnation,
            period_s=beacons.period_s,
            suspect_after=beacons.suspect_after,
            dead_after=beacons.dead_after,
            now=self._began_at,
        )
        keys = config.keys
        security = None
        if keys is not None:
            security = load_security(keys.directory, keys.name, connects_only=True)
        self._pump = Pump(security)
        self.client = Client(self._pump, me)
        self._news = News(self._pump, me, config.hubs)
        self._news.subscribe(BEACON_TOPIC, Beacon, self._heard)

    def __enter__(self) -> "Observer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._news.close()
        self.client.close()
        self._pump.close()

    @property
    def first_s_max(self) -> float:
        """How long after the beginning the first beacon may take to come."""
        return CONNECT_S + PERIODS_MAX * self._config.beacons.period_s

    def on_event(self, heard: HeardNews[Happening]) -> None:
        """Call `heard`, in the event loop, for each event from now on."""
        self._news.subscribe(EVENT_TOPIC, Happening, heard)

    def peers(self) -> list[Peer]:
        """Everyone heard so far, by id."""
        return self._liveness.peers()

    def agents(self) -> list[Peer]:
        """The node agents that can be asked."""
        return [peer for peer in self._liveness.live(NODE) if peer.endpoint and not peer.linked]

    def wait_for_agents(self, count: int) -> list[Peer]:
        """As many agents as that, or fewer once everyone who is there must have been heard.

        Raises `NotReady`, with a sentence that says what to do, if nobody at all was heard.
        """
        if not self._until(self.peers, self._began_at + self.first_s_max):
            raise NotReady(
                f"nothing was heard of the cluster in {self._config.source} within "
                f"{self.first_s_max:g} s. Is it running? `softstate up` starts one, and "
                "`softstate doctor` says what may be in the way"
            )
        everyone_at = now() + 1.5 * self._config.beacons.period_s
        self._until(lambda: len(self.agents()) >= count, everyone_at)
        return self.agents()

    def _until(self, condition: Callable[[], object], deadline: float) -> bool:
        while not condition():
            if now() >= deadline:
                return False
            gevent.sleep(_STEP_S)
        return True

    def _heard(self, header: NewsHeader, beacon: Beacon) -> None:
        self._liveness.heard(header.sender, header.incarnation, beacon, now())
