#!/usr/bin/env python3
"""A run of several islands as a picture: loss over time, and who was away when.

usage: run_picture.py RUN OUT.svg

Everything is in the islands' metrics.jsonl: a process that comes back begins at a later step (`began_at`), and before its
first line there is nothing from the one that was lost.
"""
import json
import pathlib
import sys

from scatter import line, text, ticks

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 60, 20, 50, 50
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd"]
GLOBAL = "#d62728"
WINDOW = 5  # Lines of which a point of the training loss is the mean.


class Island:
    def __init__(self, folder):
        self.name = folder.name
        lines = [json.loads(words) for words in (folder / "metrics.jsonl").read_text().splitlines()]
        self.points = [(one["time"], one["loss"]) for one in lines]
        self.validation = [(one["time"], one["val_loss"]) for one in lines if one.get("val_loss")]
        # A process has trained for all of its seconds when it writes its first line.
        self.away = [(before["time"], after["time"] - sum(after["seconds"].values()))
                     for before, after in zip(lines, lines[1:]) if after["began_at"] != before["began_at"]]

    def stretches(self):
        """The smoothed loss, cut where it was away."""
        cuts = [begin for begin, _ in self.away]
        stretch = []
        for time, loss in self.points:
            if stretch and any(stretch[-1][0] <= cut < time for cut in cuts):
                yield smooth(stretch)
                stretch = []
            stretch.append((time, loss))
        yield smooth(stretch)


def smooth(points):
    out = []
    for i, (time, _) in enumerate(points):
        near = [loss for _, loss in points[max(0, i - WINDOW + 1) : i + 1] if loss is not None]
        if near:
            out.append((time, sum(near) / len(near)))
    return out


def picture(islands):
    begin = min(island.points[0][0] for island in islands)
    end = max(island.points[-1][0] for island in islands)
    losses = [loss for island in islands for stretch in island.stretches() for _, loss in stretch]
    losses += [loss for island in islands for _, loss in island.validation]
    low, high = min(losses), max(losses)
    low, high = low - (high - low) / 12, high + (high - low) / 20

    def x(time):
        return LEFT + (time - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)

    def y(loss):
        return HEIGHT - BOTTOM - (loss - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def path(points, colour, more=""):
        words = " ".join(f"{x(time):.1f},{y(loss):.1f}" for time, loss in points)
        return f'<polyline points="{words}" fill="none" stroke="{colour}" stroke-width="2" {more}/>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for island in islands:
        for gone, back in island.away:
            out += [f'<rect x="{x(gone):.1f}" y="{TOP}" width="{x(back) - x(gone):.1f}" height="{HEIGHT - TOP - BOTTOM}" '
                    'fill="#f3e3e3"/>',
                    text(x(back) + 6, TOP + 18, f"{island.name} is killed, and comes back")]
    for value in ticks(0, end - begin):
        out += [line(x(begin + value), TOP, x(begin + value), HEIGHT - BOTTOM),
                text(x(begin + value), HEIGHT - BOTTOM + 18, f"{value:g}", "middle")]
    for value in ticks(low, high):
        out += [line(LEFT, y(value), WIDTH - RIGHT, y(value)), text(LEFT - 8, y(value) + 4, f"{value:g}", "end")]
    out += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "seconds", "middle"),
            text(18, (TOP + HEIGHT - BOTTOM) / 2, "loss", "middle", f'transform="rotate(-90 18 {(TOP + HEIGHT - BOTTOM) / 2:.1f})"')]
    names = []
    for island, colour in zip(islands, COLOURS):
        out += [path(stretch, colour) for stretch in island.stretches()]
        names.append((f"{island.name}, training", colour))
    validation = sorted({point for island in islands for point in island.validation})
    out += [f'<circle cx="{x(time):.1f}" cy="{y(loss):.1f}" r="4" fill="{GLOBAL}"/>' for time, loss in validation]
    names.append(("the global model, validation", GLOBAL))
    for place, (name, colour) in enumerate(names):
        left = LEFT + 10 + 220 * place
        out += [f'<rect x="{left}" y="{TOP - 28}" width="14" height="4" fill="{colour}"/>', text(left + 20, TOP - 22, name)]
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    run, file = map(pathlib.Path, sys.argv[1:])
    islands = [Island(folder) for folder in sorted(run.glob("island-*"))]
    file.write_text(picture(islands))


if __name__ == "__main__":
    main()
