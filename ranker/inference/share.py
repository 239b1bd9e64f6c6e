"""Between premium and normal: a deficit round robin, request by request, in tokens and in places of a batch.

While normal work waits, the account keeps two debts: `tokens` = q·(tokens dispatched) − (normal tokens dispatched), and
`places` the same in requests. Premium goes first unless that would leave normal owed more than its head's tokens, or
more than one place; then the head of normal goes. So, while normal work waits,

    normal tokens ≥ q · all tokens − L        normal requests ≥ q · all requests − 1          (1)

with L the largest request. Only normal requests in the class's own key order pay the debt: one that rides along for a
model whose turn it is, ahead of an older one for another model, does not. Tokens taken while no premium waited are
lent, not owed; what normal took ahead of its share while premium waited (a whole batch of a model that only it uses) is
kept, up to one batch, and the debt starts at 0 whenever no normal work waits.

**The bound.** Let a normal request have S tokens and j requests of its class at or ahead of it, itself included, and
let it have been passed by k batches, debts D ≥ −B and E ≥ −N at their start (B tokens, N requests a batch at most). The
batches gave normal less than S tokens and j requests in key order. By (1) they held at most (S + L − D)/q tokens and
at most (j + 1 − E)/q requests. A batch holds one request at least, and, unless it was cut short, more than B − L tokens
or N requests: all lines of its model would otherwise have been used up, ours among them. (A deadline may cut a batch
short, and the first batch of an unknown model holds one request.) Hence

    k ≤ (j + 1 − E)/q                                             always
    k ≤ (S + L − D)/(q·(B − L)) + (j + 1 − E)/(q·N)               with one model, batches not cut short

and the request is dispatched within (residual of the running batch) + k·T̂(B), or it is rejected when its deadline
comes first: never late, never waiting without end. With D = E = 0, small requests and B full batches this is the usual
(1 + ⌈S/(q·B)⌉)·T̂(B).
"""

from __future__ import annotations

import math

from ranker.inference.scheduler_config import SchedulerConfig


class Share:
    """What normal is owed."""

    __slots__ = ("_config", "places", "tokens")

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.tokens = 0.0
        self.places = 0.0

    def after(self, given: tuple[int, int, int, int]) -> tuple[float, float]:
        """The debts (tokens, places) after a batch of (tokens, normal tokens, requests, normal requests)."""
        share = self._config.normal_share
        tokens, normal_tokens, requests, normal = given
        return self.tokens + share * tokens - normal_tokens, self.places + share * requests - normal

    def owes(self, given: tuple[int, int, int, int], head_tokens: int) -> bool:
        """Whether such a batch would leave normal, with this head, owed more than it may be."""
        share = self._config.normal_share
        tokens, normal_tokens, requests, normal = given
        return (
            self.tokens + share * tokens - normal_tokens > head_tokens or self.places + share * requests - normal > 1.0
        )

    def settle(self, given: tuple[int, int, int, int], normal_waits: bool, premium_waits: bool) -> None:
        """Books a dispatched batch; the flags say who waits after it."""
        if not normal_waits:
            self.tokens = self.places = 0.0
            return
        tokens, places = self.after(given)
        least_tokens, least_places = -self._config.max_batch_tokens, -self._config.max_batch_requests
        self.tokens = max(tokens, least_tokens if premium_waits else 0.0)
        self.places = max(places, least_places if premium_waits else 0.0)


def batches_before(config: SchedulerConfig, tokens: int, requests: int, largest: int, share: Share) -> int:
    """The bound k of this module for one model: how many batches can pass a normal request.

    Args:
        tokens, requests: S and j, of its class at or ahead of it, itself included.
        largest: the largest request of either class, in tokens.
    """
    q = config.normal_share
    if q <= 0.0:
        raise ValueError(f"normal_share is {q!r}; without a share there is no bound")
    room = config.max_batch_tokens - largest
    by_places = (requests + 1 - share.places) / q
    if room <= 0:
        return math.ceil(by_places)
    full = (tokens + largest - share.tokens) / (q * room) + by_places / config.max_batch_requests
    return math.ceil(min(full, by_places))
