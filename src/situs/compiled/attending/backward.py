"""The loop that differentiates attention, written for LLVM.

    take the next task until none is left: a row of the batch, a head, a part of the queries
        for each block of keys
            rewrite keys and values into panels
            for each block of queries
                for every 6 queries, one panel after another
                    weights = exp(queries keys^T scale + mask - log-sum-exp)
                    changes = weights (gradient values^T - delta)          the gradient of scores, and of the mask
                of queries, add changes keys scale
                of values, add weights^T gradient
                of keys, add changes^T queries scale

Gradients are added to what is there. Weights and changes exist for a block of queries and keys. Parts of the queries
have gradients of keys, values and the mask of their own, since several threads may work at them.
"""

from __future__ import annotations

import math

from llvmlite import ir

from situs.compiled.attending.blocks import FLOATS, ROWS, Blocks, Work
from situs.compiled.program import FLOAT, Value, whole

TENSORS = ("gradient", "query", "key", "value", "mask", "of_query", "of_key", "of_value", "of_mask")
PARTED = ("of_key", "of_value", "of_mask")
CALL = (
    *TENSORS, *(f"{name}_{axis}" for name in TENSORS for axis in ("batch", "head", "row")),
    *(f"{name}_part" for name in PARTED),
    "logsumexp", "delta", "scratch", "scale", "first", "last", "batch", "heads", "queries", "keys", "parts", "threads",
)  # fmt: skip
"""Addresses, and how many bytes a step moves along each axis, and from part to part; addresses of the log-sum-exp and
of the sum of output times gradient, of each query; and what the loop that attends is given."""


def queries_of(work: Work) -> int:
    """Queries of a block."""
    return 96 if max(work.head_dim, work.value_dim) <= 128 else 48


def sizes(work: Work) -> dict[str, int]:
    """The memory of a thread."""
    queries = queries_of(work)
    return {
        "queries": queries * work.head_dim,
        "gradients": queries * work.value_dim,
        "keys": work.keys * work.head_dim,
        "values": work.keys * work.value_dim,
        "weights": queries * (work.keys + work.lanes),
        "changes": queries * (work.keys + work.lanes),
        "logsumexp": queries,
        "delta": queries,
    }


class Backward(Blocks):
    """The program of the loop."""

    def __init__(self, work: Work) -> None:
        super().__init__(work, CALL, sizes(work))
        self.pitch = FLOATS * (work.keys + work.lanes)  # of weights and changes, with zeros behind them
        with self.each_matrix(self.call["parts"]) as (matrix, batch, head, part):
            self._differentiate_part(matrix, batch, head, part)

    def _differentiate_part(self, matrix: Value, batch: Value, head: Value, part: Value) -> None:
        program, build, call, work = self.program, self.build, self.call, self.work
        self.at = {name: self.begin(name, batch, head, whole(0)) for name in TENSORS}
        for name in PARTED:
            self.at[name] = program.moved(self.at[name], part, call[f"{name}_part"])
        for name in ("logsumexp", "delta"):
            self.at[name] = program.moved(call[name], build.mul(matrix, call["queries"]), FLOATS)
        size = whole(queries_of(work))
        blocks = build.udiv(program.rounded_up(call["queries"], queries_of(work)), size)
        own_first, own_past = (
            build.udiv(build.mul(blocks, each), call["parts"]) for each in (part, build.add(part, whole(1)))
        )
        with program.each(whole(0), call["keys"], work.keys) as first_key:
            keys = program.least(build.sub(call["keys"], first_key), whole(work.keys))
            first, past = self._queries_that_see(first_key, keys)
            begin = program.greatest(build.udiv(first, size), own_first)
            end = program.least(build.udiv(program.rounded_up(past, queries_of(work)), size), own_past)
            with build.if_then(build.icmp_signed("<", begin, end)):
                for name, dim, target in (("key", work.head_dim, "keys"), ("value", work.value_dim, "values")):
                    step = call[f"{name}_row"]
                    self.rewrite(program.moved(self.at[name], first_key, step), step, keys, dim, self.memory[target])
                with program.each(begin, end) as block:
                    self._differentiate_block(build.mul(block, size), first_key, keys)

    def _queries_that_see(self, first_key: Value, keys: Value) -> tuple[Value, Value]:
        """The first query that sees some of these keys, and the one behind the last; none if they are the same."""
        program, build, call = self.program, self.build, self.call
        first = program.greatest(build.sub(first_key, call["last"]), whole(0))
        past = program.least(build.sub(build.add(first_key, keys), call["first"]), call["queries"])
        return first, program.greatest(past, whole(0))

    def _differentiate_block(self, first: Value, first_key: Value, keys: Value) -> None:
        program, build, call, memory, work = self.program, self.build, self.call, self.memory, self.work
        count = program.least(build.sub(call["queries"], first), whole(queries_of(work)))
        rows = program.rounded_up(count, ROWS)
        lowest, _ = self.seen_by(first, first_key, keys)
        _, highest = self.seen_by(build.sub(build.add(first, count), whole(1)), first_key, keys)
        with build.if_then(build.icmp_signed("<", lowest, highest)):
            for name, dim, target in (("query", work.head_dim, "queries"), ("gradient", work.value_dim, "gradients")):
                step = call[f"{name}_row"]
                self.copy_rows(program.moved(self.at[name], first, step), step, count, rows, dim, memory[target])
            self._copy_sums(first, count, rows)
            columns = self.panels_of(lowest, highest)
            with program.each(whole(0), rows, ROWS) as row:
                last = build.sub(count, whole(1))
                real = [build.add(first, program.least(build.add(row, whole(each)), last)) for each in range(ROWS)]
                seen = [self.seen_by(each, first_key, keys) for each in real]
                self._change(real, first_key, row, seen, columns)
                self._of_queries(real, first_key, row, seen[0][0], seen[-1][1])
            with program.each(lowest, highest, ROWS) as key:
                begin, end = self._queries_that_see(build.add(first_key, key), whole(ROWS))
                begin = program.greatest(build.sub(begin, first), whole(0))
                seeing = begin, program.least(build.sub(end, first), rows)
                self._of_keys("of_value", "weights", "gradients", work.value_dim, first_key, key, keys, seeing)
                self._of_keys("of_key", "changes", "queries", work.head_dim, first_key, key, keys, seeing)

    def _copy_sums(self, first: Value, count: Value, rows: Value) -> None:
        """Copy what is subtracted from scores and from their gradients; rows behind the last query get no weight."""
        program, build = self.program, self.build
        with program.each(whole(0), rows) as row:
            own = build.add(first, program.least(row, build.sub(count, whole(1))))
            is_real = build.icmp_signed("<", row, count)
            for name in ("logsumexp", "delta"):
                number = program.load_one(FLOAT, program.moved(self.at[name], own, FLOATS))
                if name == "logsumexp":
                    number = build.select(is_real, number, ir.Constant(FLOAT, math.inf))
                program.store_one(number, program.moved(self.memory[name], row, FLOATS))

    def _change(
        self,
        queries: list[Value],
        first_key: Value,
        row: Value,
        seen: list[tuple[Value, Value]],
        columns: tuple[Value, Value],
    ) -> None:
        """Form weights and changes of ROWS queries; 0 where nothing is seen, and for ROWS - 1 keys more."""
        program, build, call, memory, work = self.program, self.build, self.call, self.memory, self.work
        targets = [program.moved(memory[name], row, self.pitch) for name in ("weights", "changes")]
        rows = []
        for number, query in enumerate(queries):
            line = {}
            for name in ("logsumexp", "delta"):
                place = program.moved(program.moved(memory[name], row, FLOATS), number, FLOATS)
                line[name] = self.vectors.spread(program.load_one(FLOAT, place))
            for name in ("mask", "of_mask"):
                address = program.moved(self.at[name], query, call[f"{name}_row"])
                line[name] = program.moved(address, first_key, FLOATS)
            rows.append(line)
        (begin, _), (_, past) = seen[0], seen[-1]
        with program.each(*columns, work.panel) as key:
            places = [program.moved(target, key, FLOATS) for target in targets]
            ends_behind = build.icmp_signed(">", build.add(key, whole(work.panel)), begin)
            with build.if_else(build.and_(build.icmp_signed("<", key, past), ends_behind)) as (some, none):
                with some:
                    self._weights(row, key, rows, seen, places[0])
                    self._changes(row, key, rows, seen, *places)
                with none:
                    for place in places:
                        self._clear(place, work.panel)
        for target in targets:
            self._clear(program.moved(target, columns[1], FLOATS), work.lanes)

    def _clear(self, place: Value, columns: int) -> None:
        for number in range(ROWS):
            for column in range(0, columns, self.work.lanes):
                self.vectors.store(self.vectors.of(0.0), place, self.pitch * number + FLOATS * column)

    def _products(self, left: str, panels: str, dim: int, row: Value, key: Value) -> list[list[Value]]:
        """Products of ROWS queries, or gradients, and the keys, or values, of a panel."""
        program, work = self.program, self.work
        panel = program.moved(self.memory[panels], key, FLOATS * dim)
        right = self.floats_of(panel, FLOATS * work.panel, 0, work.vectors)
        sums = self.nothing(ROWS, work.vectors)
        place = program.moved(self.memory[left], row, FLOATS * dim)
        return self.product(sums, (whole(0), whole(dim)), place, FLOATS * dim, FLOATS, right)

    def _weights(
        self,
        row: Value,
        key: Value,
        rows: list[dict[str, Value]],
        seen: list[tuple[Value, Value]],
        target: Value,
    ) -> None:
        program, build, work, vectors = self.program, self.build, self.work, self.vectors
        for number, sums in enumerate(self._products("queries", "keys", work.head_dim, row, key)):
            line = rows[number]
            for place, vector in enumerate(sums):
                chosen = self.chosen(seen[number], key, place)
                if work.masked:
                    mask = program.moved(line["mask"], key, FLOATS)
                    added = vectors.load_some(chosen, mask, vectors.bytes * place)
                    score = build.fsub(vectors.fma(vector, self.scale, added), line["logsumexp"])
                else:
                    score = build.fsub(build.fmul(vector, self.scale), line["logsumexp"])
                weights = build.select(chosen, vectors.exp(score), vectors.of(0.0))
                vectors.store(weights, target, self.pitch * number + vectors.bytes * place)

    def _changes(
        self,
        row: Value,
        key: Value,
        rows: list[dict[str, Value]],
        seen: list[tuple[Value, Value]],
        weights: Value,
        target: Value,
    ) -> None:
        program, build, work, vectors = self.program, self.build, self.work, self.vectors
        for number, sums in enumerate(self._products("gradients", "values", work.value_dim, row, key)):
            line = rows[number]
            for place, vector in enumerate(sums):
                chosen = self.chosen(seen[number], key, place)
                offset = self.pitch * number + vectors.bytes * place
                change = build.fmul(build.fsub(vector, line["delta"]), vectors.load(weights, offset))
                change = build.select(chosen, change, vectors.of(0.0))
                vectors.store(change, target, offset)
                if work.mask_wanted:
                    mask = program.moved(line["of_mask"], key, FLOATS)
                    total = build.fadd(vectors.load_some(chosen, mask, vectors.bytes * place), change)
                    vectors.store_some(chosen, total, mask, vectors.bytes * place)

    def _of_queries(self, queries: list[Value], first_key: Value, row: Value, begin: Value, past: Value) -> None:
        """Add what ROWS queries get from keys."""
        program, call, work = self.program, self.call, self.work
        changes = program.moved(self.memory["changes"], row, self.pitch)
        keys = program.moved(self.at["key"], first_key, call["key_row"])
        targets = [program.moved(self.at["of_query"], each, call["of_query_row"]) for each in queries]
        for channel, width in self.columns(work.head_dim):
            right = self.rows_of(keys, call["key_row"], channel, width)
            sums = self.product(self.nothing(ROWS, width), (begin, past), changes, self.pitch, FLOATS, right)
            self._add(sums, targets, channel, scaled=True)

    def _of_keys(
        self, target: str, left: str, right: str, dim: int, first_key: Value, key: Value, keys: Value,
        seeing: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """Add what ROWS keys, or values, get from the queries that see them."""
        program, build, call = self.program, self.build, self.call
        columns = program.moved(self.memory[left], key, FLOATS)
        last = build.sub(keys, whole(1))
        own = [build.add(first_key, program.least(build.add(key, whole(each)), last)) for each in range(ROWS)]
        targets = [program.moved(self.at[target], each, call[f"{target}_row"]) for each in own]
        for channel, width in self.columns(dim):
            rows = self.floats_of(self.memory[right], FLOATS * dim, channel, width)
            sums = self.product(self.nothing(ROWS, width), seeing, columns, FLOATS, self.pitch, rows)
            self._add(sums, targets, channel, scaled=target == "of_key")

    def _add(self, sums: list[list[Value]], targets: list[Value], channel: int, *, scaled: bool) -> None:
        """Add to rows of gradients, one after another, since a row may stand there again, with nothing to add."""
        vectors = self.vectors
        for target, found in zip(targets, sums, strict=True):
            for place, vector in enumerate(found):
                offset = FLOATS * channel + vectors.bytes * place
                before = vectors.load(target, offset)
                after = vectors.fma(vector, self.scale, before) if scaled else self.build.fadd(vector, before)
                vectors.store(after, target, offset)
