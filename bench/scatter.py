"""Small pictures without a library, as SVG: named points, or lines, over a logarithmic x axis."""
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 130, 30, 55
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
STYLE = 'font-family="sans-serif" font-size="13"'


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {STYLE} {more}>{html.escape(words)}</text>'


def line(x1, y1, x2, y2, colour="#ccc"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def ticks(low, high):
    """About five round numbers between."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Frame:
    """The area of a picture, with its axes; each axis by a scale (low, high, whether logarithmic)."""

    def __init__(self, x_scale, y_scale, x_label, y_label):
        self.x_scale, self.y_scale = x_scale, y_scale
        self.out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
                    f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
        for value in marks(*x_scale):
            x = self.at_x(value)
            self.out += [line(x, TOP, x, HEIGHT - BOTTOM), text(x, HEIGHT - BOTTOM + 18, f"{value:g}", "middle")]
        for value in marks(*y_scale):
            y = self.at_y(value)
            self.out += [line(LEFT, y, WIDTH - RIGHT, y), text(LEFT - 8, y + 4, f"{value:g}", "end")]
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.out += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, "middle"),
                     text(18, middle, y_label, "middle", f'transform="rotate(-90 18 {middle:.1f})"')]

    def at_x(self, x):
        return LEFT + share(x, *self.x_scale) * (WIDTH - LEFT - RIGHT)

    def at_y(self, y):
        return HEIGHT - BOTTOM - share(y, *self.y_scale) * (HEIGHT - TOP - BOTTOM)

    def svg(self):
        return "\n".join([*self.out, "</svg>"]) + "\n"


def share(value, low, high, is_log):
    if is_log:
        value, low, high = (math.log10(one) for one in (value, low, high))
    return (value - low) / (high - low)


def marks(low, high, is_log):
    if not is_log:
        return ticks(low, high)
    return [10.0**exponent for exponent in range(round(math.log10(low)), round(math.log10(high)) + 1)]


def decades(values):
    return 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values))), True


def svg(points, x_label, y_label):
    """`points`: {name: (x > 0, y, half the length of a vertical bar)}; at least two of other x and y."""
    low, high = min(y - bar for _, y, bar in points.values()), max(y + bar for _, y, bar in points.values())
    margin = (high - low) / 15
    frame = Frame(decades([x for x, _, _ in points.values()]), (low - margin, high + margin, False), x_label, y_label)
    for name, (x, y, bar) in points.items():
        x, top, bottom, y = frame.at_x(x), frame.at_y(y + bar), frame.at_y(y - bar), frame.at_y(y)
        frame.out += [line(x, bottom, x, top, COLOURS[0]), f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{COLOURS[0]}"/>',
                      text(x + 9, y + 4, name)]
    return frame.svg()


def lines_svg(series, x_label, y_label):
    """`series`: {name: [(x > 0, y > 0), ...]}, on logarithmic axes."""
    every = [point for points in series.values() for point in points]
    frame = Frame(decades([x for x, _ in every]), decades([y for _, y in every]), x_label, y_label)
    labels = []
    for (name, points), colour in zip(series.items(), COLOURS):
        at = [(frame.at_x(x), frame.at_y(y)) for x, y in points]
        frame.out += [line(*one, *two, colour) for one, two in zip(at, at[1:])]
        frame.out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in at]
        labels.append((at[-1][1] + 4, at[-1][0] + 9, name, colour))
    below = 0.0
    for y, x, name, colour in sorted(labels):  # None over another.
        below = max(y, below + 15)
        frame.out.append(text(x, below, name, more=f'fill="{colour}"'))
    return frame.svg()
