"""Values for a JSON schema as an OpenAPI document has them: mostly what it allows, sometimes what it does not."""

from typing import Any

from hypothesis import strategies as st

from quire.units import LARGEST

Values = st.SearchStrategy[Any]

WORDS = [
    "q", "t", "s", "g", "h", "m", "c", "d", "p", "a.b", "a/b", "new", "", " ", ">", "*", "a.>", "queue://q",
    "topic://t", "stream://s", "/queue/q", "/temp-queue/x", "queue://q?x=1", "ActiveMQ.DLQ", "x" * 300, "\u00fc",
    "\0", "a\nb", "\u20ac" * 200, "earliest", "latest", "offset=1", "offset=-1", f"offset={LARGEST}", "timestamp=0",
    "timestamp=99999999999999999999", "ago=1s", "ago=99999999999999d", "timestamp=0001-01-01T00:00:00+14:00",
    "1.0.1", "1-2.0.1", "1.r.1", "1-99999.0.1", "0-5", "5-0", "-", "--", "text", "base64", "AAAA", "a = 1",
    "a LIKE '%'", "a LIKE '_' ESCAPE '\\'", "(((", "JMSPriority > 4", "averagely", "sticky", "shared",
    "00000001-0a-0b", "ID:0a1b2c3d-1700000000000-42", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_CRON",
    "AMQ_SCHEDULED_REPEAT", "* * * * *", "partition", "partition-key", "JMSXGroupID", "JMSXGroupSeq", "expires",
    "reply-to", "transaction", "message-id", "content-length",
]  # fmt: skip
"""Texts that mean something somewhere in the API, or nearly so."""

INTEGERS = [-LARGEST - 1, -2, -1, 0, 1, 2, 3, 9, 10, 1000, 2**31, 2**53, LARGEST, LARGEST + 1, 2**64, 10**30]

texts: Values = st.sampled_from(WORDS) | st.text(max_size=8)

anything: Values = st.recursive(
    st.none() | st.booleans() | st.sampled_from(INTEGERS) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)


class SchemaValues:
    """Makes values for the schemas of a document."""

    def __init__(self, document: dict[str, Any], *, is_right: bool) -> None:
        self._schemas = document["components"]["schemas"]
        self._is_right = is_right

    def of(self, schema: dict[str, Any]) -> Values:
        allowed = self._allowed(schema)
        if self._is_right:
            return allowed
        return st.integers(0, 9).flatmap(lambda choice: anything if choice == 0 else allowed)

    def _allowed(self, schema: dict[str, Any]) -> Values:
        if "$ref" in schema:
            return self._allowed(self._schemas[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return st.one_of([self.of(part) for part in schema["anyOf"]])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        match schema.get("type"):
            case "integer":
                return _integers(schema)
            case "number":
                least, most = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 1e18)
                return st.floats(least, most) | st.sampled_from([least, 1, most])
            case "boolean":
                return st.booleans()
            case "null":
                return st.none()
            case "array":
                return st.lists(self.of(schema.get("items", {})), max_size=4)
            case "object":
                return self._objects(schema)
        return texts

    def _objects(self, schema: dict[str, Any]) -> Values:
        properties = {name: self.of(part) for name, part in schema.get("properties", {}).items()}
        if not properties:
            return st.dictionaries(texts, self.of(schema.get("additionalProperties") or {}), max_size=3)
        required = {name: part for name, part in properties.items() if name in schema.get("required", ())}
        optional = {name: part for name, part in properties.items() if name not in required}
        return st.fixed_dictionaries(required, optional=optional)


def _integers(schema: dict[str, Any]) -> Values:
    least, most = schema.get("minimum", -LARGEST), schema.get("maximum", LARGEST)
    ends = [number for number in (*INTEGERS, least, most) if least <= number <= most]
    return st.sampled_from(ends) | st.integers(least, min(most, least + 20))
