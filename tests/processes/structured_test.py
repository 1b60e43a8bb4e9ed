#!/usr/bin/env python3
"""Answers of the form that a request asks for, as the openai package and jsonschema have it.

usage: structured_test.py FAKE_GATEWAY [unittest arguments]
"""
import json
import sys
import unittest

import jsonschema
import openai

import fake_gateway
from fake_gateway import Served, ask

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "kind": {"enum": ["reef", "lagoon"]},
        "depth": {"type": "integer", "minimum": 0, "maximum": 999},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 3},
    },
    "required": ["name", "kind", "depth"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "island", "strict": True, "schema": SCHEMA}}
MESSAGES = [{"role": "user", "content": "abc"}]


def function(name, properties):
    return {"type": "function", "function": {"name": name, "description": f"The {name}.", "strict": True, "parameters": {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}}}


TOOLS = [function("weather", {"city": {"type": "string", "minLength": 2, "maxLength": 6}}), function("now", {})]
PARAMETERS = {one["function"]["name"]: one["function"]["parameters"] for one in TOOLS}


class JsonTest(Served):
    words = ("--context", 1024)  # Space between values may be long.

    def chat(self, **more):
        return self.client.chat.completions.create(model="fake", messages=MESSAGES, **more)

    def test_answers_are_right_by_the_schema_at_any_temperature(self):
        for seed in range(12):
            choice = self.chat(response_format=FORMAT, seed=seed, temperature=seed / 6).choices[0]
            self.assertEqual(choice.finish_reason, "stop")
            jsonschema.validate(json.loads(choice.message.content), SCHEMA)

    def test_each_of_n_answers_and_the_same_seed_again(self):
        first, again = (self.chat(response_format=FORMAT, seed=3, temperature=2, n=4) for _ in range(2))
        texts = [one.message.content for one in first.choices]
        for text in texts:
            jsonschema.validate(json.loads(text), SCHEMA)
        self.assertEqual(texts, [one.message.content for one in again.choices])
        self.assertGreater(len(set(texts)), 1)
        alone = self.chat(response_format=FORMAT, seed=5, temperature=2).choices[0].message.content
        self.assertEqual(alone, texts[2])

    def test_streams_are_the_answer_in_pieces(self):
        whole = self.chat(response_format=FORMAT, temperature=0).choices[0].message.content
        chunks = list(self.chat(response_format=FORMAT, temperature=0, stream=True))
        self.assertEqual("".join(one.choices[0].delta.content or "" for one in chunks), whole)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")

    def test_objects_and_the_bound(self):
        close = {str(3 + ord("}")): 100}
        choice = self.chat(response_format={"type": "json_object"}, logit_bias=close).choices[0]
        self.assertEqual((json.loads(choice.message.content), choice.finish_reason), ({}, "stop"))
        choice = self.chat(response_format=FORMAT, max_tokens=5).choices[0]
        self.assertEqual((len(choice.message.content), choice.finish_reason), (5, "length"))
        self.assertEqual(self.chat(response_format={"type": "text"}, temperature=0, max_tokens=2).choices[0].message.content, ";<")

    def test_completions_and_the_names_of_vllm(self):
        def complete(**extra):
            return self.client.completions.create(model="fake", prompt="abc", max_tokens=200, temperature=0, extra_body=extra).choices[0].text
        for extra in ({"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}, {"response_format": FORMAT},
                      {"structured_outputs": {"json": SCHEMA}}):
            jsonschema.validate(json.loads(complete(**extra)), SCHEMA)
        for extra in ({"guided_choice": ["yes", "no", "no way"]}, {"structured_outputs": {"choice": ["yes", "no"]}}):
            self.assertIn(complete(**extra), ("yes", "no", "no way"))

    def test_scores_are_the_model_s_own(self):
        content = self.chat(response_format=FORMAT, temperature=0, logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.assertEqual(content[0].token, "{")
        self.assertEqual(content[0].top_logprobs[0].token, ";")
        self.assertLess(content[0].logprob, content[0].top_logprobs[0].logprob)

    def test_responses(self):
        text = {"format": {"type": "json_schema", "name": "island", "schema": SCHEMA, "strict": True}}
        reply = self.client.responses.create(model="fake", input="abc", text=text)
        self.assertEqual(reply.status, "completed")
        jsonschema.validate(json.loads(reply.output_text), SCHEMA)
        self.assertEqual(reply.text.format.name, "island")


class ToolsTest(Served):
    """Of each form in which models call tools."""
    words = ("--tools", "tools <tool_call>")

    def chat(self, **more):
        return self.client.chat.completions.create(model="fake", messages=MESSAGES, tools=TOOLS, **more)

    def check(self, call):
        self.assertEqual(call.type, "function")
        self.assertRegex(call.id, "^[a-z0-9]{9}$")
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS[call.function.name])

    def test_a_call_is_made_where_it_is_required(self):
        for seed in range(6):
            choice = self.chat(tool_choice="required", parallel_tool_calls=False, temperature=1, seed=seed).choices[0]
            self.assertEqual(choice.finish_reason, "tool_calls")
            self.assertIsNone(choice.message.content)
            self.assertEqual(len(choice.message.tool_calls), 1)
            self.check(choice.message.tool_calls[0])

    def test_one_that_is_named(self):
        for name in PARAMETERS:
            calls = self.chat(tool_choice={"type": "function", "function": {"name": name}}).choices[0].message.tool_calls
            self.assertEqual([one.function.name for one in calls], [name])
            self.check(calls[0])

    def test_streams_have_the_same_calls(self):
        asked = {"tool_choice": "required", "temperature": 1, "seed": 4, "n": 2}
        whole = self.chat(**asked)
        chunks = list(self.chat(stream=True, **asked))
        for index in (0, 1):
            calls = []
            mine = [one.choices[0] for one in chunks if one.choices[0].index == index]
            for piece in (call for one in mine for call in one.delta.tool_calls or ()):
                if piece.index == len(calls):
                    calls.append([piece.id, piece.function.name, ""])
                calls[piece.index][2] += piece.function.arguments
            wanted = whole.choices[index].message.tool_calls
            self.assertEqual([one[1:] for one in calls], [[one.function.name, one.function.arguments] for one in wanted])
            self.assertEqual(mine[-1].finish_reason, whole.choices[index].finish_reason)
            self.assertTrue(all(one.delta.content is None for one in mine))
        with self.client.chat.completions.stream(model="fake", messages=MESSAGES, tools=TOOLS, tool_choice="required",
                                                 parallel_tool_calls=False) as stream:
            final = stream.get_final_completion().choices[0]
        self.assertEqual(final.finish_reason, "tool_calls")
        self.check(final.message.tool_calls[0])

    def test_with_auto_it_may_be_text(self):
        choice = self.chat(temperature=0, max_tokens=4).choices[0]
        self.assertEqual((choice.message.content, choice.message.tool_calls, choice.finish_reason), (";<=>", None, "length"))
        streamed = list(self.chat(temperature=0, max_tokens=4, stream=True))
        self.assertEqual("".join(one.choices[0].delta.content or "" for one in streamed), ";<=>")
        self.assertIsNone(self.chat(tool_choice="none", max_tokens=4).choices[0].message.tool_calls)

    def test_what_is_cut_off(self):
        choice = self.chat(tool_choice={"type": "function", "function": {"name": "weather"}}, max_tokens=30).choices[0]
        self.assertEqual(choice.finish_reason, "length")

    def test_calls_and_results_go_through_the_template(self):
        call = {"id": "123456789", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        messages = [*MESSAGES, {"role": "assistant", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "123456789", "content": "sun"}]
        ids = ask(self.url, "/tokenize", {"messages": messages})[2]["tokens"]
        text = ask(self.url, "/detokenize", {"tokens": ids})[2]["prompt"]
        self.assertIn("u:abc;a:weatherOslo;t:sun;a:", text)
        self.assertTrue(self.client.chat.completions.create(model="fake", messages=messages, tools=TOOLS, max_tokens=2).choices)

    def test_responses(self):
        tools = [{"type": "function", **one["function"]} for one in TOOLS]
        asked = {"model": "fake", "input": "abc", "tools": tools, "tool_choice": {"type": "function", "name": "weather"}, "temperature": 0}
        reply = self.client.responses.create(**asked)
        self.assertEqual([one.type for one in reply.output], ["function_call"])
        jsonschema.validate(json.loads(reply.output[0].arguments), PARAMETERS["weather"])
        with self.client.responses.stream(**asked) as stream:
            events = list(stream)
            final = stream.get_final_response()
        self.assertEqual(final.output[0].arguments, reply.output[0].arguments)
        kinds = [one.type for one in events]
        for kind in ("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"):
            self.assertIn(f"response.{kind}", kinds)
        items = [{"role": "user", "content": "abc"}, reply.output[0].model_dump(), {
            "type": "function_call_output", "call_id": reply.output[0].call_id, "output": "sun"}]
        again = self.client.responses.create(model="fake", input=items, tools=tools, max_output_tokens=4, temperature=0)
        self.assertEqual(again.output_text, ";<=>")


class Llama3ToolsTest(ToolsTest):
    words = ("--tools", 'tools <|start_header_id|> "parameters"')


class MistralToolsTest(ToolsTest):
    words = ("--tools", "tools [TOOL_CALLS]")


class ToolsInWordsTest(Served):
    """Of a model whose template knows of no tools."""
    words = ("--tools", "", "--context", 2048)

    def test_they_are_said_in_the_first_message(self):
        reply = self.client.chat.completions.create(model="fake", messages=MESSAGES, tools=TOOLS, tool_choice="required",
                                                    parallel_tool_calls=False)
        self.assertGreater(reply.usage.prompt_tokens, 400)
        self.assertEqual(reply.choices[0].finish_reason, "tool_calls")
        call = reply.choices[0].message.tool_calls[0]
        messages = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
                    {"role": "tool", "tool_call_id": call.id, "content": "sun"}]
        ids = ask(self.url, "/tokenize", {"messages": messages})[2]["tokens"]
        text = ask(self.url, "/detokenize", {"tokens": ids})[2]["prompt"]
        self.assertIn("a:<tool_call>\n", text)
        self.assertIn("u:<tool_response>\nsun\n</tool_response>", text)


class BadFormsTest(Served):
    def refusal(self, **more):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="fake", messages=MESSAGES, extra_body=more)
        return caught.exception.param, caught.exception.body["message"]

    def schema(self, schema):
        param, message = self.refusal(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        self.assertEqual(param, "response_format.json_schema.schema")
        return message

    def test_schemas_that_nothing_satisfies_or_that_recur_without_end(self):
        self.schema({"type": "integer", "minimum": 3, "maximum": 2})
        self.schema({"type": "object", "properties": {"a": False}, "required": ["a"]})
        self.schema({"$ref": "#"})
        self.schema({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})
        self.schema(False)

    def test_keywords_that_are_not_supported_are_named_with_their_place(self):
        message = self.schema({"type": "object", "properties": {"a": {"unevaluatedItems": False}}})
        self.assertIn("unevaluatedItems", message)
        self.assertIn("/properties/a", message)
        self.assertIn("propertes", self.schema({"type": "object", "propertes": {}}))
        self.assertIn("type", self.schema({"type": "shoe"}))

    def test_schemas_that_are_huge(self):
        self.schema({"enum": ["x" * 300_000]})
        self.schema({"type": "object", "properties": {f"p{i}": {"type": "integer", "multipleOf": 4999} for i in range(300)}})
        self.schema({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(4000)}})
        self.schema({"oneOf": [{"type": "object", "properties": {"kind": {"const": i}}, "required": ["kind"]} for i in range(500)]})

    def test_formats(self):
        for value, param in (
            ("json", "response_format"), ({}, "response_format.type"), ({"type": "xml"}, "response_format.type"),
            ({"type": "json_schema"}, "response_format.json_schema"),
            ({"type": "json_schema", "json_schema": {"schema": {}}}, "response_format.json_schema.name"),
            ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema.schema"),
            ({"type": "json_schema", "json_schema": {"name": "x", "schema": []}}, "response_format.json_schema.schema"),
            ({"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "stict": True}}, "response_format.json_schema.stict"),
        ):
            self.assertEqual(self.refusal(response_format=value)[0], param)
        self.assertEqual(self.refusal(guided_json="{")[0], "guided_json")
        self.assertEqual(self.refusal(guided_choice=[])[0], "guided_choice")
        self.assertEqual(self.refusal(guided_choice=[""])[0], "guided_choice")
        self.assertEqual(self.refusal(guided_choice=[1])[0], "guided_choice")
        self.assertEqual(self.refusal(guided_regex="a")[0], "guided_regex")
        self.assertEqual(self.refusal(guided_choice=["a"], guided_json={})[0], "guided_choice")

    def test_tools(self):
        for tools, param in (
            ({}, "tools"), (["x"], "tools[0]"), ([{"type": "web_search"}], "tools[0].type"),
            ([{"type": "function"}], "tools[0].function"), ([{"type": "function", "function": {}}], "tools[0].function.name"),
            ([{"type": "function", "function": {"name": 3}}], "tools[0].function.name"),
            ([{"type": "function", "function": {"name": "x" * 65}}], "tools[0].function.name"),
            ([{"type": "function", "function": {"name": "x", "parameters": 3}}], "tools[0].function.parameters"),
            ([{"type": "function", "function": {"name": "x", "strict": "yes"}}], "tools[0].function.strict"),
            ([*TOOLS, TOOLS[0]], "tools[2]"),
        ):
            self.assertEqual(self.refusal(tools=tools)[0], param)
        bad = {"type": "function", "function": {"name": "shoe", "parameters": {"type": "object", "unevaluatedProperties": False}}}
        param, message = self.refusal(tools=[*TOOLS, bad])
        self.assertEqual(param, "tools")
        self.assertIn("'shoe'", message)
        self.assertIn("unevaluatedProperties", message)
        self.assertEqual(self.refusal(tool_choice="required")[0], "tool_choice")
        self.assertEqual(self.refusal(tools=TOOLS, tool_choice="any")[0], "tool_choice")
        param, message = self.refusal(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "other"}})
        self.assertEqual(param, "tool_choice")
        self.assertIn("'other'", message)
        self.assertEqual(self.refusal(tools=TOOLS, response_format=FORMAT)[0], "response_format.json_schema.schema")
        self.assertEqual(self.refusal(functions=[{"name": "x"}])[0], "functions")

    def test_calls_in_messages(self):
        def refused(calls):
            messages = [*MESSAGES, {"role": "assistant", "tool_calls": calls}]
            status, _, reply = ask(self.url, "/v1/chat/completions", {"model": "fake", "messages": messages})
            self.assertEqual(status, 400)
            return reply["error"]["param"]
        self.assertEqual(refused({}), "messages[1].tool_calls")
        self.assertEqual(refused([{}]), "messages[1].tool_calls[0].function")
        for arguments in ("{", "[]", 3):
            self.assertEqual(refused([{"function": {"name": "x", "arguments": arguments}}]), "messages[1].tool_calls[0].function.arguments")


if __name__ == "__main__":
    fake_gateway.PROGRAM = sys.argv.pop(1)
    unittest.main()
