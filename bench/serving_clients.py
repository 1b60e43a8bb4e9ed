"""The openai package against a swarm's gateway, and scores beside those of transformers, for claims_serving.py: a count of what is wrong."""
import contextlib
import functools
import json
import sys
import typing

import jsonschema
import openai
import pydantic
from served import TEXT, model, spans, swarm_of
from serving_swarm import client_of

NUM_ASKED = 5
PROMPTS = [TEXT[400 * i : 400 * i + 120] for i in range(NUM_ASKED)]
MESSAGES = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is {i} and {i}?"}] for i in range(NUM_ASKED)]


class Place(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=20)]
    kind: typing.Literal["city", "island", "river"]
    tags: typing.Annotated[list[typing.Annotated[str, pydantic.Field(max_length=10)]], pydantic.Field(max_length=3)]


TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a place", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["place", "unit"], "additionalProperties": False}}}


class Checks:
    """Each method: how many of its answers are not as they must be."""

    def __init__(self, url):
        self.client = client_of(url)

    def streams(self):
        wrong = 0
        for number, prompt in enumerate(PROMPTS):
            body = {"model": "mine", "prompt": prompt, "max_tokens": 20, "temperature": 0.8, "seed": number, "logprobs": 1}
            whole = self.client.completions.create(**body)
            chunks = list(self.client.completions.create(**body, stream=True, stream_options={"include_usage": True}))
            texts = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
            scores = [score for chunk in chunks if chunk.choices for score in (chunk.choices[0].logprobs.token_logprobs if chunk.choices[0].logprobs else [])]
            ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
            usage = chunks[-1].usage
            wrong += (texts, scores, ends) != (whole.choices[0].text, whole.choices[0].logprobs.token_logprobs, [whole.choices[0].finish_reason])
            wrong += usage is None or usage.completion_tokens != whole.usage.completion_tokens
        return wrong

    def chats(self):
        wrong = 0
        for number, messages in enumerate(MESSAGES):
            body = {"model": "mine", "messages": messages, "max_completion_tokens": 20, "temperature": 0.8, "seed": number, "logprobs": True,
                    "top_logprobs": 2}
            whole = self.client.chat.completions.create(**body)
            chunks = [chunk.choices[0] for chunk in self.client.chat.completions.create(**body, stream=True)]
            wrong += "".join(chunk.delta.content or "" for chunk in chunks) != whole.choices[0].message.content
            wrong += len(whole.choices[0].logprobs.content) != whole.usage.completion_tokens
            answered = self.client.responses.create(model="mine", input=messages, max_output_tokens=20, temperature=0, store=False)
            greedy = self.client.chat.completions.create(**{**body, "temperature": 0})
            wrong += answered.output_text != greedy.choices[0].message.content
        return wrong

    def tools(self):
        wrong = 0
        for number, messages in enumerate(MESSAGES):
            body = {"model": "mine", "messages": messages, "tools": [TOOL], "tool_choice": "required", "max_completion_tokens": 120, "seed": number,
                    "temperature": 0.8, "parallel_tool_calls": False}
            [choice] = self.client.chat.completions.create(**body).choices
            [call] = choice.message.tool_calls
            arguments = json.loads(call.function.arguments)
            wrong += choice.finish_reason != "tool_calls" or call.function.name != "weather"
            wrong += not jsonschema.Draft202012Validator(TOOL["function"]["parameters"]).is_valid(arguments)
            parts = [part for chunk in self.client.chat.completions.create(**body, stream=True) for part in chunk.choices[0].delta.tool_calls or []]
            wrong += "".join(part.function.arguments or "" for part in parts) != call.function.arguments
            back = [*messages, choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "mild"}]
            wrong += not self.client.chat.completions.create(model="mine", messages=back, max_completion_tokens=4).choices
        return wrong

    def forms(self):
        wrong = 0
        for number, messages in enumerate(MESSAGES):
            body = {"model": "mine", "messages": messages, "max_completion_tokens": 200, "seed": number, "temperature": 0.8}
            wrong += not isinstance(self.client.chat.completions.parse(**body, response_format=Place).choices[0].message.parsed, Place)
            answered = self.client.responses.parse(model="mine", input=messages, text_format=Place, max_output_tokens=200, store=False)
            wrong += not isinstance(answered.output_parsed, Place)
            texts = [piece.choices[0].delta.content or "" for piece in self.client.chat.completions.create(
                **body, stream=True, response_format={"type": "json_object"}) if piece.choices]
            with contextlib.suppress(json.JSONDecodeError):  # It may come to its bound.
                wrong += not isinstance(json.loads("".join(texts)), dict)
        return wrong

    def score_difference(self):
        """The largest between the prompts' scores and those of transformers in float32, from the same weights."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        tokenizer, theirs = AutoTokenizer.from_pretrained(model()), AutoModelForCausalLM.from_pretrained(model(), dtype=torch.float32).eval()
        worst = 0.0
        for prompt in PROMPTS:
            asked = self.client.completions.create(model="mine", prompt=prompt, echo=True, logprobs=0, max_tokens=0)
            ids = tokenizer(prompt, return_tensors="pt").input_ids
            with torch.no_grad():
                wanted = torch.log_softmax(theirs(ids).logits[0].double(), -1)
            wanted = wanted[:-1].gather(1, ids[0, 1:, None])[:, 0].tolist()
            found = asked.choices[0].logprobs.token_logprobs
            if len(found) != len(wanted) + 1 or found[0] is not None:
                raise RuntimeError(f"{len(found)} scores for {len(wanted) + 1} tokens")
            worst = max([worst, *(abs(a - b) for a, b in zip(found[1:], wanted))])
        return worst


@functools.cache
def checked():
    with swarm_of("clients", spans(3)) as (_, url):
        checks = Checks(url)
        with contextlib.closing(checks.client):
            found = {what: getattr(checks, what)() for what in ("streams", "chats", "tools", "forms", "score_difference")}
    print(f"openai {openai.__version__}: {json.dumps(found)}", file=sys.stderr)
    return found


def add(claims):
    for what, claim in (("streams", "completions and their streams, with scores and usage"), ("chats", "chats, their streams and responses"),
                        ("tools", "calls of tools, their streams, and results"), ("forms", "structured output: parse() of chats and responses")):
        claims.measured(f"the openai package and a swarm, {claim}: wrong", functools.partial(lambda what: checked()[what], what), lambda n: n == 0, "0", "{}")
    claims.measured("and scores of prompts beside those of transformers: difference at most", lambda: checked()["score_difference"], lambda d: d <= 1e-4,
                    "<= 1e-4", "{:.1e}")
