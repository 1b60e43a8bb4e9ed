"""A gateway over a generator without a model, for the tests of the API."""
import contextlib
import json
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import openai

PROGRAM = ""  # atoll-fake-gateway; whoever runs tests sets it.
DEADLINE_S = 60


@contextlib.contextmanager
def gateway(*words):
    """Its base address."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([PROGRAM, folder, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            code = process.wait(DEADLINE_S)
            process.stdout.close()
            assert code == 0, f"it ended with {code}"


def ask(url, path, body=None, key=None, raw=None):
    """Status, headers, and the JSON or text of a reply."""
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
            text = reply.read().decode()
            status, headers = reply.status, reply.headers
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        status, headers = error.code, error.headers
    return status, headers, json.loads(text) if headers["Content-Type"] == "application/json" else text


class Served(unittest.TestCase):
    """One gateway for all tests of a class."""
    words = ()

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.url = cls.stack.enter_context(gateway(*cls.words))
        cls.client = openai.OpenAI(base_url=cls.url + "/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.stack.close()
