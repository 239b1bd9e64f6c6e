"""One decision from request to answer: through the pipeline, into the log, and out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from features.catalogue import ActionSpec
from features.catalogue_log import LiveCatalogue
from features.errors import LogError
from features.events import encode_event, to_seconds
from features.log import LogWriter, Written
from ranker.answers import AnswerItem, RankAnswer, Verdict
from ranker.clock import Clock
from ranker.degraded import Degraded
from ranker.judges import Judge, apply_before_draw
from ranker.pipeline import Pipeline
from ranker.ranking_log import for_state, ranking_event
from ranker.ranking_sink import RankingSink
from ranker.types import Candidates, Item, Ranking, RankRequest

PROBE, REPLAY = "probe", "replay"


@dataclass(frozen=True)
class Due:
    """When a request is to be answered, on the monotonic clock, and whether it wants to know why."""

    arrived_ms: float
    deadline_ms: float
    explain: bool


@dataclass(frozen=True)
class LookAgain:
    """A last stage for an answer given before: what no judge lets pass now is gone."""

    judges: Sequence[Judge]
    name: str = "safety"

    async def run(self, ranking: Ranking) -> Ranking:
        """The ranking without what is refused now; raising offers nothing."""
        for judge in self.judges:
            ranking = apply_before_draw(judge, ranking)
        return ranking


@dataclass
class Decisions:
    """Ranks and logs.

    Args:
        recheck: the pipeline for an answer that was given before: the context, then LookAgain.
        log: None where another process writes it, through `remote`.
        on_logged: called with the user and the end in the log of a ranking that was written here.
        unlogged: rankings so far that could not be written.
    """

    pipeline: Pipeline
    recheck: Pipeline
    log: LogWriter | None
    live: LiveCatalogue
    clock: Clock
    on_logged: Callable[[str, int], None] = lambda _user, _end: None
    remote: RankingSink | None = None
    unlogged: int = field(default=0, init=False)

    async def decide(self, request: RankRequest, request_id: str, due: Due, *reasons: Degraded) -> RankAnswer:
        """A new answer, in the log before it is given; a probe leaves no trace."""
        started = Ranking(
            request,
            request_id,
            self.clock.now_s(),
            due.deadline_ms,
            traffic=request.traffic or "live",
            explain=due.explain,
        )
        ranking = (await self.pipeline.run(started)).because(*reasons)
        ranking = self._told(ranking)
        if ranking.traffic != PROBE:
            ranking = self._logged(ranking) if self.remote is None else await self._sent(ranking, self.remote)
        return self._answer(ranking, due)

    async def replay(self, request: RankRequest, request_id: str, due: Due) -> RankAnswer:
        """An answer for an offline job: the context's time is the clock, what is known is what is known now.

        Nothing is logged: a list that nobody saw says nothing about anybody, and a log that offline jobs
        could fill would push out what people did.
        """
        time = request.context.time
        now_s = self.clock.now_s() if time is None else to_seconds(time)
        started = Ranking(request, request_id, now_s, due.deadline_ms, traffic=REPLAY, explain=due.explain)
        return self._answer(self._told(await self.pipeline.run(started)), due)

    async def still_safe(self, request: RankRequest, answer: RankAnswer, due: Due) -> RankAnswer:
        """An answer given before, less what no longer passes safety and freshness."""
        found = [(item, self.live.catalogue.get(item.action)) for item in answer.items]
        there = [(item, spec) for item, spec in found if spec is not None]
        asked = Ranking(request, answer.id, self.clock.now_s(), due.deadline_ms, candidates=_candidates(there))
        kept = (await self.recheck.run(asked)).candidates
        pairs = set(zip(kept.actions, kept.targets, strict=True))
        items = [item for item in answer.items if (item.action, item.target) in pairs]
        degraded = answer.degraded
        if not items and Degraded.EMPTY not in degraded:
            degraded = [*degraded, str(Degraded.EMPTY)]
        return replace_answer(answer, items, degraded, due.explain)

    def _told(self, ranking: Ranking) -> Ranking:
        """Says so when the catalogue was ahead of the state that features read: replay would see the older one."""
        seen = ranking.known.seen_offset if ranking.known is not None else None
        behind = seen is not None and seen < self.live.changed
        drifted = ranking.known is not None and seen is not None and not ranking.known.population.exact
        return ranking.because(Degraded.FEATURES_STALE) if behind or drifted else ranking

    async def _sent(self, ranking: Ranking, remote: RankingSink) -> Ranking:
        try:
            line = encode_event(ranking_event(ranking))
            await remote.keep(ranking.request.user, line, ranking.deadline_ms)
        except LogError:
            self.unlogged += 1
            return ranking.because(Degraded.LOG_UNAVAILABLE)
        return ranking

    def _logged(self, ranking: Ranking) -> Ranking:
        assert self.log is not None
        try:
            event = ranking_event(ranking)
            # An id that was made for it is new; one that the caller gave may have come before.
            new = ranking.request.id is None
            first = self.log.append([Written(encode_event(event), for_state(event), new)])
        except LogError:
            self.unlogged += 1
            return ranking.because(Degraded.LOG_UNAVAILABLE)
        self.on_logged(ranking.request.user, first + 1)
        return ranking

    def _answer(self, ranking: Ranking, due: Due) -> RankAnswer:
        explain = due.explain
        timings = {**ranking.timings_ms, "total": self.clock.monotonic_ms() - due.arrived_ms}
        return RankAnswer(
            id=ranking.request_id,
            items=[_answer_item(item, explain) for item in ranking.items],
            traffic=ranking.traffic,
            versions=ranking.versions,
            degraded=[str(reason) for reason in ranking.degraded],
            timings_ms={name: round(ms, 3) for name, ms in timings.items()},
            verdicts=[Verdict(d.stage, d.action, d.target, d.reason) for d in ranking.drops] if explain else None,
            candidates=_sources(ranking) if explain else None,
        )


def replace_answer(answer: RankAnswer, items: list[AnswerItem], degraded: list[str], explain: bool) -> RankAnswer:
    """The same answer with other items, and with the explanation only for who asked for it."""
    if not explain:
        items = [AnswerItem(i.action, i.target, i.position, i.score, i.propensity) for i in items]
    verdicts, candidates = (answer.verdicts, answer.candidates) if explain else (None, None)
    return RankAnswer(
        answer.id, items, answer.traffic, answer.versions, degraded, answer.timings_ms, verdicts, candidates
    )


def _candidates(found: Sequence[tuple[AnswerItem, ActionSpec]]) -> Candidates:
    return Candidates(
        tuple(item.action for item, _ in found),
        tuple(item.target for item, _ in found),
        tuple(spec for _, spec in found),
        ("answer",) * len(found),
    )


def _answer_item(item: Item, explain: bool) -> AnswerItem:
    reasons = list(item.reasons) if explain else None
    return AnswerItem(item.action, item.target, item.position, item.score, item.propensity, reasons)


def _sources(ranking: Ranking) -> dict[str, int]:
    """How many candidates came from where, of those that were scored."""
    return dict(Counter(ranking.pool.candidates.sources)) if ranking.pool is not None else {}
