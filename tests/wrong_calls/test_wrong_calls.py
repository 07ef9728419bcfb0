"""Every wrong call of everything public is answered by a sentence of the library's own, and changes nothing.

    NAME must RULE, since REASON; got VALUE. CURE

A new public callable needs a right call in ``examples.py``, from which its wrong ones are then made.
"""

from collections.abc import Iterator

import matplotlib
import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from tests.raising import SHAPES_ARE_CHECKED
from tests.wrong_calls.calling import ANYTHING, call, examples_of, made, wrong_arguments, wrong_calls
from tests.wrong_calls.public import Public, callables

matplotlib.use("Agg")
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(SHAPES_ARE_CHECKED, reason="annotations object before the library can"),
]

PUBLIC = callables()
FEWEST = 10_000


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    """A process group of one rank, for what is sharded."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.thin(2)
@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.name)
def test_every_wrong_call_is_answered_by_a_sentence_and_changes_nothing(public: Public) -> None:
    answers = list(wrong_calls(public))
    wrong = [str(each) for each in answers if each.complaint is not None]
    assert not wrong, f"{len(wrong)} of {len(answers)} answers:\n" + "\n".join(wrong)


@pytest.mark.thin(4)
@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.name)
def test_every_callable_has_a_right_call_and_every_argument_wrong_values(public: Public) -> None:
    examples = examples_of(public)
    assert examples, f"{public.name} must have a right call in tests/wrong_calls/examples.py."
    for right in examples:
        call(public, made(public), right)
    found = {name for right in examples for name, _ in wrong_arguments(public, made(public), right)}
    lacking = {name for name in public.parameters if f"{public.name}.{name}" not in ANYTHING} - found
    assert not lacking, f"{public.name}: no wrong values follow from the annotations of {sorted(lacking)}."


def test_there_are_thousands_of_wrong_calls() -> None:
    count = sum(
        1 for public in PUBLIC for right in examples_of(public) for _ in wrong_arguments(public, made(public), right)
    )
    assert count >= FEWEST
