"""The loop that attends, written for LLVM: output and log-sum-exp in one pass over the keys.

    take the next task until none is left: a row of the batch, a head, a block of queries
        for each block of keys
            rewrite it into panels
            for every 6 queries
                scores = queries keys^T scale + mask                  kept for these queries and keys only
                weights = exp(scores - the highest so far)
                output = output exp(the highest before - the highest so far) + weights values
        divide the output by the sum of weights

All threads run the program with the same numbers, those of `CALL`, behind which stand a count of threads that have
come and one of tasks for each thread.
"""

from __future__ import annotations

from llvmlite import ir

from situs.compiled.attending.blocks import FLOATS, ROWS, Blocks, Work
from situs.compiled.program import FLOAT, INT32, Value, whole
from situs.compiled.vectors import LOWEST, NOTHING

TENSORS = ("query", "key", "value", "mask", "out")
CALL = (
    *TENSORS, *(f"{name}_{axis}" for name in TENSORS for axis in ("batch", "head", "row")),
    "total", "highest", "scratch", "scale", "first", "last", "batch", "heads", "queries", "keys", "block", "blocks",
    "threads",
)  # fmt: skip
"""Addresses, and how many bytes a step moves along each axis; addresses of the sum of weights and of the highest score
of each query; the scale's bits; the lowest and the highest number of a key minus that of a query that sees it; sizes;
how many queries a block has, and how many blocks there are."""


def queries_of(work: Work) -> int:
    """Queries that a block has room for."""
    return max(ROWS, 12288 // max(work.head_dim, work.value_dim) // ROWS * ROWS)


def sizes(work: Work) -> dict[str, int]:
    """The memory of a thread."""
    queries = queries_of(work)
    return {
        "queries": queries * work.head_dim,
        "sums": queries * work.value_dim,
        "panels": work.keys * work.head_dim,
        "scores": ROWS * work.keys,
        "highs": ROWS * work.lanes,
        "shares": ROWS,
        "total": queries,
        "highest": queries,
    }


class Forward(Blocks):
    """The program of the loop."""

    def __init__(self, work: Work) -> None:
        super().__init__(work, CALL, sizes(work))
        with self.each_matrix(self.call["blocks"]) as (matrix, batch, head, block):
            self._attend_block(matrix, batch, head, self.build.mul(block, self.call["block"]))

    def _attend_block(self, matrix: Value, batch: Value, head: Value, first: Value) -> None:
        program, build, call, memory, work = self.program, self.build, self.call, self.memory, self.work
        count = program.least(build.sub(call["queries"], first), call["block"])
        rows = program.rounded_up(count, ROWS)
        query, out = (self.begin(name, batch, head, first) for name in ("query", "out"))
        key, value = (self.begin(name, batch, head, whole(0)) for name in ("key", "value"))
        mask = self.begin("mask", batch, head, first)
        self.copy_rows(query, call["query_row"], count, rows, work.head_dim, memory["queries"])
        self._clear(rows)
        lowest, _ = self.seen_by(first, whole(0), call["keys"])
        _, highest = self.seen_by(build.sub(build.add(first, count), whole(1)), whole(0), call["keys"])
        with program.each(lowest, highest, work.keys) as first_key:
            keys = program.least(build.sub(highest, first_key), whole(work.keys))
            here = program.moved(key, first_key, call["key_row"])
            self.rewrite(here, call["key_row"], keys, work.head_dim, memory["panels"])
            values, masks = program.moved(value, first_key, call["value_row"]), program.moved(mask, first_key, FLOATS)
            with program.each(whole(0), rows, ROWS) as row:
                seen = [
                    self.seen_by(build.add(build.add(first, row), whole(number)), first_key, keys)
                    for number in range(ROWS)
                ]
                begin, past = seen[0][0], seen[-1][1]
                with build.if_then(build.icmp_signed("<", begin, past)):
                    columns = self.panels_of(begin, past)
                    self._score(row, count, masks, seen, columns)
                    self._weigh(row, columns)
                    self._gather(row, values, begin, past)
        self._finish(out, program.moved(build.mul(matrix, call["queries"]), first), count)

    def _clear(self, rows: Value) -> None:
        program, memory, lanes = self.program, self.memory, self.work.lanes
        with program.each(whole(0), rows) as row:
            there = program.moved(memory["sums"], row, FLOATS * self.work.value_dim)
            for channel in range(0, self.work.value_dim, lanes):
                self.vectors.store(self.vectors.of(0.0), there, FLOATS * channel)
            program.store_one(ir.Constant(FLOAT, 0.0), program.moved(memory["total"], row, FLOATS))
            program.store_one(ir.Constant(FLOAT, NOTHING), program.moved(memory["highest"], row, FLOATS))

    def _score(
        self,
        row: Value,
        count: Value,
        masks: Value,
        seen: list[tuple[Value, Value]],
        columns: tuple[Value, Value],
    ) -> None:
        """Form the scores of ROWS queries, and the highest of each lane."""
        program, build, call, memory, work = self.program, self.build, self.call, self.memory, self.work
        queries = program.moved(memory["queries"], row, FLOATS * work.head_dim)
        last = build.sub(count, whole(1))
        own = [program.least(build.add(row, whole(number)), last) for number in range(ROWS)]
        mask_rows = [program.moved(masks, each, call["mask_row"]) for each in own]
        with program.each_with(*columns, [self.vectors.of(NOTHING)] * ROWS, work.panel) as (key, highs):
            panel = program.moved(memory["panels"], key, FLOATS * work.head_dim)
            right = self.floats_of(panel, FLOATS * work.panel, 0, work.vectors)
            sums = self.product(
                self.nothing(ROWS, work.vectors),
                (whole(0), whole(work.head_dim)),
                queries,
                FLOATS * work.head_dim,
                FLOATS,
                right,
            )
            scores = program.moved(memory["scores"], key, FLOATS)
            for number, vectors in enumerate(sums):
                for place, vector in enumerate(vectors):
                    chosen = self.chosen(seen[number], key, place)
                    score = build.fmul(vector, self.scale)
                    if work.masked:
                        mask = program.moved(mask_rows[number], key, FLOATS)
                        added = self.vectors.load_some(chosen, mask, self.vectors.bytes * place)
                        score = self.vectors.fma(vector, self.scale, added)
                    score = build.select(chosen, score, self.vectors.of(NOTHING))
                    self.vectors.store(score, scores, FLOATS * work.keys * number + self.vectors.bytes * place)
                    highs[number] = self.vectors.greater(highs[number], score)
        for number, high in enumerate(highs):
            self.vectors.store(high, memory["highs"], self.vectors.bytes * number)

    def _weigh(self, row: Value, columns: tuple[Value, Value]) -> None:
        """Make weights of scores, and note by how much those of keys before become smaller."""
        program, build, memory, work, vectors = self.program, self.build, self.memory, self.work, self.vectors
        with program.each(whole(0), whole(ROWS)) as number:
            where = build.add(row, number)
            noted, total = (program.moved(memory[name], where, FLOATS) for name in ("highest", "total"))
            before = program.load_one(FLOAT, noted)
            high = vectors.load(program.moved(memory["highs"], number, vectors.bytes))
            highest = vectors.greater(vectors.reduced(high, vectors.greater), before)
            program.store_one(highest, noted)
            # finite, so that a query that has seen nothing yet has weights of 0
            base = vectors.spread(vectors.greater(highest, ir.Constant(FLOAT, LOWEST)))
            share = vectors.exp(build.fsub(vectors.spread(before), base))
            share = build.extract_element(share, ir.Constant(INT32, 0))
            program.store_one(share, program.moved(memory["shares"], number, FLOATS))
            scores = program.moved(memory["scores"], number, FLOATS * work.keys)
            with program.each_with(*columns, [vectors.of(0.0)], work.lanes) as (key, sums):
                here = program.moved(scores, key, FLOATS)
                weights = vectors.exp(build.fsub(vectors.load(here), base))
                vectors.store(weights, here)
                sums[0] = build.fadd(sums[0], weights)
            found = build.fadd(build.fmul(program.load_one(FLOAT, total), share), vectors.reduced(sums[0], build.fadd))
            program.store_one(found, total)

    def _gather(self, row: Value, values: Value, begin: Value, past: Value) -> None:
        """Add what the weights gather."""
        program, memory, work, vectors = self.program, self.memory, self.work, self.vectors
        shares = [vectors.spread(program.load_one(FLOAT, memory["shares"], FLOATS * each)) for each in range(ROWS)]
        for channel, width in self.columns(work.value_dim):
            place = program.moved(program.moved(memory["sums"], row, FLOATS * work.value_dim), channel, FLOATS)
            at = [
                [FLOATS * work.value_dim * number + vectors.bytes * each for each in range(width)]
                for number in range(ROWS)
            ]
            sums = [
                [self.build.fmul(share, vectors.load(place, offset)) for offset in offsets]
                for share, offsets in zip(shares, at, strict=True)
            ]
            right = self.rows_of(values, self.call["value_row"], channel, width)
            left = memory["scores"], FLOATS * work.keys, FLOATS
            for offsets, found in zip(at, self.product(sums, (begin, past), *left, right), strict=True):
                for offset, vector in zip(offsets, found, strict=True):
                    vectors.store(vector, place, offset)

    def _finish(self, out: Value, number: Value, count: Value) -> None:
        """Divide by the sum of weights, and write; ``number`` is that of the first query among all."""
        program, build, call, memory, work = self.program, self.build, self.call, self.memory, self.work
        with program.each(whole(0), count) as row:
            total = program.load_one(FLOAT, program.moved(memory["total"], row, FLOATS))
            is_blind = build.fcmp_ordered("==", total, ir.Constant(FLOAT, 0.0))
            one = ir.Constant(FLOAT, 1.0)
            inverse = self.vectors.spread(build.fdiv(one, build.select(is_blind, one, total)))
            source = program.moved(memory["sums"], row, FLOATS * work.value_dim)
            target = program.moved(out, row, call["out_row"])
            for channel in range(0, work.value_dim, work.lanes):
                found = build.fmul(self.vectors.load(source, FLOATS * channel), inverse)
                self.numbers.store(found, target, channel)
            own = build.add(number, row)
            program.store_one(total, program.moved(call["total"], own, FLOATS))
            highest = program.load_one(FLOAT, program.moved(memory["highest"], row, FLOATS))
            program.store_one(highest, program.moved(call["highest"], own, FLOATS))
