#!/usr/bin/env python3
"""The chat page in headless Chromium. Skipped (exit 77) where there is none.

usage: chat_page_test.py FAKE_GATEWAY [unittest arguments]
"""
import contextlib
import json
import sys
import tempfile
import time
import unittest

import browser
import fake_gateway
from fake_gateway import ask, gateway

SKIPPED = 77


class ChatPageTest(unittest.TestCase):
    @contextlib.contextmanager
    def page(self, *words):
        with gateway(*words) as url, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            page = browser.Page(folder, url)
            try:
                yield page, url
            finally:
                page.close()

    def say(self, page, text):
        page.evaluate("document.getElementById('text').focus()")
        page.type(text)
        page.press_enter()

    def lines(self, page, kind):
        return json.loads(page.evaluate(f"JSON.stringify([...document.querySelectorAll('#log .{kind}')].map(one => one.textContent))"))

    def settle(self, page):
        page.wait("document.getElementById('send').textContent === 'Send'")

    def set(self, page, field, value):
        page.evaluate(f"document.getElementById('{field}').value = {json.dumps(value)}")

    def test_a_chat_of_two_turns(self):
        with self.page() as (page, url):
            page.wait("document.getElementById('model').value === 'fake'")
            self.set(page, "temperature", 0)
            self.set(page, "tokens", 5)
            asked = []
            for text in ("abc", "and more"):
                asked.append({"role": "user", "content": text})
                self.say(page, text)
                page.wait(f"document.querySelectorAll('#log .note').length === {(len(asked) + 1) // 2}")
                body = {"model": "fake", "messages": asked, "temperature": 0, "max_completion_tokens": 5}
                wanted = ask(url, "/v1/chat/completions", body)[2]["choices"][0]["message"]["content"]
                self.assertEqual(self.lines(page, "assistant")[-1], wanted)
                asked.append({"role": "assistant", "content": wanted})
            self.assertEqual(self.lines(page, "user"), ["abc", "and more"])
            self.assertRegex(self.lines(page, "note")[-1], r"^5 tokens, [\d.]+ a second; cut at the bound$")
            page.evaluate("document.getElementById('new').click()")
            self.assertEqual(page.evaluate("document.getElementById('log').childElementCount"), 0)
            self.assertEqual(page.troubles, [])

    def test_what_is_said_is_text_and_no_markup(self):
        with self.page() as (page, _):
            self.set(page, "tokens", 3)
            text = "<img src=x onerror='window.caught = 1'><script>window.caught = 2</script>"
            self.say(page, text)
            page.wait("document.querySelectorAll('#log .note').length === 1")
            self.assertEqual(self.lines(page, "user"), [text])
            self.assertEqual(page.evaluate("document.querySelectorAll('#log img, #log script').length"), 0)
            self.assertIsNone(page.evaluate("window.caught"))

    def test_an_answer_that_is_stopped(self):
        with self.page("--token-ms", 50) as (page, url):
            self.say(page, "abc")
            page.wait("[...document.querySelectorAll('#log .assistant')].some(one => one.textContent.length > 2)")
            page.evaluate("document.getElementById('send').click()")
            self.settle(page)
            self.assertEqual(self.lines(page, "error"), [])
            end = time.monotonic() + fake_gateway.DEADLINE_S
            while "atoll_running 0" not in ask(url, "/metrics")[2]:
                self.assertLess(time.monotonic(), end, "it is made on, and nobody reads it")
                time.sleep(0.02)

    def test_a_chat_that_is_begun_in_mid_answer_knows_nothing_of_the_one_before(self):
        with self.page("--token-ms", 50) as (page, url):
            page.wait("document.getElementById('model').value === 'fake'")
            self.set(page, "temperature", "")
            self.say(page, "abc")
            page.wait("[...document.querySelectorAll('#log .assistant')].some(one => one.textContent.length > 2)")
            page.evaluate("document.getElementById('new').click()")
            self.settle(page)
            self.set(page, "tokens", 2)
            self.say(page, "hi")
            page.wait("document.querySelectorAll('#log .note').length === 1")
            self.assertEqual(page.evaluate("JSON.stringify(messages.map(one => one.role + ' ' + one.content).slice(0, 1))"), '["user hi"]')
            self.assertEqual(page.evaluate("messages.length"), 2)

    def test_what_is_said_before_the_models_are_known_waits_for_them(self):
        with self.page() as (page, _):
            page.wait("document.getElementById('model').value === 'fake'")
            page.evaluate("document.getElementById('model').replaceChildren()")
            page.evaluate("models = new Promise(done => setTimeout(done, 300)).then(loadModels); 0")
            self.set(page, "tokens", 3)
            self.say(page, "abc")
            page.wait("document.querySelectorAll('#log .note').length === 1")
            self.assertEqual(self.lines(page, "error"), [])

    def test_what_was_refused_is_not_said_again(self):
        with self.page() as (page, _):
            page.wait("document.getElementById('model').value === 'fake'")
            self.set(page, "tokens", -1)
            self.say(page, "abc")
            page.wait("document.querySelectorAll('#log .error').length === 1")
            self.assertEqual(page.evaluate("messages.length"), 0)
            self.assertEqual(page.evaluate("document.getElementById('text').value"), "abc")

    def test_a_key_is_needed_and_taken(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("ours 0123456789abcdef\n")
            file.flush()
            with self.page("--keys", file.name) as (page, _):
                page.wait("document.querySelectorAll('#log .note').length === 1")
                self.assertIn("an API key is needed", self.lines(page, "note")[0])
                page.evaluate("document.querySelector('details').open = true; document.getElementById('key').focus()")
                page.type("0123456789abcdef")
                page.evaluate("document.getElementById('key').dispatchEvent(new Event('change'))")
                page.wait("document.getElementById('model').value === 'fake'")
                self.set(page, "tokens", 3)
                self.say(page, "abc")
                page.wait("document.querySelectorAll('#log .note').length === 2")
                self.assertEqual(self.lines(page, "error"), [])


if __name__ == "__main__":
    fake_gateway.PROGRAM = sys.argv.pop(1)
    if browser.program() is None:
        print("there is no Chromium: apt-get install chromium", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
