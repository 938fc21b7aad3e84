"""Load shapes for Locust: users in steps, on a ramp, or in a spike.

    locust -f loadtest/locustfile.py,loadtest/locust_shapes.py --headless --shape steps

A file of its own: as soon as Locust finds a shape, it goes by that and not by `-u -r -t`.
"""

from argparse import ArgumentParser
from math import ceil

from locust import LoadTestShape, events

from loadtest.arrivals import Shape, duration_s, ramp, rate_at, spike, steps

SPAWN_PER_S = 100.0
STEPS = 4


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--shape", choices=("steps", "ramp", "spike"), default="steps")
    parser.add_argument("--shape-users", type=int, default=100, help="how many at the peak")
    parser.add_argument("--shape-s", type=float, default=30.0, help="how long it lasts")


def shape_of(kind: str, users: float, lasts_s: float) -> Shape:
    """The number of users at each moment, as a shape."""
    match kind:
        case "ramp":
            return ramp(0.0, users, lasts_s)
        case "spike":
            third_s = lasts_s / 3
            return spike(users / 10, users, before_s=third_s, storm_s=third_s, after_s=third_s)
        case _:
            return steps((users * (step + 1) / STEPS, lasts_s / STEPS) for step in range(STEPS))


class ChosenShape(LoadTestShape):
    def tick(self) -> tuple[int, float] | None:
        assert self.runner is not None
        options = self.runner.environment.parsed_options
        assert options is not None
        shape = shape_of(options.shape, options.shape_users, options.shape_s)
        at_s: float = self.get_run_time()  # type: ignore[no-untyped-call]
        if at_s >= duration_s(shape):
            return None
        return max(1, ceil(rate_at(shape, at_s))), SPAWN_PER_S
