"""The events that a process keeps in its folder (docs/formats.md), as they come.

    events = EventFile(folder)
    mark = len(events.all())
    events.find("island_lost", after=mark, island="b", reason=re.compile("no word"))
"""
import json
import os
import pathlib
import re


class EventFile:
    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "events.jsonl"
        self._number, self._size, self._events = None, 0, []

    def all(self):
        """What was read before is not read again; a line that is not whole yet comes later."""
        try:
            with open(self.path, "rb") as file:
                state = os.fstat(file.fileno())
                if state.st_ino != self._number or state.st_size < self._size:
                    self._number, self._size, self._events = state.st_ino, 0, []
                file.seek(self._size)
                whole = file.read()
        except OSError:
            return self._events
        whole = whole[: whole.rfind(b"\n") + 1]
        self._size += len(whole)
        for line in whole.splitlines():
            try:
                self._events.append(json.loads(line))
            except ValueError:
                pass  # What a kill or a full disk has left of one.
        return self._events

    def find(self, kind, after=0, **fields):
        """The first of that kind, behind so many others, with these fields: values, expressions for texts, or conditions."""
        return next((event for event in self.all()[after:] if is_like(event, kind, **fields)), None)


def is_like(event, kind, **fields):
    return fits(event["kind"], kind) and all(fits(event.get(name), wanted) for name, wanted in fields.items())


def fits(value, wanted):
    if isinstance(wanted, re.Pattern):
        return isinstance(value, str) and wanted.search(value) is not None
    return wanted(value) if callable(wanted) else value == wanted
