"""What the numbers say, in words: for headlines, captions and the page. Nothing here is known beforehand."""

from __future__ import annotations

from collections.abc import Iterable

from situs.lab.comparing.summary import FINDS, HOLDS, LOSS, Point, Row, Scores
from situs.plots.comparison.view import View
from situs.plots.style import minus

LEVEL = 0.01  # nats that no one should tell apart


def signed(number: float) -> str:
    """Write a change with its sign and two digits that say something."""
    digits = 3 if abs(number) < 0.0095 else 2
    return "0.000" if abs(number) < 0.0005 else minus(f"{number:+.{digits}f}")


def percent(share: float, digits: int = 0) -> str:
    """Write a share of all answers in percent."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def listed(names: Iterable[str], most: int = 4) -> str:
    """Join names to ``a, b and c``; of more than ``most``, their number stands for the rest."""
    each = list(names)
    if len(each) > most:
        each = [*each[: most - 1], f"{len(each) - most + 1} more"]
    return f"{', '.join(each[:-1])} and {each[-1]}" if len(each) > 1 else "".join(each)


def called(method: str) -> str:
    """Name a method within a sentence, where "none" alone would mean something else."""
    return "NoPE (none)" if method == "none" else method


def unit(task: str | None) -> str:
    """Name what a loss is measured in."""
    return "nats a byte" if task == "text" else "nats a token"


def holders(view: View, task: str | None) -> list[tuple[Row, Scores]]:
    """Find the methods that reach farthest, the best there first; none if no one gets beyond the training length."""
    reached = [(view.reach(scores), row, scores) for row, scores in view.scored(task)]
    far = max((length for length, _, _ in reached), default=0)
    if far <= view.train_length:
        return []
    best = [(row, scores) for length, row, scores in reached if length == far]
    return sorted(best, key=lambda each: each[1].levels[far].mean * (1 if each[1].measure == LOSS else -1))


def best_at(view: View, task: str | None, length: int) -> list[tuple[Row, Point]]:
    """Sort methods by their loss at a length, the lowest first."""
    found = [(row, point) for row, scores in view.scored(task) if (point := view.at(scores.levels, length))]
    return sorted(found, key=lambda each: each[1].mean)


def alike(one: Point, other: Point) -> bool:
    """Tell whether the seeds of two points overlap, or they lie so near that it does not matter."""
    overlap = min(one.seeds) <= max(other.seeds) and min(other.seeds) <= max(one.seeds)
    return overlap or abs(one.mean - other.mean) < LEVEL


def headline(view: View) -> str:
    """Say the main finding in one sentence."""
    task, best = view.loss_task, holders(view, view.loss_task)
    if best:
        row, scores = best[0]
        far = view.reach(scores)
        change = scores.changes[far].mean
        cost = f"at {signed(change)} {unit(task)}" if change >= 0.0005 else "at no loss"
        what = "bytes" if task == "text" else "tokens"
        return f"{called(row.name)} carries farthest: trained on {view.train_length:,} {what}, it reads {far:,} {cost}"
    if task is not None and view.beyond:
        return f"No encoding here holds its loss beyond the {view.train_length:,} it was trained at"
    answered = holders(view, next(iter(view.answer_tasks), None))
    if answered:
        far = view.reach(answered[0][1])
        first = answered[0][1].levels[far]
        best = [(row, scores) for row, scores in answered if alike(first, scores.levels[far])]
        who = (
            f"{called(best[0][0].name)} carries"
            if len(best) == 1
            else f"{listed((called(row.name) for row, _ in best), 3)} carry"
        )
        return f"{who} farthest: trained at {view.train_length:,}, right at {far:,} still"
    if view.loss_task is None and not view.answer_tasks:
        return "No trial was finished"
    return "Nothing here carries beyond its training length" if view.beyond else "Only the training length was tested"


def findings(view: View) -> list[str]:
    """Say all that the numbers show, a sentence or two each."""
    found = [_reach(view), _near(view), _needle(view), *(answers(view, task) for task in view.answer_tasks)]
    found += [_scaled(view), _ends(view), _costs(view)]
    return [sentence for sentence in found if sentence]


def _reach(view: View) -> str:
    task = view.loss_task
    scored, best = view.scored(task), holders(view, task)
    if not best:
        return ""
    far = view.reach(best[0][1])
    first = best[0][1].levels[far]
    names = listed(called(row.name) for row, _ in best)
    rivals = [called(row.name) for row, scores in best[1:] if alike(first, scores.levels[far])]
    keep = "method keeps its" if len(best) == 1 else "methods keep their"
    said = f"{len(best)} of {len(scored)} {keep} loss within {HOLDS} {unit(task)} up to {view.times(far)}: {names}."
    if len(best) > 1:
        said += f" The lowest loss among them is {called(best[0][0].name)}'s, {first.mean:.2f}"
        said += f", though {listed(rivals)} cannot be told from it." if rivals else "."
    return said


def _near(view: View) -> str:
    ranked = best_at(view, view.loss_task, view.train_length)
    if not ranked:
        return ""
    (row, point), *rest = ranked
    rivals = [called(other.name) for other, each in rest if alike(point, each) and each.seeds != point.seeds]
    said = f"At the training length itself {called(row.name)} reads best, {point.mean:.2f} {unit(view.loss_task)}"
    said += f"; {listed(rivals)} cannot be told from it." if rivals else "."
    last = view.last(row.scores[str(view.loss_task)].changes)
    if last and last[0] > view.train_length:
        said += f" At {view.times(last[0])} its loss has changed by {signed(last[1].mean)}."
    return said


def _needle(view: View) -> str:
    """Say where loss and retrieval disagree."""
    task = next((task for task in view.answer_tasks if view.searched(task)), None)
    flat, found = [], []
    for row, scores in view.scored(task):
        answers = view.at(scores.levels, view.longest)
        change = view.at(row.scores[view.loss_task].changes, view.longest) if view.loss_task in row.scores else None
        if answers is None or change is None:
            continue
        if change.mean < HOLDS and answers.mean < FINDS:
            flat.append((answers.mean, f"{called(row.name)} ({percent(answers.mean)})"))
        if change.mean >= HOLDS and answers.mean >= FINDS:
            found.append((-change.mean, f"{called(row.name)} ({signed(change.mean)})"))
    said = []
    if flat:
        each = listed(name for _, name in sorted(flat))
        said.append(f"Flat in loss, and yet the {task} is not reliably found at {view.longest:,}: {each}.")
    if found:
        each = listed(name for _, name in sorted(found))
        said.append(f"Worse in loss, and yet the {task} is found there: {each}.")
    return " ".join(said)


def answers(view: View, task: str) -> str:
    """Say who answers best beyond the training length."""
    ranked = [(called(row.name), point.mean) for row, point in reversed(best_at(view, task, view.longest))]
    if not ranked or not view.beyond:
        return ""
    right = sum(mean >= FINDS for _, mean in ranked)
    (first, high), (last, low) = ranked[0], ranked[-1]
    where = f"at {view.times(view.longest)}"
    if not right:
        nearest = f"{first} comes nearest, {percent(high)}"
        return f"On {task} nobody is right {percent(FINDS)} of the time {where}; {nearest}."
    who = f"{right} of {len(ranked)} methods {'is' if right == 1 else 'are'}" if len(ranked) > 1 else f"{first} is"
    worst = f"; {last} falls to {percent(low)}" if low < FINDS else ""
    return f"On {task} {who} right {percent(FINDS)} of the time or more {where}{worst}."


def _scaled(view: View) -> str:
    """Say what scaling a trained model's frequencies brings."""
    changes = {
        row.method: point.mean
        for row, scores in view.scored(view.loss_task)
        if (point := view.at(scores.changes, view.longest))
    }
    scaled = {method: change for method, change in changes.items() if method.scaling is not None}
    if not scaled or not view.beyond:
        return ""
    best = min(scaled, key=lambda method: scaled[method])
    base = best.trained
    if base not in changes:
        return ""
    helped = "takes" if scaled[best] < changes[base] else "does not help: it takes"
    return (
        f"Scaled without further training, {best} does best: at {view.times(view.longest)} it {helped} the change of "
        f"{base} from {signed(changes[base])} to {signed(scaled[best])}."
    )


def _ends(view: View) -> str:
    ended: dict[str, int] = {}
    for row in view.rows:
        points = [point for scores in row.scores.values() for point in scores.levels.values()]
        end = next((point.ends for point in points if point.ends is not None), None)
        if end is not None:
            ended[row.name] = end
    if not ended:
        return ""
    each = listed(f"{name} (at {end:,})" for name, end in ended.items())
    return f"Tables end, and with them what can be read: {each}. A number beyond would be made up, so none is given."


def _costs(view: View) -> str:
    if not view.cost_lengths:
        return ""
    length = view.cost_lengths[-1]
    found = sorted((time, called(row.name)) for row in view.rows if (time := view.cost(row, length).time) is not None)
    if len(found) < 2:
        return ""
    middle = found[len(found) // 2][0]
    return (
        f"Attention over {length:,} tokens takes {found[0][0]:.2f} to {found[-1][0]:.2f} times as long as without "
        f"positions, {middle:.2f} times in the middle; {found[-1][1]} costs most."
    )


def seconds(number: float) -> str:
    """Write a duration as one says it."""
    if number < 90:
        return f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 5400 else f"{number / 3600:.1f} h"
