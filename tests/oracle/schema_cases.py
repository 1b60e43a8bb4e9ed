"""Random JSON schemas as programs write them for models, and random values that are nearly right by them."""
import json

NAMES = ["id", "name", "age", "email", "tags", "items", "size", "a b", "größe", "x\"y", "nested", "kind", "value"]
WORDS = ["", "a", "ab", "red", "green", "blue", "x1", "äöü", "line\nbreak", "quote\"d", "back\\slash", "2024-02-29"]
PATTERNS = ["^[a-z]{1,4}$", "^[A-Z]{2}-\\d{3}$", "ab", "^(red|green|blue)$", "^\\w+@\\w+\\.com$", "^[^,]*$", "\\d$"]
FORMATS = {
    "date": ["2024-02-29", "1999-12-31"], "time": ["10:00:00Z", "23:59:59.25-08:30"],
    "date-time": ["2001-01-31T23:59:59.5+01:00"], "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "email": ["a@b.com", "first.last+tag@example.org"], "ipv4": ["1.2.3.4", "255.0.249.199"],
    "ipv6": ["::1", "fe80::1:2", "1:2:3:4:5:6:7:8"], "uri": ["http://x.org/a?b#c", "urn:isbn:1", "https://u@h:8080/p%20q"],
    "hostname": ["example.org", "a-b.c"], "duration": ["P1DT2H", "PT5M", "P2W", "P1Y2M3D"],
}


class SchemaMaker:
    def __init__(self, random):
        self.random = random
        self.defs = None

    def schema(self):
        """A whole schema, sometimes with $defs that refer to themselves."""
        self.defs = None
        if self.random.random() < 0.3:
            self.defs = ["node", "leaf"]
        schema = self.object(3)
        if self.random.random() < 0.15:
            schema = self.any(3)
        if self.defs and isinstance(schema, dict):
            self.defs, names = None, self.defs
            node = self.object(1)
            node.setdefault("properties", {})["next"] = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}
            schema = {**schema, "$defs": {"node": node, "leaf": self.scalar()}}
            assert names
        return schema

    def any(self, depth):
        roll = self.random.random()
        if self.defs and roll < 0.1:
            return {"$ref": "#/$defs/" + self.random.choice(self.defs)}
        if depth <= 0 or roll < 0.5:
            return self.scalar()
        if roll < 0.7:
            return self.object(depth - 1)
        if roll < 0.85:
            return self.array(depth - 1)
        return self.composed(depth - 1)

    def scalar(self):
        random = self.random
        make = random.choice([self.string, self.string, self.string, self.integer, self.integer, self.number, self.choice,
                              lambda: {"type": "boolean"}, lambda: {"type": ["string", "null"]}, lambda: {"type": "null"},
                              lambda: {"const": random.choice(WORDS)}])
        schema = make()
        if random.random() < 0.3:
            schema["description"] = "Some words."
        return schema

    def string(self):
        random = self.random
        schema = {"type": "string"}
        roll = random.random()
        if roll < 0.2:
            schema["minLength"] = random.randrange(4)
        if 0.1 < roll < 0.35:
            schema["maxLength"] = random.choice([3, 8, 50, 10000])
        if 0.3 < roll < 0.5:
            schema["pattern"] = random.choice(PATTERNS)
        elif 0.5 < roll < 0.65:
            schema["format"] = random.choice(list(FORMATS))
        return schema

    def integer(self):
        random = self.random
        schema = {"type": "integer"}
        if random.random() < 0.4:
            schema["minimum"] = random.choice([0, 1, -5, -1000])
        if random.random() < 0.3:
            schema[random.choice(["maximum", "exclusiveMaximum"])] = random.choice([2, 10, 150, 100000])
        if random.random() < 0.1:
            schema["multipleOf"] = random.choice([2, 5, 12])
        return schema

    def number(self):
        random = self.random
        schema = {"type": "number"}
        if random.random() < 0.4:
            schema[random.choice(["minimum", "exclusiveMinimum"])] = random.choice([0, -1.5, 0.001])
        if random.random() < 0.4:
            schema["maximum"] = random.choice([1, 3.75, 1e6])
        if random.random() < 0.1:
            schema["multipleOf"] = random.choice([0.01, 0.5, 2.5])
        return schema

    def choice(self):
        values = self.random.sample(WORDS + [1, 2.5, None, True, [1, "a"], {"k": 1}], self.random.randrange(1, 5))
        return {"enum": values}

    def array(self, depth):
        random = self.random
        schema = {"type": "array", "items": self.any(depth)}
        if random.random() < 0.3:
            schema["minItems"] = random.randrange(3)
        if random.random() < 0.3:
            schema["maxItems"] = random.randrange(2, 5)
        if random.random() < 0.1:
            schema["prefixItems"] = [self.any(depth) for _ in range(random.randrange(1, 3))]
        if random.random() < 0.1:
            schema = {"type": "array", "contains": self.scalar()}
        if random.random() < 0.1:
            schema["uniqueItems"] = True
            schema["items"] = {"enum": random.sample(WORDS, random.randrange(1, 6))}
        return schema

    def object(self, depth):
        random = self.random
        names = random.sample(NAMES, random.randrange(1, 6))
        schema = {"type": "object", "properties": {name: self.any(depth) for name in names}}
        if random.random() < 0.8:
            schema["required"] = random.sample(names, random.randrange(len(names) + 1))
        if random.random() < 0.7:
            schema["additionalProperties"] = random.choice([False, False, {"type": "string"}, True])
        if random.random() < 0.1:
            schema["patternProperties"] = {random.choice(["^x-", "_id$", "^n"]): self.scalar()}
        if random.random() < 0.05:
            schema["maxProperties"] = len(names)
        if random.random() < 0.05:
            schema["minProperties"] = 1
        if random.random() < 0.05 and len(names) > 1:
            schema["dependentRequired"] = {names[0]: [names[1]]}
        if random.random() < 0.05:
            schema = {"type": "object", "additionalProperties": self.any(depth)}
        return schema

    def composed(self, depth):
        random = self.random
        roll = random.random()
        if roll < 0.5:
            return {"anyOf": [self.any(depth) for _ in range(random.randrange(2, 4))]}
        if roll < 0.65:
            return {"allOf": [self.object(depth), {"required": [random.choice(NAMES)]}]}
        if roll < 0.8:
            return {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind}, "value": self.any(depth)},
                               "required": ["kind"], "additionalProperties": False} for kind in ("a", "b", "c")]}
        if roll < 0.9:
            return {"oneOf": [{"type": "string"}, {"type": "integer"}, self.array(depth)]}
        return {"type": "string", "not": {"enum": random.sample(WORDS, 3)}}


class NegationMaker(SchemaMaker):
    """Schemas that are hard to keep to: what is not so, what must differ, what must be found some times."""

    def schema(self):
        self.defs = None
        return self.composed(2)

    def composed(self, depth):
        random = self.random
        roll = random.random()
        if roll < 0.3:
            return {"not": self.any(depth)}
        if roll < 0.6:
            return {**self.any(depth), "not": self.any(depth)}
        if roll < 0.7:
            return {"oneOf": [self.any(depth), self.any(depth)]}
        if roll < 0.8:
            return {"if": self.any(depth), "then": self.any(depth), "else": self.any(depth)}
        if roll < 0.85:
            return {"type": "array", "contains": self.any(depth), "minContains": random.randrange(3),
                    "maxContains": random.randrange(1, 3)}
        if roll < 0.9:
            values = [1, [1, 2], [], {"a": 1}, {"name": "a", "id": 2}, "x", [[1]]]
            return {"enum": random.sample(values, 3), "not": {"enum": random.sample(values, 2)}}
        return {"type": "array", "prefixItems": [self.scalar() for _ in range(random.randrange(3))], "uniqueItems": True,
                "items": random.choice([{"type": ["boolean", "null"]}, {"enum": ["a", 1, 2.5, [1]]}, False]),
                "maxItems": random.randrange(1, 5)}


def any_value(random, depth):
    """A value that has nothing to do with a schema."""
    roll = random.random()
    if depth and roll < 0.2:
        return [any_value(random, depth - 1) for _ in range(random.randrange(4))]
    if depth and roll < 0.4:
        return {name: any_value(random, depth - 1) for name in random.sample(NAMES, random.randrange(3))}
    return random.choice([None, True, False, 0, 1, 2.5, 7, -3, 150, 0.5, "a", [], [1, 2], [1], [[1]], {}, {"a": 1}] + WORDS)


def value_for(schema, root, random, depth=0):
    """A value that looks like the schema wants it; right often enough."""
    if not isinstance(schema, dict) or depth > 12:
        return random.choice([None, True, 3, "a", [], {}])
    if "$ref" in schema:
        return value_for(root["$defs"][schema["$ref"].split("/")[-1]], root, random, depth + 1)
    if "enum" in schema and "items" not in schema:
        return random.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return value_for(random.choice(schema[key]), root, random, depth + 1)
    kind = schema.get("type", "null")
    kind = random.choice(kind) if isinstance(kind, list) else kind
    if random.random() < 0.02:
        kind = "boolean"
    if kind == "string":
        if "format" in schema:  # Right ones only: what is wrong, jsonschema does not know of each.
            return random.choice(FORMATS[schema["format"]])
        if "pattern" in schema:
            return random.choice(WORDS + ["AB-123", "abcd", "me@x.com", "a\"7", "ab3", "green"])
        return random.choice(WORDS)
    if kind == "integer":
        return random.choice([0, 1, 2, 5, 10, 60, -3, schema.get("minimum", 7), schema.get("maximum", 150)])
    if kind == "number":
        return random.choice([0, 1, 0.5, 2.5, -1.5, 3.75, 100, 0.01, 0.375])
    if kind == "array":
        size = random.randrange(schema.get("minItems", 0), schema.get("maxItems", 3) + 1) if schema.get(
            "minItems", 0) <= schema.get("maxItems", 3) else 0
        prefix = schema.get("prefixItems", [])
        return [value_for(prefix[i] if i < len(prefix) else schema.get("items", schema.get("contains", {})), root, random,
                          depth + 1) for i in range(size)]
    if kind == "object":
        value = {}
        for name, part in schema.get("properties", {}).items():
            if name in schema.get("required", []) or random.random() < (0.5 if depth < 6 else 0.1):
                value[name] = value_for(part, root, random, depth + 1)
        if schema.get("additionalProperties", True) is not False and random.random() < 0.3:
            value["more"] = value_for(schema.get("additionalProperties", {}), root, random, depth + 1)
        return value
    return {"boolean": True, "null": None}.get(kind)


def instances_of_parts(schema, random):
    """Values that parts of the schema are about, and any: where it says what is not so."""
    places = [part for part in parts(schema) if isinstance(part.get("type", ""), (str, list))][:20]
    texts = {json.dumps(value_for(part, part, random)) for part in places for _ in range(2)}
    texts |= {json.dumps(any_value(random, 2)) for _ in range(24)}
    return [json.loads(text) for text in sorted(texts)]


def parts(schema):
    """The schemas within a schema, and itself."""
    if isinstance(schema, dict):
        yield schema
    if isinstance(schema, (dict, list)):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from parts(part)


def instances(schema, random, count=12):
    texts = {json.dumps(value_for(schema, schema, random)) for _ in range(count)}
    return [json.loads(text) for text in sorted(texts)]
