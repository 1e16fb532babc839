"""How far a consumer group is behind, as the broker says it."""

from quire.cli.api import Api, path


def lag(api: Api, stream: str, group: str) -> int:
    """How many messages of a stream a group has not finished.

    Args:
        api: the broker's.
        stream: the stream's name.
        group: the group's name.
    """
    groups = api.call("GET", path("streams", stream))["groups"]
    lags: dict[str, int] = {each["name"]: each["lag"] for each in groups}
    return lags[group]
