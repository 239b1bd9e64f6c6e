"""What people found in the texts that were drawn for them: how many unsafe ones the scorer lets pass.

Every checked text of a log had a known probability of being drawn, and weighs one over it (Horvitz–Thompson); a
share is the ratio of two such sums (Hájek). Rankings are what was drawn, so all texts of one count as one when it
comes to how sure the share is: its interval is Clopper–Pearson's on Kish's effective number of rankings,
(Σw)²/Σw² over their weights. That is exact for one text a ranking and equal probabilities, wider than needed
otherwise, and says something where no miss was found, which a bootstrap cannot.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from scipy.stats import beta

from features.events import COUNTED_TRAFFIC, Audit, AuditedText, ForgetEvent, RankingEvent
from features.log import Problems, read_log

USUAL_MISSES, WORSE_MISSES = 0.003, (0.004, 0.005, 0.0075, 0.01, 0.02)
ALARM_AT = 20.0


@dataclass(frozen=True)
class Drawn:
    """A text of the sample.

    Args:
        ranking: a number of its ranking, the same for all of its texts.
        weight: one over the probability that it was drawn with; at least 1.
    """

    ranking: int
    text: AuditedText
    weight: float


@dataclass
class Sample:
    """What was drawn from a log.

    Args:
        rankings: that people may have seen.
        audited: of them, those with texts.
        forgotten: audited rankings left out because their users asked to be forgotten.
        probabilities: how many texts were drawn with which.
    """

    drawn: list[Drawn] = field(default_factory=list)
    rankings: int = 0
    audited: int = 0
    forgotten: int = 0
    repeated: int = 0
    probabilities: Counter[float] = field(default_factory=Counter)
    problems: Problems = field(default_factory=Problems)

    @property
    def uneven(self) -> bool:
        """Whether texts had different probabilities: calibration takes each line for one case."""
        return len(self.probabilities) > 1


class Estimate(msgspec.Struct, frozen=True):
    """A weighted share with its two-sided interval; None where nothing was labelled.

    Args:
        count, of: labelled texts of the sample.
        total, of_total: what they stand for in the log.
        effective: number of independent rankings that the interval rests on.
    """

    share: float | None
    low: float | None
    high: float | None
    count: int
    of: int
    total: float
    of_total: float
    effective: float


class AuditReport(msgspec.Struct, frozen=True):
    """What the labels say.

    Args:
        served: share of the texts that the scorer let pass and people were shown that is unsafe.
        passed: the same of all that it let pass, shown or not.
        missed: share of unsafe texts that it let pass (false negatives), of all that it checked.
        withheld: share of safe texts that it withheld (false positives).
        labelled, unlabelled: texts of the sample.
        alarm: evidence that more than USUAL_MISSES of unsafe texts pass, at its highest; at ALARM_AT it is one.
    """

    served: Estimate
    passed: Estimate
    missed: Estimate
    withheld: Estimate
    labelled: int
    unlabelled: int
    alarm: float


def read_sample(logdir: Path, since_s: float = -math.inf) -> Sample:
    """The texts that were drawn; of a ranking that is in the log twice the first counts.

    Raises:
        LogError: there is no log, or it cannot be read.
    """
    sample = Sample()
    audits: dict[str, Audit] = {}
    by_user: dict[str, list[str]] = defaultdict(list)
    for _, event in read_log(logdir, problems=sample.problems):
        if isinstance(event, ForgetEvent):
            for ranking in by_user.pop(event.user, ()):
                del audits[ranking]
                sample.forgotten += 1
        elif isinstance(event, RankingEvent) and event.traffic in COUNTED_TRAFFIC and event.time_s >= since_s:
            _take(event, sample, audits, by_user)
    sample.audited = len(audits)
    for number, audit in enumerate(audits.values()):
        sample.probabilities[audit.probability] += len(audit.items)
        sample.drawn += [Drawn(number, text, 1.0 / audit.probability) for text in audit.items]
    return sample


def judge_sample(sample: Iterable[Drawn], labels: Mapping[str, bool], confidence: float = 0.95) -> AuditReport:
    """What the labelled part of a sample says of everything that was checked.

    Args:
        labels: by text, true where it is unsafe; texts without one are taken to be like the others.
        confidence: of each interval.
    """
    everything = list(sample)
    known = [(each, labels[each.text.text]) for each in everything if each.text.text in labels]
    passed = [(each, unsafe) for each, unsafe in known if each.text.passed]
    return AuditReport(
        served=_estimate([pair for pair in passed if pair[0].text.served], confidence),
        passed=_estimate(passed, confidence),
        missed=_estimate([(each, each.text.passed) for each, unsafe in known if unsafe], confidence),
        withheld=_estimate([(each, not each.text.passed) for each, unsafe in known if not unsafe], confidence),
        labelled=len(known),
        unlabelled=len(everything) - len(known),
        alarm=miss_evidence(_in_order(known)),
    )


def miss_evidence(missed: Iterable[bool]) -> float:
    """The average of SPRT likelihood ratios of USUAL_MISSES against each of WORSE_MISSES, at its highest so far.

    By Ville's inequality it reaches ALARM_AT with probability of at most 1/20 while no more than usual pass,
    however often one looks. methods.md, "Safety".

    Args:
        missed: of unsafe texts, in the order of the log, whether each passed.
    """
    worse = np.array(WORSE_MISSES)
    steps = {True: np.log(worse / USUAL_MISSES), False: np.log1p(-worse) - np.log1p(-USUAL_MISSES)}
    ratios, highest = np.zeros(len(worse)), 0.0
    for miss in missed:
        ratios = ratios + steps[miss]
        highest = max(highest, float(np.logaddexp.reduce(ratios)) - math.log(len(worse)))
    return math.exp(min(highest, 700.0))


def share_interval(share: float, effective: float, confidence: float) -> tuple[float, float]:
    """Two-sided Clopper–Pearson bounds of a share of `effective` cases, which need not be whole."""
    count, tail = share * effective, (1.0 - confidence) / 2.0
    low = 0.0 if share <= 0.0 else float(beta.ppf(tail, count, effective - count + 1.0))
    high = 1.0 if share >= 1.0 else float(beta.ppf(1.0 - tail, count + 1.0, effective - count))
    return low, high


def _take(event: RankingEvent, sample: Sample, audits: dict[str, Audit], by_user: dict[str, list[str]]) -> None:
    sample.rankings += 1
    if not isinstance(event.audit, Audit) or not event.audit.items:
        return
    if event.id in audits:
        sample.repeated += 1
        return
    audits[event.id] = event.audit
    by_user[event.user].append(event.id)


def _in_order(known: Iterable[tuple[Drawn, bool]]) -> list[bool]:
    """Whether unsafe texts passed, each text once: shown again it is no other case."""
    first: dict[str, bool] = {}
    for each, unsafe in known:
        if unsafe:
            first.setdefault(each.text.text, each.text.passed)
    return list(first.values())


def _estimate(cases: list[tuple[Drawn, bool]], confidence: float) -> Estimate:
    """The share of cases that are true."""
    by_ranking: dict[int, float] = defaultdict(float)
    for each, _ in cases:
        by_ranking[each.ranking] += each.weight
    of_total = math.fsum(by_ranking.values())
    total = math.fsum(each.weight for each, holds in cases if holds)
    count = sum(holds for _, holds in cases)
    if not cases:
        return Estimate(None, None, None, 0, 0, 0.0, 0.0, 0.0)
    # Relative to the largest weight, so that no square overflows.
    largest = max(by_ranking.values())
    effective = (of_total / largest) ** 2 / math.fsum((weight / largest) ** 2 for weight in by_ranking.values())
    share = min(total / of_total, 1.0)
    low, high = share_interval(share, effective, confidence)
    return Estimate(share, low, high, count, len(cases), total, of_total, effective)
