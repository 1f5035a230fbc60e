"""Every hypothesis about a drafter, tried on a recording: all on few prompts first, those that keep up on the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from drafter_audit.decode.fit import check_fits, informed
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.errors import AuditError, CannotRunError
from drafter_audit.model.borrow import lends_at_hand
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.load import Variants, open_variants
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.corpus import Corpus
from drafter_audit.wiring.hypotheses import Hypothesis, Scope, completions, hypotheses
from drafter_audit.wiring.paired import Paired, Values, later_of, mean_of, paired
from drafter_audit.wiring.result import NotObservable
from drafter_audit.wiring.score import Score, run
from drafter_audit.wiring.taps import Taps

EVERY = (0, 1, 2)
"""The groups of a corpus: the race, the rest of the half that chooses, the half that confirms."""

_KEEPS_UP, _SURVIVORS = 1.25, 8
"""A hypothesis survives the race with a KL up to so many times the base's, and among so many of the lowest."""
_SAME = {"float32": 3e-3, "float64": 3e-3}
"""Two wirings compute the same where their log-probs differ by no more than this share of their spread: a norm's
epsilon keeps an embedding's scale from being wholly without effect. In narrower dtypes rounding is larger."""
_SAME_NARROW = 3e-2

LATER = ("feedback",)  # knobs that decide nothing in the first draft step

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Attempt:
    """A hypothesis that was run, and how it did; `raced` tells that it saw the race alone. `also` are the names of
    others that compute the same."""

    hypothesis: Hypothesis
    drafter: Drafter
    score: Score
    also: tuple[str, ...] = ()
    raced: bool = False

    @property
    def later(self) -> bool:
        """Whether it is judged by the steps after the first."""
        return self.hypothesis.knob in LATER

    def kl(self, of: Score) -> Values:
        """The KL [n] by which it is judged, of another score."""
        return later_of(of.kl) if self.later else of.kl[0]


class Probe:
    """One drafter and one recording. `steps` drafts a round.

    `watch` is told how many hypotheses of how many are done, each time some are.
    """

    def __init__(self, variants: Variants, recording: Recording, steps: int, watch: Watch = lambda _, __: None) -> None:
        """Raises UsageError for more steps than the recording looks ahead, CannotRunError for a recording of another
        target or without the declared boundaries, RecordingError for one without answers."""
        self.spec = informed(variants.spec, recording.manifest)
        declared = declared_wiring(self.spec)
        if declared is None:
            raise CannotRunError(f"no wiring is known for kind {self.spec.kind.name}", self.spec.name, "name an EAGLE")
        check_fits(self.spec, declared, recording.manifest, steps)
        self.variants, self.steps, self.watch = variants, steps, watch
        self.corpus = Corpus.of(recording, variants.place[1])
        self._whole: dict[str, Score] = {}
        told = recording.manifest
        self.scope = Scope(self.spec, told.num_layers, self.corpus.recorded, told.last_normed)
        self.declared, self.assumed = self._completed(declared)

    def under(self, wiring: Wiring) -> Drafter:
        """Raises as `load_drafter`."""
        return self.variants.under(wiring)

    def whole(self, wiring: Wiring) -> Score:
        """How the drafter does under `wiring` on all prompts, computed once. Raises as `load_drafter`."""
        key = repr(wiring)
        if key not in self._whole:
            self._whole[key] = self.score(self.under(wiring))
        return self._whole[key]

    def score(self, drafter: Drafter, groups: Sequence[int] = EVERY, *, shuffled: bool = False) -> Score:
        """How one drafter does on those groups of prompts."""
        (score,) = self.scores([drafter], groups, shuffled=shuffled)
        return score

    def scores(
        self, drafters: Sequence[Drafter], groups: Sequence[int] = EVERY, *, shuffled: bool = False
    ) -> list[Score]:
        """How each of them does on those groups, side by side: what they share is computed once."""
        scores = [self._empty() for _ in drafters]
        self._run(list(zip(drafters, scores, strict=True)), groups, shuffled=shuffled)
        return scores

    def attempts(self, base: Wiring, standing: Score) -> tuple[tuple[Attempt, ...], tuple[NotObservable, ...]]:
        """Every wiring that departs from `base`, whose score is `standing`, by one knob or as an engine's; those that
        compute the same are one. And what cannot be told, with the reason."""
        supposed, hidden = hypotheses(self.scope, base)
        built, refused = self._built(supposed)
        self._run([(each.drafter, each.score) for each in built], (0,))
        apart, same = self._classes(built, standing)
        ahead = self._survivors(apart, standing)
        self._run([(each.drafter, each.score) for each in ahead], (1, 2))
        kept = {id(each) for each in ahead}
        return tuple(each if id(each) in kept else replace(each, raced=True) for each in apart), hidden + refused + same

    def compared(self, base: Values, other: Values, groups: Sequence[int] = EVERY) -> Paired | None:
        """`other` less `base`, both [n] by start, on those groups, which follow one another."""
        rows = slice(self.corpus.rows_of(groups[0]).start, self.corpus.rows_of(groups[-1]).stop)
        return paired(base, other, self.corpus.prompt_of, rows)

    def _completed(self, declared: Wiring) -> tuple[Wiring, str | None]:
        """`declared`, knobs that nothing tells at what does best on the half that chooses, and a sentence on that."""
        supposed = completions(self.spec, declared)
        if not supposed:
            return declared, None
        attempts, _ = self._built(supposed)
        if not attempts:
            self.under(supposed[0].wiring)  # raises what refused them all
        self._run([(each.drafter, each.score) for each in attempts], (0, 1))
        kls = [(kl_of(each.score), each.hypothesis) for each in attempts]
        _, best = min(kls, key=lambda one: one[0])
        figures = ", ".join(f"{each.name} ({kl:.4f})" for kl, each in kls)
        told = f"nothing tells {best.knob}; tried by KL: {figures}; taken for declared: {best.name}"
        return best.wiring, told

    def _empty(self) -> Score:
        return Score.empty(self.steps, len(self.corpus.prompt_of))

    def _run(self, pairs: Sequence[tuple[Drafter, Score]], groups: Sequence[int], *, shuffled: bool = False) -> None:
        vocabulary = self.corpus.manifest.vocab_size
        for group in groups:
            for pack in self.corpus.packs(group):
                taps = Taps(pack, vocabulary)
                with torch.no_grad():
                    for done, (drafter, score) in enumerate(pairs, 1):
                        run(drafter, pack, taps, score, shuffled=shuffled)
                        self.watch(done, len(pairs))

    def _built(self, supposed: Sequence[Hypothesis]) -> tuple[list[Attempt], tuple[NotObservable, ...]]:
        built, refused = [], []
        for each in supposed:
            try:
                drafter = self.under(each.wiring)
            except AuditError as error:
                refused.append(NotObservable(each.knob, each.value, error.what))
                continue
            built.append(Attempt(each, drafter, self._empty()))
        return built, tuple(refused)

    def _classes(self, built: Sequence[Attempt], base: Score) -> tuple[list[Attempt], tuple[NotObservable, ...]]:
        """One of each class, told by what they compute, and those that compute the same as the base."""
        apart: list[Attempt] = []
        same: list[NotObservable] = []
        for each in built:
            if self._same(each.score, base):
                why = "it computes the same as the base, here at the starts that were tried"
                same.append(NotObservable(each.hypothesis.knob, each.hypothesis.value, why))
                continue
            twin = next((place for place, one in enumerate(apart) if self._same(each.score, one.score)), None)
            if twin is None:
                apart.append(each)
            else:
                apart[twin] = replace(apart[twin], also=(*apart[twin].also, each.hypothesis.name))
        return apart, tuple(same)

    def _same(self, one: Score, other: Score) -> bool:
        """By the log-probs of a few starts, at every step."""
        if not one.sample or len(one.sample) != len(other.sample):
            return False
        share = _SAME.get(self.variants.dtype, _SAME_NARROW)
        for (a, ids), (b, others) in zip(one.sample, other.sample, strict=True):
            if a.shape != b.shape or not np.array_equal(ids, others):
                return False
            if not np.sqrt(np.mean((a - b) ** 2)) <= share * b.std():
                return False
        return True

    def _survivors(self, attempts: Sequence[Attempt], base: Score) -> list[Attempt]:
        """Those whose KL in the race is not far above the base's, the lowest first; and those it could not show."""
        found, unseen = [], []
        for each in attempts:
            raced = self.compared(each.kl(base), each.kl(each.score), (0,))
            if raced is None:
                unseen.append(each)
            elif raced.base + raced.difference <= _KEEPS_UP * raced.base:
                found.append((raced.difference / max(raced.base, 1e-9), each))
        return [each for _, each in sorted(found, key=lambda one: one[0])[:_SURVIVORS]] + unseen


def kl_of(score: Score) -> float:
    """Of the first draft step, infinite where nothing is known."""
    kl = mean_of(score.kl[0])
    return math.inf if kl is None else kl


def open_probe(
    ref: str,
    recording: Recording,
    *,
    steps: int = 3,
    target: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    watch: Watch = lambda _, __: None,
) -> Probe:
    """The drafter `ref` on that recording. `target` names whom it borrows from, where its files do not lead there, else
    `lent_by`. Raises as `load_drafter` and `Probe`."""
    lends = lent_by(recording, target)
    return Probe(open_variants(ref, target=lends, dtype=dtype, device=device), recording, steps, watch)


def lent_by(recording: Recording, target: str | None) -> str | None:
    """`target`, else the recorded one where its weights are at hand: what is called the target's is then the target's,
    and no copy of it."""
    named = recording.manifest.target
    return target or (named if lends_at_hand(named) else None)
