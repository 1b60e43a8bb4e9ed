"""A page in headless Chromium, spoken to over a pipe (--remote-debugging-pipe: JSON, each message ended by a zero byte)."""
import fcntl
import json
import os
import shutil
import subprocess
import time

DEADLINE_S = 60


def program():
    """Chromium's, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """Of one browser with a profile in that folder. What goes wrong in the page is in `troubles`."""

    def __init__(self, folder, url):
        self.troubles = []
        self._last, self._rest = 0, b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # It speaks over 3 and 4: a shell puts its ends there, which may not be in the way of each other themselves.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        command = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                   f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", *command], pass_fds=theirs,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (theirs_in, theirs_out, *theirs):
            os.close(end)
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def close(self):
        self._session = None
        self._ask("Browser.close")
        self._process.wait(DEADLINE_S)
        os.close(self._in)
        os.close(self._out)

    def evaluate(self, expression):
        reply = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise AssertionError(f"{expression}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def wait(self, expression):
        """Until it is true in the page."""
        end = time.monotonic() + DEADLINE_S
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise AssertionError(f"it does not come: {expression}; the page has '{self.evaluate('document.body.innerText')}', {self.troubles}")
            time.sleep(0.02)

    def type(self, text):
        self._ask("Input.insertText", text=text)

    def press_enter(self):
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r" if kind == "keyDown" else "")

    def _ask(self, method, **parameters):
        self._last += 1
        session = {"sessionId": self._session} if getattr(self, "_session", None) else {}
        os.write(self._out, json.dumps({"id": self._last, "method": method, "params": parameters, **session}).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._last:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            if message.get("method") == "Runtime.exceptionThrown":
                self.troubles.append(message["params"]["exceptionDetails"]["exception"].get("description"))
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.troubles.append(message["params"]["entry"]["text"])

    def _read(self):
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 16)
            if not part:
                raise AssertionError("the browser has ended")
            self._rest += part
        text, self._rest = self._rest.split(b"\0", 1)
        return json.loads(text)
