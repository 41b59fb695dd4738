"""A module of handlers that cannot be imported."""

1 / 0  # noqa: B018 - the point of it
