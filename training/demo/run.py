"""The demo: a log, a model learned from it, the service, people who use it, and how good it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rich.console import Console

from features.events import encode_event, format_time, from_seconds
from features.log import LogWriter
from ranker.client import Client
from ranker.clock import Clock, SystemClock
from ranker.light_model import LightModel
from ranker.release.registry import Manifest, Registry
from ranker.terminal import Steps, plain
from training.demo.apps import App, SimulatedApp
from training.demo.history import HeldBack, copy_history, hold_back
from training.demo.plan import DemoPlan, quick_training
from training.demo.play import Played, Player
from training.demo.recorded import RecordedApp
from training.demo.service import ServiceProcess, service_process
from training.demo.show import show_figures, show_turn
from training.evaluate import EvaluateConfig, evaluate
from training.importers import import_log
from training.light import train_light
from training.publish import publish
from training.simulate import Simulator

DAY_S = 86400.0
WRITE_EVENTS = 2000
READY_S = 60.0

Serve = Callable[[ServiceProcess], None]


@dataclass
class Demo:
    """One demo in one folder.

    Args:
        console: for people; None says nothing but progress.
        leave_running: called with the service once all has been shown.
    """

    plan: DemoPlan
    console: Console | None
    leave_running: Serve | None = None
    clock: Clock = field(default_factory=SystemClock)

    def run(self) -> dict[str, Any]:
        """All of it; the report says under `ok` whether nothing failed.

        Raises:
            FeatureError, TrainingError, RankerError, RegistryError: a part of it cannot be done.
        """
        started_s = time.monotonic()
        with Steps() as steps:
            app, held_back = self._build(steps)
        with Steps() as steps:
            manifest = self._learn(held_back, steps)
        with service_process(self.plan.service_log, self.plan.models) as service:
            with Client(service.started.url, timeout_s=10.0, caller="demo") as client:
                client.wait_ready(READY_S)
                self._say(f"serving at {service.started.url}: {service.started.actions} actions")
                played = self._play(client, app)
            with Steps() as steps:
                evaluation = self._judge(manifest, held_back, steps)
            report = _report(held_back, manifest, played, evaluation, time.monotonic() - started_s)
            if self.console is not None:
                show_figures(self.console, report)
                self._say(f"{report['seconds']:.0f} s")
            if self.leave_running is not None:
                self.leave_running(service)
        return report

    def _build(self, steps: Steps) -> tuple[App, HeldBack]:
        return self._simulate(steps) if self.plan.source is None else self._import(steps)

    def _simulate(self, steps: Steps) -> tuple[App, HeldBack]:
        plan, now_s = self.plan, self.clock.now_s()
        # What follows from the last day may come half a day later; nothing lies in the future.
        start_s = (now_s // DAY_S - plan.days - 1) * DAY_S
        simulator = Simulator(plan.seed, plan.users, plan.days, start_s=start_s)
        events = simulator.events()
        with LogWriter.open(plan.log) as writer:
            while batch := [encode_event(event) for event in islice(events, WRITE_EVENTS)]:
                writer.append(batch)
                steps("simulate people", writer.end)
        held_back = hold_back(plan.log, whole_day=False)
        copy_history(plan.log, plan.service_log, progress=lambda done: steps("copy the log", done))
        steps.end()
        self._say(
            f"a log of {held_back.events:,} events: {plan.users} simulated people in {plan.days} days; "
            f"{held_back.decisions:,} of {held_back.of:,} lists are held back"
        )
        return SimulatedApp(simulator, self.clock.now_s, f"live-{int(now_s)}"), held_back

    def _import(self, steps: Steps) -> tuple[App, HeldBack]:
        plan, now_s = self.plan, self.clock.now_s()
        assert plan.source is not None
        import_log(plan.format, plan.source, plan.log, lambda done: steps("import", done))
        steps("look for what to hold back")
        held_back = hold_back(plan.log, whole_day=True)
        # As if what is known had ended just now: the service measures everything from its own clock.
        shift_s = now_s - held_back.since_s
        copy_history(
            plan.log,
            plan.service_log,
            until_s=held_back.since_s,
            shift_s=shift_s,
            progress=lambda done: steps("move the log to the present", done),
        )
        steps.end()
        self._say(
            f"a log of {held_back.events:,} events from {plan.source}; "
            f"{held_back.decisions:,} of {held_back.of:,} decisions are held back"
        )
        return RecordedApp(plan.log, held_back.since_s, self.clock.now_s, f"demo-{int(now_s)}"), held_back

    def _learn(self, held_back: HeldBack, steps: Steps) -> Manifest:
        config = quick_training()
        trained = train_light(self.plan.log, held_back.since_s, hint=False, config=config, progress=steps)
        registry = Registry(self.plan.models)
        manifest = publish(registry, trained, config)
        registry.activate(manifest.version, override="a demo: what was held back judges it below")
        steps.end()
        self._say(f"learned version {manifest.version} from {manifest.extra['queries']:,} useful offers")
        return manifest

    def _play(self, client: Client, app: App) -> Played:
        player = Player(client, app)
        console = self.console
        if console is not None:
            player.show(self.plan.shown, lambda *told: show_turn(console, *told))
        count = max(self.plan.interactions - player.played.answers, 1)
        with Steps() as steps:
            player.run(count, lambda done: steps("play", done, count))
        return player.played

    def _judge(self, manifest: Manifest, held_back: HeldBack, steps: Steps) -> dict[str, Any]:
        registry = Registry(self.plan.models)
        light = LightModel.load(registry, manifest.version, manifest.schema, manifest.files)
        config = EvaluateConfig(since_s=held_back.since_s)
        evaluation = evaluate(self.plan.log, light, config, lambda done: steps("judge", done, held_back.events))
        evaluation.versions = {"schema": manifest.schema, "light": manifest.version}
        steps("intervals")
        return evaluation.to_json()

    def _say(self, text: str) -> None:
        if self.console is not None:
            self.console.print(plain(text))


def _report(
    held_back: HeldBack, manifest: Manifest, played: Played, evaluation: dict[str, Any], seconds: float
) -> dict[str, Any]:
    return {
        "ok": not played.errors and played.answers > 0 and evaluation["queries"] > 0,
        "held_back": {
            "since": format_time(from_seconds(held_back.since_s)),
            "decisions": held_back.decisions,
            "of": held_back.of,
            "events": held_back.events,
        },
        "version": manifest.version,
        "evaluation": evaluation,
        "played": played.to_json(),
        "seconds": round(seconds, 3),
    }
