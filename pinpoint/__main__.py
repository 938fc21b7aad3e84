"""`python -m pinpoint` and the script `pinpoint`: `softstate pinpoint`, by a shorter name."""

import sys

from bus.cli import main as softstate


def main() -> int:
    return softstate(["pinpoint", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
