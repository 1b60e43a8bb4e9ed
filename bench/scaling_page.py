"""The page of make report-scaling: what the study found beside what the papers find (arXiv 2503.09799), noise considered."""
import csv
import math
import statistics

import numpy

NAMES = {0: "data-parallel", 1: "M = 1", 2: "M = 2", 4: "M = 4"}
CONFIRMED, NOT, NOISE = "confirmed", "**not confirmed**", "within noise"
OUTER_RATE_STEP = 0.2  # Of the study's grid.


class Study:
    """The sweep's cells by grid, and all points on all tokens. A cell without a best place ends the program."""

    def __init__(self, result, table, points, answers):
        self.result, self.points, self.answers = result, points, answers
        self.cells = {}
        for cell in result["cells"]:
            if not cell["best"]:
                raise SystemExit(f"no point of {cell_name(cell)} finished: the page needs all cells")
            self.cells[cell["grid"], cell["size"], cell["replicas"], cell.get("sync_every", 0), cell["tokens_factor"]] = cell
        self.params = {cell["size"]: cell["params"] for cell in result["cells"]}
        self.sizes = sorted(self.params, key=self.params.get)
        with open(table) as file:
            lines = [line for line in file if not line.startswith("#")]
        self.rows = [{name: float(value) for name, value in row.items() if value and name != "method"}
                     for row in csv.DictReader(lines)]
        spread = [self.best("seeds", size, m) for size in self.sizes for m in NAMES]
        # Of one run's loss, relative, over seeds: pooled, for three seeds alone say little.
        self.noise = math.sqrt(statistics.mean((one["deviation"] / one["loss"]) ** 2 for one in spread))
        self.vocabulary = int(points[spread[0]["key"]]["settings"]["model.vocab_size"])
        self.num_seeds = min(one["seeds"] for one in spread)
        self.gap_noise = self.noise * math.sqrt(2 / (self.num_seeds - 1))

    def best(self, grid, size, replicas, factor=1, sync_every=30):
        """The best place of the cell (data-parallel has no H); nothing where the grid has no such cell."""
        cell = self.cells.get((grid, size, replicas, sync_every if replicas else 0, factor))
        return cell and cell["best"]

    def swept(self, size, replicas):
        """The best place of those grids that sweep both rates."""
        grids = {cell["grid"] for cell in self.result["cells"] if cell["grid"].startswith("rates")}
        return min(filter(None, (self.best(grid, size, replicas) for grid in grids)), key=lambda best: best["loss"])

    def fresh_loss(self, size, replicas):
        """Over the seeds that had no part in choosing the rates: the first one's loss is the least of many."""
        best = self.best("seeds", size, replicas)
        place = {name: best[name] for name in ("lr", "outer_lr") if name in best} | {"batch": best["batch_tokens"]}
        place |= {"params": self.params[size], "replicas": replicas} | ({"sync_every": 30} if replicas else {})
        tokens = {row["tokens"] for row in self.rows if row["seed"] == 2 and place.items() <= row.items()}
        (tokens,) = tokens
        return statistics.mean(row["loss"] for row in self.rows
                               if row["seed"] > 1 and row["tokens"] == tokens and place.items() <= row.items())

    def gap(self, size, replicas):
        """To data-parallel, relative; its standard error is `gap_noise`: a mean of seeds against another."""
        return self.fresh_loss(size, replicas) / self.fresh_loss(size, 0) - 1

    def by_batch(self, size, replicas):
        """The best loss at each batch, each with its own inner rate; one seed."""
        losses = {self.best("rates", size, replicas)["batch_tokens"]: self.best("rates", size, replicas)["loss"]}
        for grid in {cell["grid"] for cell in self.result["cells"] if cell["grid"].startswith("batch-")}:
            best = self.best(grid, size, replicas)
            losses[best["batch_tokens"]] = best["loss"]
        return dict(sorted(losses.items()))


def cell_name(cell):
    name = f"{cell['grid']}, {cell['size']}, {NAMES[cell['replicas']]}"
    if cell.get("sync_every"):
        name += f", H {cell['sync_every']}"
    return name + (f", tokens x{cell['tokens_factor']:g}" if cell["tokens_factor"] != 1 else "")


def verdict(differences, error):
    """Of differences that are above 0 where the finding holds, each with this standard error."""
    mean_error = error / math.sqrt(len(differences))
    mean = statistics.mean(differences)
    if min(differences) > 0 and mean > 2 * mean_error:
        return CONFIRMED
    return NOT if mean < -2 * mean_error or min(differences) < -3 * error else NOISE


def slope(study, gaps):
    """(of the gap over ln N, standard error)"""
    logs = numpy.log([study.params[size] for size in study.sizes])
    return numpy.polyfit(logs, gaps, 1)[0], study.gap_noise / math.sqrt(float(((logs - logs.mean()) ** 2).sum()))


def batch_optimum(losses):
    """Log2 of the minimum of the parabola through the best batch and its neighbours; nothing at a border."""
    batches = list(losses)
    place = batches.index(min(batches, key=losses.get))
    if not 0 < place < len(batches) - 1:
        return None
    near = batches[place - 1 : place + 2]
    square, straight, _ = numpy.polyfit(numpy.log2(near), [losses[batch] for batch in near], 2)
    return -straight / (2 * square)


def percent(value):
    return f"{100 * value:+.2f} %"


def replica_findings(study):
    sizes, replicas = study.sizes, (1, 2, 4)
    gaps = {m: [study.gap(size, m) for size in sizes] for m in replicas}
    said = {m: ", ".join(percent(gap) for gap in gaps[m]) for m in replicas}
    yield ("One replica with an outer step is better than data-parallel, at every size", f"M = 1: {said[1]}",
           verdict([-gap for gap in gaps[1]], study.gap_noise))
    yield ("The loss rises with the number of replicas", f"M = 2: {said[2]}; M = 4: {said[4]}",
           verdict([b - a for less, more in ((1, 2), (2, 4)) for a, b in zip(gaps[less], gaps[more])], study.gap_noise))
    slopes = {m: slope(study, gaps[m]) for m in (2, 4)}
    yield ("The gap to data-parallel shrinks with the size",
           "; ".join(f"M = {m}: {percent(value)} ± {100 * error:.2f} for each unit of ln N" for m, (value, error) in slopes.items()),
           verdict([-value for value, _ in slopes.values()], slopes[2][1]))
    rates = {m: [study.swept(size, m)["outer_lr"] for size in sizes] for m in replicas}
    means = [statistics.mean(rates[m]) for m in replicas]
    grows = means[0] <= means[1] <= means[2] and means[2] - means[0] > OUTER_RATE_STEP / 2
    yield ("The best outer rate grows with the number of replicas",
           "; ".join(f"M = {m}: {', '.join(f'{rate:g}' for rate in rates[m])}" for m in replicas),
           CONFIRMED if grows else NOT if means[2] - means[0] < -OUTER_RATE_STEP / 2 else "within half a step of the grid")
    yield ("and not with the size: within one step of the grid, 0.2", "as above",
           CONFIRMED if all(max(rates[m]) - min(rates[m]) <= OUTER_RATE_STEP + 1e-9 for m in replicas) else NOT)


def batch_findings(study):
    sizes = [size for size in study.sizes if study.best("batch-1024", size, 0)]
    curves = {m: [study.by_batch(size, m) for size in sizes] for m in (0, 1, 2)}
    optima = {m: [batch_optimum(losses) for losses in curves[m]] for m in curves}
    shown = "; ".join(f"{NAMES[m]}: " + ", ".join("at the border" if v is None else f"2^{v:.1f}" for v in optima[m]) for m in optima)
    found = [value for values in optima.values() for value in values]
    grows = None not in found and statistics.mean(optima[0]) < statistics.mean(optima[1]) < statistics.mean(optima[2])
    yield ("The best batch, of all replicas together, grows with their number", f"tokens, by size: {shown}",
           CONFIRMED if grows else "not settled: at the border" if None in found else NOT)
    rises = {m: [losses[4096] / losses[2048] - 1 for losses in curves[m]] for m in (0, 1)}
    yield ("One replica bears a doubled batch better than data-parallel", "2,048 to 4,096 tokens: " + "; ".join(
        f"{NAMES[m]}: {', '.join(map(percent, rises[m]))}" for m in rises),
           verdict([a - b for a, b in zip(rises[0], rises[1])], 2 * study.noise))


def period_findings(study):
    (size,) = {key[1] for key in study.cells if key[0] == "period"}
    replicas = sorted({key[2] for key in study.cells if key[0] == "period"})
    loss = {(m, h): study.best("period", size, m, sync_every=h)["loss"] for m in replicas for h in (1, 10, 30, 100)}
    error = math.sqrt(2) * study.noise
    yield ("The loss rises slowly with H: under 1 % from 10 to 100",
           "; ".join(f"M = {m}: " + ", ".join(f"H {h} {loss[m, h]:.4f}" for h in (1, 10, 30, 100)) for m in replicas),
           verdict([0.01 - (loss[m, 100] / loss[m, 10] - 1) for m in replicas], error))
    yield ("H = 1 is worse than H = 30", "as above", verdict([loss[m, 1] / loss[m, 30] - 1 for m in replicas], error))


def overtraining_findings(study):
    (size,) = {key[1] for key in study.cells if key[0] == "overtraining"}
    over = {f: {m: study.best("overtraining", size, m, f)["loss"] for m in NAMES} for f in (1, 4)}
    ratios = {f: {m: over[f][m] / over[f][0] - 1 for m in (1, 2, 4)} for f in over}
    yield ("With four times the tokens and the same settings the gaps do not widen",
           "; ".join(f"M = {m}: {percent(ratios[1][m])}, then {percent(ratios[4][m])}" for m in (1, 2, 4)),
           verdict([ratios[1][m] - ratios[4][m] for m in (1, 2, 4)], 2 * study.noise))


def task_findings(study):
    """Within a size: over all models both follow the size alone."""
    pairs = []
    for size in study.sizes:
        keys = [study.best("seeds", size, m)["key"] for m in NAMES]
        losses, shares = [study.answers[key]["loss"] for key in keys], [study.answers[key]["accuracy"] for key in keys]
        pairs += [(loss - statistics.mean(losses), share - statistics.mean(shares)) for loss, share in zip(losses, shares)]
    within = statistics.correlation(*zip(*pairs))
    free = len(pairs) - len(study.sizes) - 1
    t = within * math.sqrt(free / (1 - within**2))
    yield ("What the validation loss says of data-parallel and replicas holds for another task",
           f"correlation of loss and share of right answers within a size, {len(pairs)} models: {within:.2f} (t = {t:.1f})",
           CONFIRMED if t < -1.8 else NOT if t > 1.8 else NOISE)  # One side of 5 %, 14 degrees of freedom.


def findings(study):
    """(what the papers say, figures, verdict)."""
    for some in (replica_findings, batch_findings, period_findings, overtraining_findings, task_findings):
        yield from some(study)


def table(head, rows):
    yield from ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def laws(study):
    family = study.result["families"][0]
    fit = family["fit"]
    rows = []
    for one in family["held_out"]:
        rows.append([NAMES[one["replicas"]], f"{one['trained']:.4f}"])
        for law in ("independent", "joint"):
            rows[-1] += [f"{one[law]:.4f}", percent(one[law] / one["trained"] - 1)] if one[law] else ["-", "-"]
    yield from ["## The largest size, predicted", ""]
    yield from table(["", "trained", "independent law", "", "joint law", ""], rows)
    yield from [f"Laws of the {len(study.sizes) - 1} smaller sizes. Of all {len(study.sizes)}, with 95 % intervals:", ""]
    named = [(NAMES[law["replicas"]], law) for law in fit["independent"]] + ([("joint", fit["joint"])] if fit["joint"] else [])
    yield from table(["", "A", "alpha", "beta"], [
        [name] + [f"{law[c]:.4g} [{law[c + '_interval'][0]:.4g}, {law[c + '_interval'][1]:.4g}]" if c in law else ""
                  for c in ("A", "alpha", "beta")] for name, law in named])
    if fit["parametric"]:
        yield from table(["form", "residual at the largest size"],
                         [[f"`{form['form']}`", f"{form['residual']:.4f}"] for form in fit["parametric"]])
    yield from ["Where all sizes have one batch, small models have few steps and few rounds. The law of the smaller sizes, of one seed:",
                ""]
    one, best = of_one_batch(study), of_best_runs(study)
    yield from table(["", "one batch: alpha", "at the largest", "the best batch: alpha", "at the largest"], [
        [NAMES[m], f"{one[m][0]:.4f}", percent(one[m][1]), f"{best[m][0]:.4f}", percent(best[m][1])] for m in NAMES])


def held_out(study, place):
    """By replicas (exponent, how far it is off at the largest) of the law of the smaller sizes' best places."""
    laws = {}
    for m in NAMES:
        logs = numpy.log([[study.params[size], place(size, m)["loss"]] for size in study.sizes])
        law = numpy.polyfit(logs[:-1, 0], logs[:-1, 1], 1)
        laws[m] = law[0], math.exp(numpy.polyval(law, logs[-1, 0]) - logs[-1, 1]) - 1
    return laws


def of_one_batch(study):
    return held_out(study, lambda size, m: study.best("rates", size, m))


def of_best_runs(study):
    """As the papers have it: each size's best run, whatever its batch and rates."""
    return held_out(study, study.swept)


def page(study, machine_hours, questions):
    share = {size: 1 - inside(study, size) for size in study.sizes}
    yield from ["# The laws at small sizes", "",
                f"Written by `make report-scaling`: {study.result['points']} training runs, {study.result['tokens'] / 1e6:.0f} M tokens, "
                f"{machine_hours:.1f} machine-hours. `bench/scaling_study.toml` says what was trained: Python's standard library, "
                f"vocabulary {study.vocabulary:,}, rows of 32 tokens, 20 tokens for each parameter, H = 30. Inner and outer rate are swept "
                "until the best is interior along each, for all sizes with one batch, and again with a batch that grows with the size; "
                f"of all that was tried the best place gets {study.num_seeds - 1} more seed{'s' * (study.num_seeds > 2)}. N counts all "
                "parameters.", ""]
    rows = []
    for size in study.sizes:
        bests = [study.best("seeds", size, m) for m in NAMES]
        rows.append([size, f"{study.params[size]:,.0f}"] + [f"{best['loss']:.4f} ± {best['deviation']:.4f}" for best in bests])
    yield from table(["size", "N", *NAMES.values()], rows)
    yield from ["Loss: nats for each validation token, mean and standard deviation over the seeds. Where the best place is, as tokens of a "
                "step, inner rate and outer rate:", ""]
    yield from table(["size", *NAMES.values()], [[size] + [place_text(study.best("seeds", size, m)) for m in NAMES]
                                                 for size in study.sizes])
    yield from ["![loss over size](scaling.svg)", ""]
    yield from laws(study)
    unseen = "the seed" if study.num_seeds == 2 else f"means of the {study.num_seeds - 1} seeds"
    yield from ["## What the papers find", "",
                f"One run's loss differs by {100 * study.noise:.2f} % from seed to seed (pooled). A finding is confirmed where every figure "
                f"has its sign and their mean is two standard errors from 0. Gaps to data-parallel are of {unseen} "
                "that had no part in choosing the rates; batches, H and four times the tokens are of one seed.", ""]
    yield from table(["finding", "here, by rising size", ""], findings(study))
    border = [cell_name(cell) for cell in study.result["cells"]
              if any(end["end"] != "interior" or end["beside_failed"] for end in cell["axes"].values())]
    yield from [f"{len(border)} of {len(study.result['cells'])} cells have their best setting at a border of what was tried"
                + (": " + "; ".join(border) if border else "") + ".", "", "## Which continuation is the true one", "", questions, ""]
    rows = []
    for size in study.sizes:
        found = [study.answers[study.best("seeds", size, m)["key"]] for m in NAMES]
        rows.append([size] + [f"{100 * one['accuracy']:.1f} ± {100 * one['error']:.1f} %" for one in found])
    yield from table(["size", *NAMES.values()], rows)
    yield from ["## How far this carries", "",
                "Five sizes within a factor of sixteen (inside the layers), and models in which the embedding is "
                f"{100 * share[study.sizes[-1]]:.0f} to {100 * share[study.sizes[0]]:.0f} % of N: the exponents are those of this text, "
                "vocabulary and range, not of large models. Rows of 32 tokens and batches of some dozen rows make a replica's share of a "
                "batch small, so that many replicas cost more here than in the papers. What does carry is the way: the same command, with larger "
                "sizes and a user's own text, says what these numbers say."]


def place_text(best):
    outer_rate = [f"{best['outer_lr']:g}"] if "outer_lr" in best else []
    return ", ".join([f"{best['batch_tokens']:,.0f}", f"{best['lr']:.2g}", *outer_rate])


def inside(study, size):
    """The share of a size's parameters that is not embedding."""
    settings = study.points[study.best("seeds", size, 0)["key"]]["settings"]
    return 1 - int(settings["model.vocab_size"]) * int(settings["model.hidden_size"]) / study.params[size]
