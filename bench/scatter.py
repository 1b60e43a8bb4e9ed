"""A small picture without a library: named points over a logarithmic x axis, as SVG."""
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 130, 30, 55
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


def svg(points, x_label, y_label):
    """`points`: {name: (x > 0, y, half the length of a vertical bar)}; at least two of other x and y."""
    low_x = math.floor(math.log10(min(x for x, _, _ in points.values())))
    high_x = math.ceil(math.log10(max(x for x, _, _ in points.values())))
    low_y, high_y = min(y - bar for _, y, bar in points.values()), max(y + bar for _, y, bar in points.values())
    margin = (high_y - low_y) / 15
    low_y, high_y = low_y - margin, high_y + margin

    def at_x(x):
        return LEFT + (math.log10(x) - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)

    def at_y(y):
        return HEIGHT - BOTTOM - (y - low_y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for exponent in range(low_x, high_x + 1):
        x = at_x(10.0 ** exponent)
        out += [line(x, TOP, x, HEIGHT - BOTTOM), text(x, HEIGHT - BOTTOM + 18, f"{10.0 ** exponent:g}", "middle")]
    for value in ticks(low_y, high_y):
        out += [line(LEFT, at_y(value), WIDTH - RIGHT, at_y(value)), text(LEFT - 8, at_y(value) + 4, f"{value:g}", "end")]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, "middle"),
            text(18, middle, y_label, "middle", f'transform="rotate(-90 18 {middle:.1f})"')]
    for name, (x, y, bar) in points.items():
        out += [line(at_x(x), at_y(y - bar), at_x(x), at_y(y + bar), "#1f77b4"),
                f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="4.5" fill="#1f77b4"/>', text(at_x(x) + 9, at_y(y) + 4, name)]
    return "\n".join([*out, "</svg>"]) + "\n"
