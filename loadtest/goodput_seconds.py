"""Goodput next to offered load, second by second, as several processes see it. Decides only.

What always holds:
  S1  What was taken out of one and merged into another is counted once.
"""

Row = tuple[int, int, int]
"""A second, by the wall clock; how many requests were made in it; how many were good."""

WIDTH, HEIGHT = 900, 240  # Of the drawing.


class GoodputSeconds:
    HEAD = ("second", "offered", "goodput")

    def __init__(self) -> None:
        self.seconds: dict[int, tuple[int, int]] = {}

    def add(self, second: int, *, is_good: bool) -> None:
        offered, good = self.seconds.get(second, (0, 0))
        self.seconds[second] = offered + 1, good + is_good

    def rows(self) -> list[Row]:
        return [(second, *self.seconds[second]) for second in sorted(self.seconds)]

    def taken(self) -> list[Row]:
        """All, which then are somebody else's."""
        rows = self.rows()
        self.seconds.clear()  # S1
        return rows

    def merge(self, rows: list[Row]) -> None:
        for second, offered, good in rows:
            mine = self.seconds.get(second, (0, 0))
            self.seconds[second] = mine[0] + offered, mine[1] + good

    def told(self) -> str:
        """One line for people."""
        lasted_s = max(self.seconds) - min(self.seconds) + 1 if self.seconds else 1
        offered = sum(each[0] for each in self.seconds.values())
        good = sum(each[1] for each in self.seconds.values())
        share = 100 * good / offered if offered else 0.0
        return (
            f"goodput {good / lasted_s:.1f}/s of {offered / lasted_s:.1f}/s offered "
            f"({share:.2f} % within the timeout)"
        )

    def section(self) -> str:
        """The same as a piece of a page: the line, and both over time."""
        most = max((each[0] for each in self.seconds.values()), default=0) or 1
        return "\n".join(
            [
                '<section style="margin:2em;font-family:sans-serif">',
                "<h2>Goodput next to offered load</h2>",
                f"<p>{self.told()}; at most {most} offered in a second. Offered: grey, goodput: "
                "blue; from the first second to the last.</p>",
                f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" style="max-width:{WIDTH}px;'
                'border:1px solid #ccc">',
                self._line(0, most, "#bbb", 6),
                self._line(1, most, "#1f77b4", 2),
                "</svg></section>",
            ]
        )

    def _line(self, column: int, most: int, colour: str, width: int) -> str:
        first, last = min(self.seconds, default=0), max(self.seconds, default=0)
        points = []
        for second in range(first, last + 1):
            count = self.seconds.get(second, (0, 0))[column]
            x = WIDTH * (second - first) / max(last - first, 1)
            points.append(f"{x:.1f},{HEIGHT * (1 - count / most):.1f}")
        return (
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" '
            f'stroke-width="{width}"/>'
        )
