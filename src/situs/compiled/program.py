"""A program for LLVM: its builder, with loops, vectors and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir

Value = Any
"""A number or vector of the program; llvmlite has no types of its own."""

INT64, INT32, INT16 = ir.IntType(64), ir.IntType(32), ir.IntType(16)
DOUBLE, FLOAT, HALF = ir.DoubleType(), ir.FloatType(), ir.HalfType()


class Program:
    """A function of the address of whole numbers."""

    def __init__(self) -> None:
        self.module = ir.Module("situs")
        self.module.triple = llvm.get_process_triple()
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [INT64.as_pointer()]), "run")
        self.build = ir.IRBuilder(function.append_basic_block())
        self.given = function.args[0]

    def address(self, number: Value) -> Value:
        """A whole number as the address of others."""
        return self.build.inttoptr(number, INT64.as_pointer())

    def behind(self, address: Value, count: Value, size: Value) -> Value:
        """The address behind so many parts of so many whole numbers."""
        return self.build.gep(address, [self.build.mul(count, size)])

    def read(self, names: Sequence[str], address: Value) -> dict[str, Value]:
        """Whole numbers that lie there, by their names."""
        addresses = {name: self.build.gep(address, [whole(index)]) for index, name in enumerate(names)}
        return {name: self.build.load(each) for name, each in addresses.items()}

    def moved(self, address: Value, count: Value | int, step: Value | int = 1) -> Value:
        """An address so many steps on, in bytes."""
        if isinstance(count, int) and isinstance(step, int):
            return self.build.add(address, whole(count * step))
        far = self.build.mul(*(whole(each) if isinstance(each, int) else each for each in (count, step)))
        return self.build.add(address, far)

    def rounded_up(self, number: Value, size: int) -> Value:
        """The next multiple, of a number of 0 or more."""
        size_up = self.build.add(number, whole(size - 1))
        return self.build.mul(self.build.udiv(size_up, whole(size)), whole(size))

    def least(self, one: Value, other: Value) -> Value:
        """The smaller of two whole numbers."""
        return self.build.select(self.build.icmp_signed("<", one, other), one, other)

    def greatest(self, one: Value, other: Value) -> Value:
        """The greater of two whole numbers."""
        return self.build.select(self.build.icmp_signed(">", one, other), one, other)

    def load(self, kind: Any, width: int, address: Value, offset: int, *, align: int | None = None) -> Value:
        """A vector; the offset is in bytes, and addresses are multiples of ``align``, or of a number's size."""
        pointer = self.pointer(ir.VectorType(kind, width), address, offset)
        return self.build.load(pointer, align=align or size_of(kind))

    def load_one(self, kind: Any, address: Value, offset: int = 0) -> Value:
        """A single number; the offset is in bytes."""
        return self.build.load(self.pointer(kind, address, offset), align=size_of(kind))

    def store_one(self, number: Value, address: Value, offset: int = 0) -> None:
        """The inverse of ``load_one``."""
        self.build.store(number, self.pointer(number.type, address, offset), align=size_of(number.type))

    def store(self, vector: Value, address: Value, offset: int, *, align: int | None = None) -> None:
        """The inverse of ``load``."""
        pointer = self.pointer(vector.type, address, offset)
        self.build.store(vector, pointer, align=align or size_of(vector.type.element))

    def pointer(self, kind: Any, address: Value, offset: int) -> Value:
        """An address as that of what has this type."""
        return self.build.inttoptr(self.build.add(address, whole(offset)), kind.as_pointer())

    def shuffle(self, one: Value, other: Value, order: Sequence[int]) -> Value:
        """Chosen elements of two vectors, those of the second counted on from the first's."""
        return self.build.shuffle_vector(one, other, ir.Constant(ir.VectorType(INT32, len(order)), list(order)))

    @contextmanager
    def each(self, first: Value, last: Value, step: int = 1) -> Iterator[Value]:
        """A loop over ``range(first, last, step)``."""
        before, body, after = self.build.block, self.build.append_basic_block(), self.build.append_basic_block()
        self.build.cbranch(self.build.icmp_signed("<", first, last), body, after)
        self.build.position_at_end(body)
        index = self.build.phi(INT64)
        index.add_incoming(first, before)
        yield index
        following = self.build.add(index, whole(step))
        index.add_incoming(following, self.build.block)
        self.build.cbranch(self.build.icmp_signed("<", following, last), body, after)
        self.build.position_at_end(after)

    @contextmanager
    def each_with(
        self, first: Value, last: Value, values: Sequence[Value], step: int = 1
    ) -> Iterator[tuple[Value, list[Value]]]:
        """A loop that hands values on: its body changes the list, which holds what the last round left in the end."""
        before, body, after = self.build.block, self.build.append_basic_block(), self.build.append_basic_block()
        self.build.cbranch(self.build.icmp_signed("<", first, last), body, after)
        self.build.position_at_end(body)
        index = self.build.phi(INT64)
        index.add_incoming(first, before)
        handed = [self.build.phi(value.type) for value in values]
        found: list[Value] = list(handed)
        yield index, found
        following, end = self.build.add(index, whole(step)), self.build.block
        index.add_incoming(following, end)
        self.build.cbranch(self.build.icmp_signed("<", following, last), body, after)
        self.build.position_at_end(after)
        for number, value in enumerate(values):
            handed[number].add_incoming(value, before)
            handed[number].add_incoming(found[number], end)
            left = self.build.phi(value.type)
            left.add_incoming(value, before)
            left.add_incoming(found[number], end)
            found[number] = left

    @contextmanager
    def each_task(self, tasks: Value, taken: Value, threads: Value, own: Value) -> Iterator[Value]:
        """A loop over the tasks that no thread has taken: a thread's own share, then what others have left of theirs.
        At an address lies for each thread how many of its share are taken."""
        with self.each(whole(0), threads) as step:
            owner = self.build.urem(self.build.add(own, step), threads)
            first, last = (
                self.build.udiv(self.build.mul(tasks, thread), threads)
                for thread in (owner, self.build.add(owner, whole(1)))
            )
            counter = self.build.gep(taken, [owner])
            take, body, after = (self.build.append_basic_block() for _ in range(3))
            self.build.branch(take)
            self.build.position_at_end(take)
            task = self.build.add(first, self.ticket(counter))
            self.build.cbranch(self.build.icmp_signed("<", task, last), body, after)
            self.build.position_at_end(body)
            yield task
            self.build.branch(take)
            self.build.position_at_end(after)

    def ticket(self, address: Value) -> Value:
        """Add 1 to what lies there; give what it was, to one thread only."""
        return self.build.atomic_rmw("add", address, whole(1), "monotonic")

    def number_from(self, function: Value) -> Value:
        """What the function at an address says; 0 if the address is 0."""
        before, asking, after = self.build.block, self.build.append_basic_block(), self.build.append_basic_block()
        self.build.cbranch(self.build.icmp_signed("!=", function, whole(0)), asking, after)
        self.build.position_at_end(asking)
        asked = self.build.inttoptr(function, ir.FunctionType(INT32, []).as_pointer())
        said = self.build.sext(self.build.call(asked, []), INT64)
        self.build.branch(after)
        self.build.position_at_end(after)
        number = self.build.phi(INT64)
        number.add_incoming(whole(0), before)
        number.add_incoming(said, asking)
        return number

    def compiled(self) -> int:
        """The function's address, where it stays as long as the process lives."""
        module = llvm.parse_assembly(str(self.module))
        machine = _machine()
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        passes.getModulePassManager().run(module, passes)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        _ENGINES.append(engine)
        return int(engine.get_function_address("run"))


_ENGINES: list[object] = []
"""What compiled functions live in."""


def whole(number: int) -> Value:
    """A constant."""
    return ir.Constant(INT64, number)


def like(vector: Value, number: int) -> Value:
    """A constant in every element of such a vector."""
    return ir.Constant(vector.type, [number] * vector.type.count)


def size_of(kind: Any) -> int:
    """In bytes."""
    return {DOUBLE: 8, FLOAT: 4, HALF: 2, INT16: 2, INT32: 4}[kind]


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )


def converts_halves() -> bool:
    """Whether the machine converts float16 itself; otherwise LLVM would call a function that may not be there."""
    arm = llvm.get_process_triple().startswith(("aarch64", "arm64"))
    return arm or bool(llvm.get_host_cpu_features().get("f16c", False))
