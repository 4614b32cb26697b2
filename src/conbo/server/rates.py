"""A rate limit for requests, with a token bucket for every caller."""

import time
from collections import OrderedDict

MAX_CALLERS = 10_000  # largest number of callers that are remembered; the one silent for longest is forgotten first


class RateLimit:
    """A limit on the requests of each caller.

    Parameters
    ----------
    rate
        Requests per second in the long run.
    burst
        Largest number of requests in a burst.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        # by caller: the number of requests left in the bucket, and the time (time.monotonic) of this number
        self._callers: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str, cost: float = 1.0) -> float:
        """Count a request if it is allowed now; otherwise return how long the caller should wait.

        Parameters
        ----------
        caller
            Who sends the request: the id of a token, or a network address.
        cost
            Number of requests that this one counts as.

        Returns
        -------
        float
            Seconds after which the caller should try again; 0 if the request is allowed.
        """
        left = self.left(caller)
        allowed = left >= cost
        self._callers[caller] = left - cost if allowed else left, time.monotonic()
        self._callers.move_to_end(caller)
        if len(self._callers) > MAX_CALLERS:
            self._callers.popitem(last=False)
        return 0.0 if allowed else (cost - left) / self._rate

    def left(self, caller: str) -> float:
        """Return how many requests the caller may send now without waiting."""
        before, then = self._callers.get(caller, (self._burst, time.monotonic()))
        return min(self._burst, before + self._rate * (time.monotonic() - then))
