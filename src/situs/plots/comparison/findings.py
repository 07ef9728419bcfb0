"""What the numbers show, in sentences: the headline, and the list of findings. Nothing here is known beforehand."""

from __future__ import annotations

from situs.lab.comparing.summary import Row
from situs.lab.naming.grammar import Method
from situs.lab.scores import FINDS, HOLDS, Ranking, Scores
from situs.plots.comparison.view import View
from situs.plots.comparison.words import called, change_interval, leading, listed, percent, signed, unit


def headline(view: View) -> str:
    """Say what leads the table's ranking, and for losses what leads by their increase, with all ties; first of all,
    that a comparison was stopped."""
    records = view.records
    if not records.planned:
        return _headline(view)
    missing, total = len(records.missing), len(records.planned)
    what = f"{missing} of {total} trials missing" if missing else "costs and properties not measured"
    return f"Stopped before the end: {what}. {_headline(view)}"


def _headline(view: View) -> str:
    ranking = view.ranking
    if ranking is None:
        return "No trial has a result"
    where = "at the training length" if ranking.length == view.train_length else f"at {_far(view, ranking)}"
    before = _before(view, ranking)
    if view.loss_task is None:
        said = f"{before}Most right answers on {ranking.task} {where}: {leading(ranking, percent)}"
        best = ranking.entries[0].point.mean
        return said if best >= FINDS else f"{said}; {percent(FINDS)} would count as solved"
    lowest = leading(ranking, lambda loss: f"{loss:.2f} {unit(view.loss_task)}")
    said = f"{before}Lowest loss {where}: {lowest}"
    if view.increases is None:
        return said
    return f"{said}. Smallest increase from 1×: {leading(view.increases, signed)}"


def _far(view: View, ranking: Ranking[Row]) -> str:
    return f"{view.times(ranking.length)} the training length"


def _before(view: View, ranking: Ranking[Row]) -> str:
    """Say what must be known before the best is named: that nothing longer was tested, or that no loss holds."""
    if not view.beyond:
        return "Only the training length was tested. "
    if ranking.length == view.train_length:
        return "No method has a result beyond the training length. "
    if view.loss_task is not None and not holders(view):
        return "No method keeps its loss beyond the training length. "
    return ""


def holders(view: View) -> list[tuple[Row, Scores]]:
    """Find the methods whose loss holds farthest; none if no loss holds beyond the training length."""
    reached = [(view.reach(scores), row, scores) for row, scores in view.scored(view.loss_task)]
    far = max((length for length, _, _ in reached), default=0)
    return [(row, scores) for length, row, scores in reached if length == far > view.train_length]


def findings(view: View) -> list[str]:
    """Say all that the numbers show, in a sentence or two each."""
    found = [_lowest(view), _increase(view), _holding(view), _near(view), _needle(view)]
    found += [answers(view, task) for task in view.answer_tasks]
    found += [_scaled(view), _ends(view), _unfinished(view), _costs(view)]
    return [sentence for sentence in found if sentence]


def _lowest(view: View) -> str:
    """Say which method leads the table, which tie with it, and how far the next is behind."""
    ranking = view.ranking
    if ranking is None or view.loss_task is None or ranking.length == view.train_length:
        return ""
    return _ranked(ranking, f"At {_far(view, ranking)},", unit(view.loss_task))


def _ranked(ranking: Ranking[Row], where: str, what: str) -> str:
    """Say the lowest loss of a ranking, its ties, and the next that does not tie."""
    first, *others = ranking.entries
    tied = [called(entry.row.name) for entry in others if entry.ties]
    after = next((entry for entry in others if not entry.ties), None)
    said = f"{where} {called(first.row.name)} has the lowest loss, {first.point.mean:.2f} {what}."
    if tied:
        tie = "ties" if len(tied) == 1 else "tie"
        said += f" {listed(tied)} {tie} with it: the 95 % interval of the difference includes 0."
    if after is not None:
        behind = f"{signed(after.behind.mean)} ({change_interval(after.behind)})"
        said += f" Next is {called(after.row.name)}, {after.point.mean:.2f}, which differs by {behind}."
    return said


def _increase(view: View) -> str:
    """Say which loss increases least, and where that loss starts, since a high loss has less to lose."""
    ranking = view.increases
    if ranking is None:
        return ""
    first = ranking.entries[0]
    start = view.at(first.row.scores[ranking.task].levels, view.train_length)
    lowest = min(entry.row.scores[ranking.task].levels[view.train_length].mean for entry in ranking.entries)
    said = (
        f"From 1× to {view.times(ranking.length)} the loss of {called(first.row.name)} changes by "
        f"{signed(first.point.mean)}, the smallest increase"
    )
    tied = [called(entry.row.name) for entry in ranking.first if entry is not first]
    said += f"; {listed(tied)} {'ties' if len(tied) == 1 else 'tie'} with it." if tied else "."
    if start is not None and start.mean - lowest >= HOLDS:
        said += f" But it starts from {start.mean:.2f}, where the lowest loss at 1× is {lowest:.2f}."
    return said


def _holding(view: View) -> str:
    scored, best = view.scored(view.loss_task), holders(view)
    if not scored or not view.beyond:
        return ""
    near = f"within {HOLDS} {unit(view.loss_task)} of its value at 1×"
    if not best:
        return f"No method keeps its loss {near} at any longer length."
    far = view.reach(best[0][1])
    tested = [row for row, scores in scored if view.at(scores.changes, far) is not None]
    where = f"{near} up to {view.times(far)}"
    without = len(view.rows) - len(tested)
    missing = f" {without} more ha{'s' if without == 1 else 've'} no result there." if without else ""
    if len(tested) == 1:
        return f"{called(best[0][0].name)} keeps its loss {where}.{missing}"
    keep = "keeps its" if len(best) == 1 else "keep their"
    names = listed((called(row.name) for row, _ in best), 8)
    return f"{len(best)} of {len(tested)} methods {keep} loss {where}: {names}.{missing}"


def _near(view: View) -> str:
    """Say which method has the lowest loss at the training length; scaled methods are the same model there."""
    if view.loss_task is None:
        return ""
    ranking = view.rank(view.loss_task, view.train_length, scaled=False)
    return _ranked(ranking, "At the training length,", unit(view.loss_task)) if ranking.entries else ""


def _needle(view: View) -> str:
    """Say where loss and retrieval disagree."""
    task = next((task for task in view.answer_tasks if view.searched(task)), None)
    flat, found = [], []
    for row, scores in view.scored(task):
        right = view.at(scores.levels, view.longest)
        change = view.at(row.scores[view.loss_task].changes, view.longest) if view.loss_task in row.scores else None
        if right is None or change is None:
            continue
        if change.mean < HOLDS and right.mean < FINDS:
            flat.append((right.mean, f"{called(row.name)} ({percent(right.mean)})"))
        if change.mean >= HOLDS and right.mean >= FINDS:
            found.append((-change.mean, f"{called(row.name)} ({signed(change.mean)})"))
    said, where = [], view.times(view.longest)
    if flat:
        names = listed((name for _, name in sorted(flat)), 8)
        said.append(
            f"The loss holds at {where}, but fewer than {percent(FINDS)} of the {task} answers are right: {names}."
        )
    if found:
        names = listed((name for _, name in sorted(found)), 8)
        said.append(
            f"The loss grows by {HOLDS} or more at {where}, but at least {percent(FINDS)} of the {task} answers are "
            f"right: {names}."
        )
    return " ".join(said)


def answers(view: View, task: str) -> str:
    """Say how many methods answer a task at the longest length, which is worst there, and which have no number."""
    ranking = view.rank(task, view.longest)
    if not ranking.entries or not view.beyond:
        return ""
    right = sum(entry.point.mean >= FINDS for entry in ranking.entries)
    first, last = ranking.entries[0], ranking.entries[-1]
    where, total = f"At {view.times(view.longest)},", len(ranking.entries)
    without = [called(row.name) for row in ranking.rest]
    missing = f" Without a number there: {listed(without, 3)}." if without else ""
    if not right:
        best = f"{called(first.row.name)} comes nearest, {percent(first.point.mean)}"
        return f"{where} no method answers {percent(FINDS)} of the {task} examples correctly; {best}.{missing}"
    does = "answers" if total == 1 or right == 1 else "answer"
    worst = f"; {called(last.row.name)} answers fewest, {percent(last.point.mean)}" if right < total else ""
    of = f"{right} of {total} methods" if total > 1 else called(first.row.name)
    return f"{where} {of} {does} at least {percent(FINDS)} of the {task} examples correctly{worst}.{missing}"


def _scaled(view: View) -> str:
    """Say what scaling a trained model's frequencies brings."""
    losses: dict[Method, float] = {}
    if view.beyond and view.loss_task is not None:
        entries = view.rank(view.loss_task, view.longest).entries
        losses = {entry.row.method: entry.point.mean for entry in entries}
    best = next((method for method in losses if method.scaling is not None), None)
    if best is None or best.trained not in losses:
        return ""
    scaled, plain = losses[best], losses[best.trained]
    where = view.times(view.longest)
    if scaled >= plain:
        return (
            f"No scaling that was added after training lowers the loss at {where}: the best, {best}, has {scaled:.2f}, "
            f"where {best.trained} without scaling has {plain:.2f}."
        )
    return (
        f"Of the scalings that were added after training, {best} has the lowest loss at {where}: {scaled:.2f}, where "
        f"{best.trained} without scaling has {plain:.2f}."
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
    each = listed(f"{name} ({end:,} positions)" for name, end in ended.items())
    return f"A table of positions has no entry beyond its end, so that longer texts have no number: {each}."


def _unfinished(view: View) -> str:
    """Count the trials without a result, by what became of them."""
    counts = view.unfinished
    if not counts:
        return ""
    each = listed(f"{count} {status}" for status, count in counts.items())
    return f"Of {view.trials} trials, {each}; they are listed below."


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
        f"positions, with a median of {middle:.2f}; {found[-1][1]} takes longest."
    )
