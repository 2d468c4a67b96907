"""Samples, tables, targets and plots of the report."""

import dataclasses
import html
import math
import re
import statistics

# Paul Tol's "muted" qualitative colours
COLOURS = ("#332288", "#cc6677", "#ddcc77", "#117733", "#88ccee", "#882255", "#44aa99", "#999933", "#aa4499", "#999999")


def ratios(above, below):
    """The ratios of two subjects' samples, round by round."""
    return [a / b for a, b in zip(above, below)]


def number(value):
    """Three significant digits, or all that there are before the point."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def spread(samples, scale=1):
    """Median and, if there are several samples that differ, minimum and maximum."""
    low, middle, high = (number(f(samples) * scale) for f in (min, statistics.median, max))
    return middle if low == high else f"{middle} ({low}–{high})"


def quartiles(samples, scale=1):
    """Median and quartiles, of many samples."""
    low, middle, high = (number(x * scale) for x in statistics.quantiles(samples, n=4, method="inclusive"))
    return f"{middle} ({low}–{high})"


def table(header, rows):
    """A Markdown table; all columns but the first are right-aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


@dataclasses.dataclass
class Target:
    """Something that must hold: a ratio that is at least, or at most, a bound."""
    what: str
    sense: str                  # "≥" or "≤"
    bound: float
    samples: list               # none: not installed
    note: str = ""              # on why it cannot be met

    def row(self):
        if not self.samples:
            return [self.what, f"{self.sense} {self.bound}", "", "not installed"]
        middle = statistics.median(self.samples)
        met = middle >= self.bound if self.sense == "≥" else middle <= self.bound
        by = abs(middle - self.bound) / self.bound
        return [self.what, f"{self.sense} {self.bound}", spread(self.samples),
                f"met, by {by:.1%}" if met else f"**missed**, by {by:.1%}{self.note}"]


@dataclasses.dataclass
class Section:
    title: str
    text: str
    targets: list = dataclasses.field(default_factory=list)
    short: list = dataclasses.field(default_factory=list)      # [question, answer]

    def anchor(self):
        """The heading's, as GitHub makes it."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")


class Plot:
    """An SVG drawing, built line by line."""

    def __init__(self, title, width=760, height=380, bottom=60):
        self.left, self.right, self.top, self.bottom = 70, width - 20, 50, height - bottom
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>']
        self.text(width / 2, 22, title, "middle", size=15)

    def text(self, x, y, text, anchor="start", size=12, rotate=None):
        turn = f' transform="rotate({rotate} {x:.1f} {y:.1f})"' if rotate is not None else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
                          f'fill="#222"{turn}>{html.escape(text)}</text>')

    def line(self, x1, y1, x2, y2, colour="#bbb", width=1, dash=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                          f'stroke-width="{width}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def legend(self, names, y):
        """Colours and names, in as many lines as they need."""
        x = self.left
        for colour, name in zip(COLOURS, names):
            width = 30 + 6.2 * len(name)
            if x + width > self.right:
                x, y = self.left, y + 18
            self.parts.append(f'<rect x="{x:.0f}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
            self.text(x + 15, y, name, size=11)
            x += width

    def save(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.parts + ["</svg>\n"]), encoding="utf-8")


def nice_step(top):
    """A round number that divides an axis up to top into four to ten parts."""
    power = 10 ** math.floor(math.log10(top))
    return next(step * power for step in (0.1, 0.2, 0.25, 0.5, 1, 2) if top / (step * power) <= 8)


def bars(path, title, unit, groups, series, mark=None, below=""):
    """Grouped bars with their spread.  series: {name: [samples of each group]}; mark: (value, label) of a line; below:
    what the groups are."""
    plot = Plot(title, height=420, bottom=90)
    top = max(max(samples) for values in series.values() for samples in values if samples)
    top = max(top, mark[0] if mark else 0) * 1.05
    step = nice_step(top)

    def y(value):
        return plot.bottom - (plot.bottom - plot.top) * value / top

    for i in range(int(top / step) + 1):
        plot.line(plot.left, y(i * step), plot.right, y(i * step))
        plot.text(plot.left - 6, y(i * step) + 4, f"{i * step:g}", "end")
    plot.text(18, (plot.top + plot.bottom) / 2, unit, "middle", rotate=-90)

    group_width = (plot.right - plot.left) / len(groups)
    bar_width = group_width * 0.86 / len(series)
    for g, group in enumerate(groups):
        start = plot.left + group_width * (g + 0.07)
        plot.text(start + group_width * 0.43, plot.bottom + 18, group, "middle")
        for s, values in enumerate(series.values()):
            if not values[g]:
                continue
            x, height = start + s * bar_width, statistics.median(values[g])
            plot.parts.append(f'<rect x="{x:.1f}" y="{y(height):.1f}" width="{bar_width * 0.92:.1f}" '
                              f'height="{plot.bottom - y(height):.1f}" fill="{COLOURS[s]}"/>')
            middle = x + bar_width * 0.46
            plot.line(middle, y(min(values[g])), middle, y(max(values[g])), "#000")
    if mark:
        plot.line(plot.left, y(mark[0]), plot.right, y(mark[0]), "#c00", 1.5, "6 4")
        plot.line(plot.right - 190, plot.top - 12, plot.right - 160, plot.top - 12, "#c00", 1.5, "6 4")
        plot.text(plot.right - 154, plot.top - 8, mark[1])
    if len(series) > 1:
        plot.legend(series, plot.bottom + 50)
    plot.text((plot.left + plot.right) / 2, plot.bottom + 32, below, "middle")
    plot.save(path)


def tails(path, title, series):
    """For each name the share of calls that took x or longer.  series: {name: [(nanoseconds, share), …]}"""
    plot = Plot(title)
    longest = max(x for points in series.values() for x, _ in points)
    decades_x, decades_y = math.ceil(math.log10(longest)) - 1, 8

    def x_of(nsec):
        return plot.left + (plot.right - plot.left) * (math.log10(max(nsec, 10)) - 1) / decades_x

    def y_of(share):
        return plot.top + (plot.bottom - plot.top) * -math.log10(share) / decades_y

    for i in range(decades_x + 1):
        plot.line(x_of(10 ** (i + 1)), plot.top, x_of(10 ** (i + 1)), plot.bottom)
        nsec = 10 ** (i + 1)
        label = f"{nsec} ns" if nsec < 1000 else f"{nsec // 1000} µs" if nsec < 10**6 else f"{nsec // 10**6} ms"
        plot.text(x_of(nsec), plot.bottom + 16, label, "middle")
    for i in range(0, decades_y + 1):
        plot.line(plot.left, y_of(10 ** -i), plot.right, y_of(10 ** -i))
        plot.text(plot.left - 6, y_of(10 ** -i) + 4, "1" if i == 0 else "10⁻" + "⁰¹²³⁴⁵⁶⁷⁸"[i], "end")
    plot.text(18, (plot.top + plot.bottom) / 2, "share of calls that took at least as long", "middle", rotate=-90)
    for colour, points in zip(COLOURS, series.values()):
        path_points = " ".join(f"{x_of(x):.1f},{y_of(share):.1f}" for x, share in points if share > 10 ** -decades_y)
        plot.parts.append(f'<polyline points="{path_points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    plot.legend(series, plot.bottom + 42)
    plot.save(path)
