"""How long leases last, and which lengths are safe together. Decides only.

Only the *rates* of clocks are assumed bounded: no two drift apart faster than `skew`.

What always holds:
  T1  The manager counts a lease longer than its owner can, whatever the owner's clock does.
  T2  A lease outlives the longest failover, so the death of a manager costs nobody a lease.
"""

import msgspec

from bus.config_shape import Config, LeasesConfig, Preset
from bus.errors import ConfigError

FAILOVER_REST_S = 3.0
"""What a failover takes beyond the wait for the old leader: to read the store, to be found."""


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    owner_ttl_s: float
    """How long an owner relies on an answer, from when it asked."""
    manager_ttl_s: float
    """How long the manager keeps a lease of an owner that is silent."""
    renew_s: float
    """How often owners ask."""
    poll_s: float
    """How often a lookup asks for the map when nothing comes by itself."""
    leader_ttl_s: float
    """How long a leader trusts its term, from when it asked the store."""
    skew: float = 0.05
    slack_s: float = 0.25

    @property
    def takeover_s(self) -> float:
        """How long a standby watches a silent leader."""
        return self.leader_ttl_s * (1 + self.skew) + self.slack_s

    def problem(self) -> tuple[str, str] | None:
        """Which of these lengths is not safe with the others, and why; None if all are."""
        shortest_s = self.owner_ttl_s * (1 + self.skew) + self.slack_s
        if self.manager_ttl_s < shortest_s:  # T1
            return "manager_ttl_s", (
                f"{self.manager_ttl_s:g} is not safe: with owner_ttl_s = {self.owner_ttl_s:g}, a "
                f"skew of {self.skew:g} and a slack of {self.slack_s:g} s it must be at least "
                f"{shortest_s:g}, or two owners may hold one key"
            )
        failover_s = self.takeover_s + FAILOVER_REST_S
        if self.owner_ttl_s - self.renew_s <= failover_s:  # T2
            return "owner_ttl_s", (
                f"{self.owner_ttl_s:g}, less renew_s = {self.renew_s:g}, is too short: a failover "
                f"with leader_ttl_s = {self.leader_ttl_s:g} may take {failover_s:g} s, and would "
                "cost leases"
            )
        return None

    def check(self) -> "LeaseTiming":
        """These lengths, if they are safe together; else `ConfigError`."""
        found = self.problem()
        if found is not None:
            raise ConfigError(f"{found[0]}: {found[1]}")
        return self


LEASE_PRESETS: dict[Preset, LeaseTiming] = {
    "paper": LeaseTiming(owner_ttl_s=60, manager_ttl_s=65, renew_s=15, poll_s=30, leader_ttl_s=10),
    "lan": LeaseTiming(owner_ttl_s=8, manager_ttl_s=9, renew_s=1.5, poll_s=3, leader_ttl_s=1.5),
    "fast": LeaseTiming(
        owner_ttl_s=4.6, manager_ttl_s=5.2, renew_s=0.5, poll_s=1, leader_ttl_s=0.6
    ),
}


def timing_of(config: Config) -> LeaseTiming:
    """The preset's lengths, but for those that the configuration has under [leases]."""
    return timed(config.preset, config.leases)


def timed(preset: Preset, given: LeasesConfig) -> LeaseTiming:
    lengths = msgspec.structs.asdict(given)
    changes = {name: value for name, value in lengths.items() if value is not None}
    return msgspec.structs.replace(LEASE_PRESETS[preset], **changes)
