"""The scheduler's rules on plain lists: no heap, no prefix sums, everything looked at each time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ranker.inference.cost import CostModel
from ranker.inference.scheduler import Request, SchedulerConfig

RANK = {"premium": 0, "normal": 1, "shadow": 2}


@dataclass(eq=False)
class Item:
    """A request that waits."""

    request: Request
    arrival: float
    key: float
    number: int

    @property
    def order(self) -> tuple[float, int]:
        return self.key, self.number


class Reference:
    """Answers as `Scheduler` must: offers as [(id, reason)], polls as (model, ids); `dropped` are late rejections."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.queue: list[Item] = []
        self.costs: dict[str, CostModel] = {}
        self.gaps: dict[str, tuple[float, float | None]] = {}
        self.running: tuple[str, list[Request]] | None = None
        self.free = -math.inf
        self.now = -math.inf
        self.count = 0
        self.debt = (0.0, 0.0)
        self.dropped: list[str] = []

    def cost(self, model: str) -> CostModel:
        return self.costs.setdefault(model, CostModel())

    def time(self, model: str, tokens: float) -> float:
        return self.cost(model).predict(tokens)

    def of(self, priority: str, model: str | None = None) -> list[Item]:
        found = [i for i in self.queue if i.request.priority == priority and model in (None, i.request.model_key)]
        return sorted(found, key=lambda item: item.order)

    def seed(self, model: str, fixed: float, per_token: float) -> None:
        self.cost(model).seed(fixed, per_token, self.config.max_batch_tokens)

    def offer(self, request: Request, now: float) -> list[tuple[str, str]]:
        self.now = max(self.now, now)
        name, config = request.request_id, self.config
        if request.token_budget <= 0 or request.deadline_ms < request.arrival_ms:
            return [(name, "invalid")]
        busy = [] if self.running is None else self.running[1]
        if name in [item.request.request_id for item in self.queue] + [each.request_id for each in busy]:
            return [(name, "duplicate")]
        if request.token_budget > min(config.max_batch_tokens, config.max_queue_tokens):
            return [(name, "too_large")]
        self.count += 1
        arrival = min(request.arrival_ms, self.now)
        key = min(request.deadline_ms, arrival + config.ageing_ms.get(request.priority, math.inf))
        item = Item(request, arrival, key, self.count)
        start = self.now if self.running is None else max(self.now, self.free)
        if request.deadline_ms < math.inf and self.end(item, start) + config.margin_ms > request.deadline_ms:
            if self.time(request.model_key, request.token_budget) + config.margin_ms > request.deadline_ms - arrival:
                self.cost(request.model_key).distrust(self.now)
            return [(name, "deadline")]
        if self.over(self.queue, item):
            self.expire()
        victims = self.victims(item, start)
        if item in victims:
            return [(name, "queue_full")]
        self.queue = [each for each in self.queue if each not in victims] + [item]
        mean, last = self.gaps.get(request.model_key, (math.inf, None))
        gap = math.inf if last is None else min(self.now - last, 1000.0)
        self.gaps[request.model_key] = (gap if mean == math.inf else mean + (gap - mean) / 16, self.now)
        return [(each.request.request_id, "queue_full") for each in victims]

    def over(self, queue: list[Item], item: Item) -> bool:
        tokens = sum(each.request.token_budget for each in queue) + item.request.token_budget
        return len(queue) + 1 > self.config.max_queue_requests or tokens > self.config.max_queue_tokens

    def victims(self, item: Item, start: float) -> list[Item]:
        def doomed(each: Item) -> bool:
            request = each.request
            return each is not item and self.latest_start(request.model_key, request.deadline_ms) < start

        def worst_first(each: Item) -> tuple[object, ...]:
            if doomed(each):
                return -RANK[each.request.priority], False, each.request.deadline_ms, each.number
            return -RANK[each.request.priority], True, -each.request.deadline_ms, -each.number

        left, chosen = list(self.queue), []
        for each in sorted([*self.queue, item], key=worst_first):
            if not self.over(left, item):
                break
            if each is item:
                return [item]
            chosen.append(each)
            left.remove(each)
        return chosen

    def latest_start(self, model: str, deadline: float) -> float:
        return deadline - (self.config.margin_ms + self.time(model, 1))

    def end(self, item: Item, start: float) -> float:
        share, kind = self.config.normal_share, item.request.priority
        ahead = [each for each in self.of(kind) if each.order < item.order]
        own = sum(each.request.token_budget for each in ahead) + item.request.token_budget
        ratios = {"premium": {"normal": share / (1 - share)}, "normal": {"premium": (1 - share) / share}}
        total = start
        parts = {}
        for other, ratio in ratios.get(kind, {"premium": math.inf, "normal": math.inf}).items():
            theirs = sum(each.request.token_budget for each in self.of(other))
            parts[other] = min(1.0, ratio * own / theirs) if theirs else 0.0
        for model in sorted({each.request.model_key for each in [*self.queue, item]}):
            mine = [each for each in [*ahead, item] if each.request.model_key == model]
            tokens, requests = float(sum(each.request.token_budget for each in mine)), float(len(mine))
            for other, part in parts.items():
                others = self.of(other, model)
                tokens += part * sum(each.request.token_budget for each in others)
                requests += math.ceil(part * len(others))
            if requests:
                total += self.work(model, tokens, requests)
        return total

    def work(self, model: str, tokens: float, requests: float) -> float:
        each = min(self.config.max_batch_requests, max(1, self.config.max_batch_tokens * requests // tokens))
        full_batches = max(0, math.ceil(requests / each) - 1)
        full = tokens * each / requests
        last = tokens - full_batches * full
        return full_batches * self.time(model, full) + self.time(model, last)

    def cancel(self, name: str) -> bool:
        found = [item for item in self.queue if item.request.request_id == name]
        self.queue = [item for item in self.queue if item not in found]
        return bool(found)

    def drop(self, items: list[Item]) -> None:
        self.dropped += [item.request.request_id for item in items]
        self.queue = [item for item in self.queue if item not in items]

    def expire(self) -> None:
        self.drop([i for i in self.queue if self.latest_start(i.request.model_key, i.request.deadline_ms) < self.now])

    def poll(self, now: float) -> tuple[str, list[str]] | None:
        self.now = max(self.now, now)
        self.expire()
        if self.running is not None:
            return None
        while late := [item for item in self.heads() if not self.alone_in_time(item)]:
            self.drop(late)
        if not self.queue:
            return None
        chosen = self.choose()
        if not chosen.passed and self.now < self.hold_until(chosen):
            return None
        return self.dispatch(chosen)

    def heads(self) -> list[Item]:
        urgent = [item for item in self.queue if item.request.priority != "shadow"] or self.queue
        lanes = {(item.request.priority, item.request.model_key) for item in urgent}
        return [self.of(priority, model)[0] for priority, model in lanes]

    def alone_in_time(self, item: Item) -> bool:
        ready = self.now + self.config.margin_ms
        return ready + self.time(item.request.model_key, item.request.token_budget) <= item.request.deadline_ms

    def choose(self) -> Chosen:
        premium, normal = self.of("premium"), self.of("normal")
        if not premium and not normal:
            model = self.of("shadow")[0].request.model_key
            return Chosen(self, model, self.of("shadow", model), [], None, False).settled()
        lead = (premium or normal)[0].request.model_key
        plain = Chosen(self, lead, self.of("premium", lead), self.of("normal", lead), self.rival(lead), False).settled()
        left = [item for item in normal if item not in plain.consumed]
        if premium and left and self.owes(plain.counted, left[0].request.token_budget):
            model = normal[0].request.model_key
            lanes = self.of("premium", model), self.of("normal", model)
            return Chosen(self, model, *lanes, self.rival(model), True).settled()
        return plain

    def rival(self, model: str) -> Item | None:
        return next((item for item in self.of("normal") if item.request.model_key != model), None)

    def after(self, counted: list[Item]) -> tuple[float, float]:
        share, mine = self.config.normal_share, [item for item in counted if item.request.priority == "normal"]
        tokens = share * sum(i.request.token_budget for i in counted) - sum(i.request.token_budget for i in mine)
        return self.debt[0] + tokens, self.debt[1] + share * len(counted) - len(mine)

    def owes(self, counted: list[Item], head_tokens: int) -> bool:
        tokens, places = self.after(counted)
        return tokens > head_tokens or places > 1.0

    def hold_until(self, chosen: Chosen) -> float:
        size, count = sum(i.request.token_budget for i in chosen.members), len(chosen.members)
        waiting = [i for i in self.queue if i.request.priority != "shadow"] or self.queue
        cost, (gap, last) = self.cost(chosen.model), self.gaps[chosen.model]
        if count < len(waiting) or count >= chosen.most_requests or size * (count + 1) > chosen.most_tokens * count:
            return -math.inf
        assert last is not None
        worth = cost.fixed_ms - cost.per_token_ms * size
        if (count + 1) * gap >= worth:
            return -math.inf
        oldest = min(item.arrival for item in chosen.members) + self.config.max_wait_ms
        spare = self.config.margin_ms + self.time(chosen.model, size) + gap
        deadline = min(item.request.deadline_ms for item in chosen.members)
        return min(last + worth / (count + 1), oldest, deadline - spare)

    def dispatch(self, chosen: Chosen) -> tuple[str, list[str]]:
        self.drop(chosen.passed)
        self.queue = [item for item in self.queue if item not in chosen.members]
        if not self.of("normal"):
            self.debt = (0.0, 0.0)
        else:
            low = (-self.config.max_batch_tokens, -self.config.max_batch_requests) if self.of("premium") else (0.0, 0.0)
            after = self.after(chosen.counted)
            self.debt = (max(after[0], low[0]), max(after[1], low[1]))
        requests = [item.request for item in chosen.members]
        self.running = (chosen.model, requests)
        self.free = self.now + self.time(chosen.model, sum(request.token_budget for request in requests))
        return chosen.model, [request.request_id for request in requests]

    def release(self) -> None:
        self.running = None


class Chosen:
    """The batch of one model: fill by turns, then the smaller batch or the first window that is in time."""

    def __init__(
        self, rules: Reference, model: str, premium: list[Item], normal: list[Item], rival: Item | None, forced: bool
    ) -> None:
        self.rules, self.model, self.rival, self.forced = rules, model, rival, forced
        self.lanes = [list(premium), list(normal)]
        heads = [lane[0].request.token_budget for lane in self.lanes if lane]
        cost, config = rules.cost(model), rules.config
        known = all(cost.knows(tokens) for tokens in heads)
        self.most_requests = config.max_batch_requests if known else 1
        self.most_tokens = min(config.max_batch_tokens, cost.reach) if known else config.max_batch_tokens
        self.picks: list[Item] = []
        self.members: list[Item] = []
        self.passed: list[Item] = []
        self.consumed: list[Item] = []

    @property
    def counted(self) -> list[Item]:
        return [item for item in self.members if item.request.priority != "normal" or self.in_order(item)]

    def in_order(self, item: Item) -> bool:
        return self.rival is None or item.order < self.rival.order

    def ends(self, items: list[Item]) -> float:
        tokens = sum(item.request.token_budget for item in items)
        return self.rules.now + self.rules.config.margin_ms + self.rules.time(self.model, tokens)

    def in_time(self, items: list[Item]) -> bool:
        return not items or self.ends(items) <= min(item.request.deadline_ms for item in items)

    def fits(self, item: Item) -> bool:
        tokens = sum(each.request.token_budget for each in self.members) + item.request.token_budget
        return not self.members or (len(self.members) < self.most_requests and tokens <= self.most_tokens)

    def turn(self) -> int | None:
        premium, normal = (lane[0] if lane else None for lane in self.lanes)
        ordered = normal if normal is not None and self.in_order(normal) else None
        if premium is None:
            return 1 if normal is not None and self.fits(normal) else None
        waiting = ordered or (self.rival if self.forced else None)
        paid = any(item.request.priority == "normal" for item in self.counted)
        if waiting is not None:
            owed = self.rules.owes([*self.counted, premium], waiting.request.token_budget)
            if owed or (self.forced and ordered is not None and not paid):
                return 1 if ordered is not None and self.fits(ordered) else None
        if self.fits(premium):
            return 0
        return 1 if normal is not None and self.fits(normal) else None

    def fill(self) -> None:
        while (turn := self.turn()) is not None:
            item = self.lanes[turn].pop(0)
            self.picks.append(item)
            self.members.append(item)

    def settled(self) -> Chosen:
        self.fill()
        window = list(self.members)
        if not self.in_time(window):
            small, late = self.small(window)
            if self.can_wait(window, small) or not self.slide_is_better([i for i in small if i not in late]):
                self.picks, self.passed = small, late
                self.members = [item for item in small if item not in late]
        self.consumed = list(self.picks)
        return self

    def small(self, window: list[Item]) -> tuple[list[Item], list[Item]]:
        late: list[Item] = []
        for count, item in enumerate(window):
            if not self.in_time([item]):
                late.append(item)
            elif not self.in_time([each for each in window[: count + 1] if each not in late]):
                return window[:count], late
        return window, late

    def can_wait(self, window: list[Item], small: list[Item]) -> bool:
        if len(small) == len(window):
            return True
        tokens = sum(item.request.token_budget for item in window)
        return self.ends(small) + self.rules.time(self.model, tokens) <= window[len(small)].request.deadline_ms

    def slide_is_better(self, small: list[Item]) -> bool:
        while not self.in_time(self.members):
            tightest = min(self.members, key=lambda i: (i.request.deadline_ms, self.picks.index(i)))
            self.members.remove(tightest)
            self.passed.append(tightest)
            self.fill()

        def worth(items: list[Item]) -> tuple[int, int]:
            return sum(item.request.priority != "normal" for item in items), len(items)

        return worth(self.members) > worth(small)
