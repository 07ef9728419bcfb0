"""A program for LLVM: its builder, with the loops, vectors and memory that the rotation needs."""

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
    """A function of the address of a record: whole numbers, of which the first is the next task to take and the last
    the address of more, which calls share."""

    def __init__(self, fields: Sequence[str], shared: Sequence[str]) -> None:
        self.module = ir.Module("situs")
        self.module.triple = llvm.get_process_triple()
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [INT64.as_pointer()]), "run")
        self.build = ir.IRBuilder(function.append_basic_block())
        self._record = function.args[0]
        self.field = self._read(self._record, fields)
        more = self.build.inttoptr(self.field[fields[-1]], INT64.as_pointer())
        self.field |= self._read(more, shared)

    def _read(self, record: Value, names: Sequence[str]) -> dict[str, Value]:
        places = {name: self.build.gep(record, [whole(place)]) for place, name in enumerate(names)}
        return {name: self.build.load(place) for name, place in places.items()}

    def least(self, one: Value, other: Value) -> Value:
        """The smaller of two whole numbers."""
        return self.build.select(self.build.icmp_signed("<", one, other), one, other)

    def load(self, kind: Any, width: int, address: Value, offset: int, *, align: int | None = None) -> Value:
        """A vector; the offset is in bytes, and addresses are multiples of ``align``, or of a number's size."""
        pointer = self._pointer(ir.VectorType(kind, width), address, offset)
        return self.build.load(pointer, align=align or size_of(kind))

    def store(self, vector: Value, address: Value, offset: int, *, align: int | None = None) -> None:
        """The inverse of ``load``."""
        pointer = self._pointer(vector.type, address, offset)
        self.build.store(vector, pointer, align=align or size_of(vector.type.element))

    def _pointer(self, kind: Any, address: Value, offset: int) -> Value:
        return self.build.inttoptr(self.build.add(address, whole(offset)), kind.as_pointer())

    def shuffle(self, one: Value, other: Value, order: Sequence[int]) -> Value:
        """Chosen places of two vectors, those of the second counted on from the first's."""
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
    def each_task(self, tasks: Value) -> Iterator[Value]:
        """A loop over the tasks that no other thread has taken."""
        take, body, after = (self.build.append_basic_block() for _ in range(3))
        self.build.branch(take)
        self.build.position_at_end(take)
        task = self.build.atomic_rmw("add", self._record, whole(1), "monotonic")
        self.build.cbranch(self.build.icmp_signed("<", task, tasks), body, after)
        self.build.position_at_end(body)
        yield task
        self.build.branch(take)
        self.build.position_at_end(after)

    def compiled(self) -> tuple[int, object]:
        """The function's address, and what must be kept for it to stay there."""
        module = llvm.parse_assembly(str(self.module))
        machine = _machine()
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        passes.getModulePassManager().run(module, passes)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        return int(engine.get_function_address("run")), engine


def whole(number: int) -> Value:
    """A constant."""
    return ir.Constant(INT64, number)


def like(vector: Value, number: int) -> Value:
    """A constant in every place of such a vector."""
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
