"""The body of a message as a file: what the broker has, passed on as it is."""

from starlette.requests import Request
from starlette.responses import Response

from quire.console.broker_api import path_of
from quire.console.guard import Visit


async def download(request: Request) -> Response:
    """Answer with the body of the message that the query names."""
    visit: Visit = request.scope["quire.visit"]
    query = request.query_params
    path = message_path(query.get("kind", ""), query.get("name", ""), query.get("of", ""), query.get("at", ""))
    caller = visit.session.callers[visit.api.key]
    answer = await visit.api.content(path + "/body", caller.authorization)
    headers = {"content-disposition": 'attachment; filename="message"', "cache-control": "no-store"}
    return Response(answer.content, answer.status_code, headers, "application/octet-stream")


def message_path(kind: str, name: str, of: str, at: str) -> str:
    """The path of a message in the API.

    Args:
        kind: ``queue``, ``durable`` or ``stream``.
        name: the queue or stream, or the name of the durable subscription.
        of: the client id of the durable subscription, or the partition of the stream.
        at: its sequence or offset.
    """
    if kind == "durable":
        return path_of("durables", of, name, "messages", at)
    if kind == "stream":
        return path_of("streams", name, "partitions", of, "messages", at)
    return path_of("queues", name, "messages", at)
