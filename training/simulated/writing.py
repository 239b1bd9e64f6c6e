"""From scenes, slates and deeds to events of the canonical log, with ids that count up."""

from __future__ import annotations

from collections.abc import Sequence

from features.events import Event, FeedbackEvent, InteractionEvent, RankedItem, RankingEvent, from_seconds
from training.simulated.behaviour import Deed
from training.simulated.policies import Floats, Slate
from training.simulated.scenes import SITUATIONS, Candidate, Scene

SELF_STARTED = "self_started"
"""Type of an interaction by which a person does an action without its being offered."""


class Writer:
    """Makes events with distinct ids.

    Args:
        run: prefix of every id; two runs into one log need different ones.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self._made = 0

    def next_id(self) -> str:
        """`sim-17`."""
        self._made += 1
        return f"{self.run}-{self._made}"

    def trigger(self, scene: Scene) -> InteractionEvent:
        """What has just happened, before anything is offered."""
        entities = scene.context.entities
        return InteractionEvent(
            id=self.next_id(),
            time=from_seconds(scene.time_s),
            user=scene.person.id,
            session=scene.session,
            type=SITUATIONS[scene.situation].trigger,
            target=entities[-1].target if entities else None,
            text=scene.context.text,
        )

    def self_started(self, user: str, session: str | None, action: str, target: str | None, at_s: float) -> Event:
        """A person does an action by himself."""
        return InteractionEvent(
            id=self.next_id(),
            time=from_seconds(at_s),
            user=user,
            session=session,
            type=SELF_STARTED,
            action=action,
            target=target,
        )

    def ranking(self, scene: Scene, scores: Floats, slate: Slate, policy: str) -> RankingEvent:
        """The decision, with the whole pool and the propensity of each slot."""
        pool = [(c.action, c.target, float(score)) for c, score in zip(scene.candidates, scores, strict=True)]
        items = [
            RankedItem(
                action=pool[place][0],
                target=pool[place][1],
                position=slot,
                score=pool[place][2],
                propensity=float(chance),
            )
            for slot, (place, chance) in enumerate(zip(slate.order.tolist(), slate.propensities, strict=True), 1)
        ]
        return RankingEvent(
            id=self.next_id(),
            time=from_seconds(scene.time_s),
            user=scene.person.id,
            session=scene.session,
            context=scene.context,
            items=items,
            pool=pool,
            traffic="explore" if slate.explored else "live",
            versions={"policy": f"simulated-{policy}"},
        )

    def reaction(self, scene: Scene, ranking: str, offered: Sequence[Candidate], deed: Deed, start_s: float) -> Event:
        """One deed as an event: feedback, or the same action done by himself."""
        item = offered[deed.slot]
        at_s = start_s + deed.delay_s
        if deed.kind == "reuse":
            return self.self_started(scene.person.id, None, item.action, _another(item.target, scene), at_s)
        return FeedbackEvent(
            id=self.next_id(),
            time=from_seconds(at_s),
            ranking=ranking,
            user=scene.person.id,
            type=deed.kind,
            action=item.action,
            target=item.target,
        )


def _another(target: str | None, scene: Scene) -> str | None:
    """Reuse is about something else of the same type."""
    return None if target is None else f"{target.split(':')[0]}:{scene.session}-later"
