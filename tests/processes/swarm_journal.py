"""What a coordinator's journal says, read without Atoll: commits, members, and who was given which rows.

The layout is that of atoll/base/record_log.h and atoll/coordinator/book.cpp; the rules of the leases are those of
atoll/swarm/leases.h, on plain lists, so that a mistake there is found here.
"""
import collections
import dataclasses
import pathlib
import struct

MAGIC = b"ATOLLOG1"
NO_FRAGMENT = 1 << 20


@dataclasses.dataclass
class Commit:
    index: int
    attempt: int
    fragment: int
    round: int
    step: int
    digest: str
    members: list
    weights: list
    trained: list
    norms: list


class Fields:
    def __init__(self, data):
        self._data, self._at = data, 0

    def get(self, code):
        value = struct.unpack_from("<" + code, self._data, self._at)[0]
        self._at += struct.calcsize("<" + code)
        return value

    def left(self):
        return len(self._data) - self._at

    def take(self, size):
        self._at += size
        return self._data[self._at - size:self._at]

    def text(self):
        return self.take(self.get("I")).decode()

    def list(self, code):
        return [self.get(code) for _ in range(self.get("I"))]

    def commit(self):
        index, attempt = self.get("Q"), self.get("i")
        fragment, number, step, digest = self.get("i"), self.get("q"), self.get("q"), self.take(32).hex()
        self.get("q"), self.get("q")  # Values, and those of a segment.
        lists = self.list("i"), self.list("q"), self.list("q")
        return Commit(index, attempt, fragment, number, step, digest, *lists, self.list("d") if self.left() else [])


def records(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == MAGIC, path
    at, index = 8, 0
    while at + 16 <= len(data):
        length, number, _ = struct.unpack_from("<IIQ", data, at)
        if number != index or at + 16 + length > len(data):
            break  # Torn by a kill; Atoll checks the checksums.
        yield data[at + 16:at + 16 + length]
        at, index = at + 16 + length, index + 1


class Journal:
    """All that the records say, from the beginning. Fails on a journal that was made short: tests' never get so long."""

    def __init__(self, path):
        self.terms, self.starts, self.commits = [], [], []
        self.names = {}  # Of all members that ever were.
        self.granted = {}  # Number -> its units, in the order in which it trains on them.
        self.removed = set()
        self._first = self._next = 0
        self.counted = []  # (step, unit) of each commit that stands.
        for data in records(path):
            kind, fields = data[0], Fields(data[1:])
            kinds = (self._term, self._run, self._admitted, self._removed, self._granted, self._committed, self._left,
                     self._committed)  # The latter with norms.
            assert kind < len(kinds), f"{path} was made short"
            kinds[kind](fields)

    def repeated_units(self):
        counts = collections.Counter(unit for _, unit in self.counted)
        return {unit: count for unit, count in counts.items() if count > 1}

    def unit(self, number, trained):
        """What member `number` trained on as its `trained`-th (from 1)."""
        return self.granted[number][trained - 1]

    def _term(self, fields):
        self.terms.append(fields.get("Q"))

    def _run(self, fields):
        self.run = fields.text()
        step, replicas = fields.get("q"), fields.get("q")
        self.starts.append(step)
        self.counted = [(at, unit) for at, unit in self.counted if at <= step]  # Later commits are void.
        if step > max((commit.step for commit in self.commits), default=0):
            self._first = self._next = step * replicas  # This journal is younger than the run.
        # All that was ever given out and is not counted is free again, the lowest first.
        if step not in {commit.step for commit in self.commits}:
            self._first = step * replicas  # The checkpoint holds what was learned from the rows up to it.
        free = sorted(set(range(self._first, self._next)) - {unit for _, unit in self.counted})
        while free and free[-1] == self._next - 1:
            self._next = free.pop()
        self._returned, self._consumed = free, {}

    def _admitted(self, fields):
        number, name = fields.get("i"), fields.text()
        if self.names.get(number) == name and number not in self.removed:
            return  # The same member, which has come back.
        assert number not in self.names, "a number given twice"
        self.names[number], self.granted[number], self._consumed[number] = name, [], 0

    def _removed(self, fields):
        number = fields.get("i")
        self.removed.add(number)
        self._revoke(number)

    def _left(self, fields):
        self._revoke(fields.get("i"))

    def _revoke(self, number):
        """What it had not consumed is free, once."""
        self._returned += self.granted[number][self._consumed[number]:]
        self._consumed[number] = len(self.granted[number])

    def _granted(self, fields):
        numbers, count = fields.list("i"), fields.get("q")
        needed = count * len(numbers)
        drawn, self._returned = self._returned[:needed], self._returned[needed:]
        drawn += range(self._next, self._next + needed - len(drawn))
        self._next = max(self._next, drawn[-1] + 1)
        for place, number in enumerate(numbers):
            self.granted[number] += drawn[place::len(numbers)]

    def _committed(self, fields):
        commit = fields.commit()
        self.commits.append(commit)
        for number, weight, trained in zip(commit.members, commit.weights, commit.trained):
            if weight == 0 or number in self.removed:
                continue
            assert trained <= len(self.granted[number]), f"member {number} was not given {trained} units"
            for unit in self.granted[number][self._consumed[number]:trained]:
                self.counted.append((commit.step, unit))
            self._consumed[number] = max(self._consumed[number], trained)
