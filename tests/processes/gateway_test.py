#!/usr/bin/env python3
"""The API as the openai package has it, and what it refuses.

usage: gateway_test.py FAKE_GATEWAY [unittest arguments]
"""
import sys
import unittest

import openai

import fake_gateway
from fake_gateway import Served, ask


class CompletionsTest(Served):
    def complete(self, prompt, **more):
        return self.client.completions.create(model="fake", prompt=prompt, **{"temperature": 0, **more})

    def test_continues_a_text(self):
        reply = self.complete("abc", max_tokens=5)
        self.assertEqual(reply.choices[0].text, "defgh")
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertTrue(reply.id.startswith("cmpl-"))
        # <s>, the space that the tokenizer puts in front with the first letter, and two bytes.
        self.assertEqual(reply.usage.prompt_tokens, 4)
        self.assertEqual(reply.usage.completion_tokens, 5)

    def test_ends_where_the_model_ends_it_and_at_stop_strings_across_tokens(self):
        self.assertEqual(self.complete("+", max_tokens=50).choices[0].text, ",-.")
        self.assertEqual(self.complete("+").choices[0].finish_reason, "stop")
        stopped = self.complete("abc", stop=["xyz", "hij"]).choices[0]
        self.assertEqual((stopped.text, stopped.finish_reason), ("defg", "stop"))

    def test_prompts_of_all_four_kinds_are_the_same(self):
        ids = ask(self.url, "/tokenize", {"prompt": "abc"})[2]["tokens"]
        for prompt, count in (("abc", 1), (["abc", "abc"], 2), (ids, 1), ([ids, ids], 2)):
            reply = self.complete(prompt, max_tokens=3)
            self.assertEqual([one.text for one in reply.choices], ["def"] * count)
            self.assertEqual([one.index for one in reply.choices], list(range(count)))

    def test_n_answers_differ_and_the_same_seed_gives_the_same(self):
        first = self.complete("abc", n=4, seed=7, temperature=2, max_tokens=12)
        again = self.complete("abc", n=4, seed=7, temperature=2, max_tokens=12)
        texts = [one.text for one in first.choices]
        self.assertEqual(texts, [one.text for one in again.choices])
        self.assertEqual(len(set(texts)), 4)
        self.assertEqual(texts[1], self.complete("abc", seed=8, temperature=2, max_tokens=12).choices[0].text)
        some = self.complete("abc", temperature=2, max_tokens=12)  # Which seed it drew by it tells.
        self.assertEqual(some.choices[0].text, self.complete("abc", seed=some.seed, temperature=2, max_tokens=12).choices[0].text)
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 0)

    def test_scores_of_prompt_and_answer(self):
        reply = self.complete("abc", echo=True, logprobs=2, max_tokens=2)
        choice = reply.choices[0]
        self.assertEqual(choice.text, "abcde")
        scores = choice.logprobs
        self.assertEqual(scores.tokens, ["<s>", " a", "b", "c", "d", "e"])
        self.assertEqual(scores.text_offset, [0, 0, 1, 2, 3, 4])
        self.assertIsNone(scores.token_logprobs[0])
        self.assertTrue(all(-1 < one < 0 for one in scores.token_logprobs[3:]))
        self.assertEqual(len(scores.top_logprobs[3]), 2)
        self.assertEqual(scores.token_logprobs[3], max(scores.top_logprobs[3].values()))
        self.assertEqual(self.complete("abc", echo=True, max_tokens=0).choices[0].text, "abc")

    def test_the_end_of_a_text_has_a_score(self):
        """Who reads scores of a prompt asks for a token more and leaves out the last entry, as lm-evaluation-harness does."""
        ended = self.complete("+", echo=True, logprobs=1, max_tokens=50)
        self.assertEqual((ended.choices[0].text, ended.choices[0].finish_reason, ended.usage.completion_tokens), ("+,-.", "stop", 3))
        scores = ended.choices[0].logprobs
        self.assertEqual(scores.tokens[-4:], [",", "-", ".", "</s>"])
        self.assertLess(scores.token_logprobs[-1], 0)
        self.assertEqual(scores.text_offset[-1], 4)
        chunks = list(self.complete("+", logprobs=1, max_tokens=50, stream=True))
        told = [token for one in chunks if one.choices[0].logprobs for token in one.choices[0].logprobs.tokens]
        self.assertEqual(told[-1], "</s>")

    def test_bias_and_penalties(self):
        x = 3 + ord("x")
        self.assertEqual(self.complete("abc", logit_bias={str(x): 100}, max_tokens=3).choices[0].text, "xxx")
        once = self.complete("abc", logit_bias={str(x): 20}, max_tokens=2, extra_body={"repetition_penalty": 100})
        self.assertEqual(once.choices[0].text[0], "x")
        self.assertNotEqual(once.choices[0].text, "xx")
        self.assertNotEqual(self.complete("abc", logit_bias={str(x): 10}, presence_penalty=2, frequency_penalty=2,
                                          max_tokens=5).choices[0].text, "xxxxx")

    def test_streams(self):
        chunks = list(self.complete("abc", max_tokens=4, stream=True, logprobs=0, stream_options={"include_usage": True}))
        self.assertEqual("".join(one.choices[0].text for one in chunks[:-1]), "defg")
        self.assertEqual(chunks[-2].choices[0].finish_reason, "length")
        self.assertEqual(chunks[-1].usage.completion_tokens, 4)
        self.assertEqual(chunks[0].choices[0].logprobs.tokens, ["d"])
        self.assertEqual(len({one.id for one in chunks}), 1)
        both = list(self.complete(["abc", "uvw"], max_tokens=3, stream=True))
        self.assertEqual(["".join(one.choices[0].text for one in both if one.choices[0].index == i) for i in (0, 1)],
                         ["def", "xyz"])

    def test_streams_show_whole_characters_and_nothing_of_a_stop(self):
        parts = [one.choices[0].text for one in self.complete("é", max_tokens=30, stream=True, stop="never")]
        self.assertEqual("".join(parts), self.complete("é", max_tokens=30, stop="never").choices[0].text)
        parts = [one.choices[0].text for one in self.complete("abc", stream=True, stop="ghi")]
        self.assertEqual("".join(parts), "def")


class ChatTest(Served):
    def chat(self, text="abc", **more):
        messages = [{"role": "system", "content": "z"}, {"role": "user", "content": text}]
        return self.client.chat.completions.create(model="fake", messages=messages, **{"temperature": 0, **more})

    def test_answers(self):
        reply = self.chat(max_completion_tokens=4)
        self.assertEqual(reply.choices[0].message.content, ";<=>")
        self.assertEqual(reply.choices[0].message.role, "assistant")
        self.assertEqual(reply.choices[0].finish_reason, "length")
        prompt = ask(self.url, "/tokenize", {"messages": [{"role": "system", "content": "z"}, {"role": "user", "content": "abc"}]})[2]
        self.assertEqual(reply.usage.prompt_tokens, prompt["count"])
        self.assertEqual(reply.usage.total_tokens, prompt["count"] + 4)

    def test_parts_of_texts_and_the_new_name_of_system(self):
        parts = [{"role": "developer", "content": [{"type": "text", "text": "z"}]},
                 {"role": "user", "content": [{"type": "text", "text": "abc"}]}]
        reply = self.client.chat.completions.create(model="fake", messages=parts, temperature=0, max_tokens=4)
        self.assertEqual(reply.usage.prompt_tokens, self.chat(max_tokens=4).usage.prompt_tokens)

    def test_streams(self):
        chunks = list(self.chat(max_tokens=4, stream=True, n=2, stream_options={"include_usage": True}))
        for index in (0, 1):
            mine = [one.choices[0] for one in chunks if one.choices and one.choices[0].index == index]
            self.assertEqual(mine[0].delta.role, "assistant")
            self.assertEqual("".join(one.delta.content or "" for one in mine), ";<=>")
            self.assertEqual(mine[-1].finish_reason, "length")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)
        with self.client.chat.completions.stream(model="fake", messages=[{"role": "user", "content": "abc"}],
                                                 temperature=0, max_tokens=3) as stream:
            with self.assertRaises(openai.LengthFinishReasonError):
                stream.get_final_completion()

    def test_scores(self):
        content = self.chat(max_tokens=2, logprobs=True, top_logprobs=3).choices[0].logprobs.content
        self.assertEqual([one.token for one in content], [";", "<"])
        self.assertEqual(content[0].bytes, [ord(";")])
        self.assertEqual(len(content[0].top_logprobs), 3)
        self.assertEqual(content[0].top_logprobs[0].logprob, content[0].logprob)

    def test_fills_the_context_where_no_bound_is_given(self):
        reply = self.chat(stop=None)
        self.assertEqual(reply.usage.total_tokens, 256)
        self.assertEqual(reply.choices[0].finish_reason, "length")


class ResponsesTest(Served):
    def test_answers_as_a_chat_does(self):
        reply = self.client.responses.create(model="fake", input="abc", instructions="z", temperature=0, max_output_tokens=4,
                                             metadata={"a": "b"})
        self.assertEqual(reply.output_text, ";<=>")
        self.assertEqual((reply.status, reply.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertEqual(reply.metadata, {"a": "b"})
        self.assertEqual((reply.usage.output_tokens, reply.usage.total_tokens), (4, reply.usage.input_tokens + 4))
        parts = [{"role": "developer", "content": "z"}, {"role": "user", "content": [{"type": "input_text", "text": "abc"}]}]
        again = self.client.responses.create(model="fake", input=parts, temperature=0, max_output_tokens=4)
        self.assertEqual(again.usage.input_tokens, reply.usage.input_tokens)

    def test_streams_the_events_that_the_client_knows(self):
        with self.client.responses.stream(model="fake", input="abc", temperature=0, max_output_tokens=3,
                                          include=["message.output_text.logprobs"], top_logprobs=2) as stream:
            events = list(stream)
        self.assertEqual([one.type for one in events],
                         ["response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", *["response.output_text.delta"] * 3, "response.output_text.done",
                          "response.content_part.done", "response.output_item.done", "response.incomplete"])
        self.assertEqual([one.sequence_number for one in events], list(range(len(events))))
        self.assertEqual("".join(one.delta for one in events if one.type == "response.output_text.delta"), ";<=")
        self.assertEqual(events[4].logprobs[0].token, ";")
        self.assertEqual(len(events[-1].response.output[0].content[0].logprobs), 3)

    def test_refuses_what_is_not_there(self):
        for field, value in (("previous_response_id", "x"), ("store", True), ("tools", [{"type": "web_search"}]),
                             ("text", {"format": {"type": "xml"}}), ("input", [{"type": "reasoning"}])):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.client.responses.create(**{"model": "fake", "input": "abc", field: value})
            self.assertTrue(caught.exception.param.startswith(field), caught.exception)


class OtherEndpointsTest(Served):
    def test_models(self):
        self.assertEqual([one.id for one in self.client.models.list()], ["fake"])
        self.assertEqual(self.client.models.retrieve("fake").id, "fake")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_embeddings(self):
        numbers = self.client.embeddings.create(model="fake", input=["abc", "abd"], encoding_format="float")
        packed = self.client.embeddings.create(model="fake", input=["abc", "abd"])
        self.assertEqual(len(numbers.data), 2)
        self.assertEqual(len(numbers.data[0].embedding), 8)
        for a, b in zip(numbers.data, packed.data):
            for x, y in zip(a.embedding, b.embedding):
                self.assertAlmostEqual(x, y, places=6)
        self.assertNotEqual(numbers.data[0].embedding, numbers.data[1].embedding)
        self.assertEqual(numbers.usage.prompt_tokens, 8)

    def test_tokens(self):
        for root in ("", "/v1"):
            ids = ask(self.url, root + "/tokenize", {"prompt": "abc", "add_special_tokens": False})[2]["tokens"]
            self.assertEqual(len(ids), 3)
            self.assertEqual(ask(self.url, root + "/detokenize", {"tokens": ids})[2]["prompt"], "abc")
            info = ask(self.url, root + "/tokenizer_info")[2]
            self.assertEqual((info["bos_token"], info["eos_token"]), ("<s>", "</s>"))
            self.assertIn("messages", info["chat_template"])

    def test_health_and_metrics(self):
        self.client.completions.create(model="fake", prompt="abc", max_tokens=3)
        self.assertEqual(ask(self.url, "/health")[2], {"status": "ok"})
        text = ask(self.url, "/metrics")[2]
        self.assertIn('atoll_requests_total{endpoint="/v1/completions",status="200"}', text)
        self.assertRegex(text, r'atoll_time_to_first_token_seconds_bucket\{le="\+Inf"\} [1-9]')
        self.assertRegex(text, r"atoll_inter_token_seconds_count [1-9]")
        self.assertRegex(text, r'atoll_made_tokens_total\{model="fake"\} [1-9]')


class RefusalsTest(Served):
    def refusal(self, path, body=None, raw=None):
        status, headers, reply = ask(self.url, path, body, raw=raw)
        self.assertEqual(set(reply), {"error"}, reply)
        self.assertEqual(set(reply["error"]), {"message", "type", "param", "code"})
        return status, reply["error"]["param"], reply["error"]["message"]

    def test_bad_requests_name_the_field(self):
        good = {"model": "fake", "prompt": "abc", "max_tokens": 1}
        chat = {"model": "fake", "messages": [{"role": "user", "content": "x"}]}
        cases = [
            ("/v1/completions", {**good, "max_tokens": 10**12}, "max_tokens"),
            ("/v1/completions", {**good, "max_tokens": 257}, "max_tokens"),
            ("/v1/completions", {**good, "max_tokens": "1"}, "max_tokens"),
            ("/v1/completions", {**good, "n": 1000}, "n"),
            ("/v1/completions", {**good, "n": 20, "prompt": ["a", "b"]}, "n"),
            ("/v1/completions", {**good, "temperature": -1}, "temperature"),
            ("/v1/completions", {**good, "temperature": True}, "temperature"),
            ("/v1/completions", {**good, "top_p": 0}, "top_p"),
            ("/v1/completions", {**good, "stop": [""]}, "stop"),
            ("/v1/completions", {**good, "stop": 3}, "stop"),
            ("/v1/completions", {**good, "logit_bias": {"x": 1}}, "logit_bias"),
            ("/v1/completions", {**good, "logit_bias": {"300": 1}}, "logit_bias"),
            ("/v1/completions", {**good, "logprobs": 21}, "logprobs"),
            ("/v1/completions", {**good, "prompt": "a" * 300}, "prompt"),
            ("/v1/completions", {**good, "prompt": [1, 300]}, "prompt"),
            ("/v1/completions", {**good, "prompt": [1, -1]}, "prompt"),
            ("/v1/completions", {**good, "prompt": [1, "a"]}, "prompt"),
            ("/v1/completions", {**good, "prompt": []}, "prompt"),
            ("/v1/completions", {**good, "prompt": {}}, "prompt"),
            ("/v1/completions", {"model": "fake"}, "prompt"),
            ("/v1/completions", {"prompt": "a"}, "model"),
            ("/v1/completions", {**good, "suffix": "x"}, "suffix"),
            ("/v1/completions", {**good, "temprature": 1}, "temprature"),
            ("/v1/completions", {**good, "stream_options": {}}, "stream_options"),
            ("/v1/completions", {**good, "stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
            ("/v1/chat/completions", {**chat, "messages": []}, "messages"),
            ("/v1/chat/completions", {**chat, "messages": [{"role": "user"}]}, "messages[0].content"),
            ("/v1/chat/completions", {**chat, "messages": [{"content": "x"}]}, "messages[0]"),
            ("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
             "messages[0].content"),
            ("/v1/chat/completions", {**chat, "top_logprobs": 1}, "top_logprobs"),
            ("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": "x" * 300}]}, "messages"),
            ("/v1/embeddings", {"model": "fake", "input": "x", "encoding_format": "hex"}, "encoding_format"),
            ("/tokenize", {"prompt": 1}, "prompt"),
            ("/detokenize", {"tokens": ["a"]}, "tokens"),
            ("/detokenize", {"tokens": [100000]}, "tokens"),
        ]
        for path, body, param in cases:
            status, found, message = self.refusal(path, body)
            self.assertEqual((status, found), (400, param), (body, message))
            self.assertIn(param.split("[")[0], message)

    def test_bad_bodies(self):
        for raw in (b"", b"{", b"[]", b'"x"', b'{"model": "\xff"}', b"[" * 100000, b'{"a":' * 100 + b"1" + b"}" * 100,
                    b'{"model": "fake", "prompt": 1e999}'):
            self.assertEqual(self.refusal("/v1/completions", raw=raw)[0], 400, raw[:40])

    def test_unknown_models_paths_and_methods(self):
        self.assertEqual(self.refusal("/v1/completions", {"model": "x", "prompt": "a"})[:2], (404, "model"))
        self.assertEqual(self.refusal("/v1/nothing", {})[0], 404)
        self.assertEqual(self.refusal("/v1/completions")[0], 405)
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="x", prompt="a")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="fake", prompt="a", n=1000)
        self.assertEqual(caught.exception.param, "n")

    def test_half_a_surrogate_pair_and_strange_texts(self):
        for prompt in ("\ud800x", "\u0000", "</s>", "<s><s>", ""):
            status, _, reply = ask(self.url, "/v1/completions", {"model": "fake", "prompt": prompt})
            self.assertEqual(status, 200, (prompt, reply))


if __name__ == "__main__":
    fake_gateway.PROGRAM = sys.argv.pop(1)
    unittest.main()
