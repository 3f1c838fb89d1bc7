"""Counts the calls of SDK operations that tests make.

Clients are wrapped, not changed: a wrapper looks up the attribute in the SDK's own client and notes the name of each method that is
called. Nothing of the SDK's pipeline or transport is replaced.
"""

from collections import Counter


class CallLog:
    """The number of calls of each operation, such as `network.subnets.get`."""

    def __init__(self):
        self.counts = Counter()

    def wrap(self, name, client):
        """A client whose calls are counted under a name."""
        return CountedClient(name, client, self)

    @property
    def distinct(self):
        return len(self.counts)

    @property
    def total(self):
        return sum(self.counts.values())


class CountedClient:
    """A client of an SDK, or one of its operation groups."""

    def __init__(self, name, target, log):
        self._name, self._target, self._log = name, target, log

    def __getattr__(self, attribute):
        value = getattr(self._target, attribute)
        name = f"{self._name}.{attribute}"
        if type(value).__name__.endswith("Operations"):
            return CountedClient(name, value, self._log)
        if attribute.startswith("_") or isinstance(value, type) or not callable(value):
            return value

        def call(*args, **kwargs):
            if attribute.startswith("get_") and attribute.endswith("_client"):
                # A client for a part, such as a blob: no request is sent yet.
                return self._log.wrap(self._name + "." + attribute[4:-7], value(*args, **kwargs))
            self._log.counts[name] += 1
            return value(*args, **kwargs)

        return call
