"""What ``check_encoding`` says about the mistakes that people make first: what is wrong, where, and what to change."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

import situs
from situs.checks import CHECKS, check_encoding
from situs.checks.form import where
from tests import broken_forms
from tests.raising import raises_exactly

FILE = Path(broken_forms.__file__).resolve()
SHAPE = "The result has the shape and dtype of what went in. But"
FORM = "It keeps its options, has its sizes, takes what attention hands over, and runs. But"
HALF = "Half-precision tokens are encoded as exactly as their own rounding allows, far from position 0 too. But"
FINITE = "Take no root or logarithm of a negative number, and divide by nothing that can be 0:"
MEMORY = "A long call leaves no trace: a short one after it gives what it gave before, and the module is unchanged. But"
LOADS = "A checkpoint holds parameters alone, and loads strictly, also with tables that others used to store. But"
CACHED = "Token by token, and in chunks of any size, decoding gives the rows of the full forward. But"

SAID: dict[type[situs.Encoding], tuple[str, str]] = {
    broken_forms.IgnoresHead: (
        "keeps_shape_and_dtype",
        f"{SHAPE} the bias has shape (1, 1, 6, 6) instead of (1, 2, 6, 6) (batch, heads, queries, keys). Use head in "
        "the rule; where all heads get the same, add 0 * head.",
    ),
    broken_forms.IgnoresOffset: (
        "is_well_formed",
        f"{FORM} rule(self, device, dtype) must return a function that has a number for each offset; for 11 of them it "
        "gives shape (2, 1) at {file}:{last}. Use offset in it; where all offsets get the same, add 0 * offset.",
    ),
    broken_forms.ExponentialInHalf: (
        "keeps_shape_and_dtype",
        f"{SHAPE} the rule gives torch.bfloat16 where it is asked for torch.float32, so that neighbours merge from "
        "some distance on. Compute with offset.to(dtype), the dtype that rule() is given.",
    ),
    broken_forms.ExponentialOfRoundedPositions: (
        "half_equals_plain",
        f"{HALF} torch.bfloat16 tokens from position 1,000 on: outputs differ by #, most at #. Compute with positions "
        "in float32 or wider, positions.ids.double(), also exp, sin and cos, and cast the result last: .to(x.dtype).",
    ),
    broken_forms.ReturnsAnotherDtype: (
        "keeps_shape_and_dtype",
        f"{SHAPE} torch.float64 vectors come back as torch.float32. Compute in float32 or wider, and end with "
        ".to(x.dtype).",
    ),
    broken_forms.ReturnsAnotherShape: (
        "keeps_shape_and_dtype",
        f"{SHAPE} vectors of shape (2, 6, 16) come back with shape (2, 6, 8). Return all channels, also those that "
        "positions do not change.",
    ),
    broken_forms.ChangesItsInput: (
        "leaves_input_alone",
        "The tensors that it is given stay as they are. But forward changes x itself, which others still read: the "
        "residual stream, or the next encoding. Write x = x * ... instead of x *= ..., and use no function whose name "
        "ends in _.",
    ),
    broken_forms.KeepsState: (
        "remembers_nothing",
        "A long call leaves no trace: a short one after it gives what it gave before, and the module is unchanged. But "
        "in evaluation, a call wrote to table, and what one call leaves is wrong in the next. Compute it in __init__ "
        "where it follows from options, and hold it in a local variable otherwise.",
    ),
    broken_forms.CountsFromZero: (
        "cached_equals_full",
        f"{CACHED} decoding in chunks of 1 then 1: outputs differ by #, most at #. Use positions.ids, which say where "
        "each token stands, and no length or index of the tensor: situs.Positions.of(positions, x.shape[-2], "
        "batch=x.shape[0], device=x.device).ids.",
    ),
    broken_forms.HasNoHeads: (
        "is_well_formed",
        f"{FORM} it has no num_heads, and an encoding of the scores is made for a number of heads. Take num_heads in "
        "__init__ and write self.num_heads = num_heads.",
    ),
    broken_forms.KeepsAnotherName: (
        "is_well_formed",
        f"{FORM} it raised TypeError: KeepsAnotherName must keep its option slope under that name, since it is made "
        "again from it; got no such attribute. Write self.slope = slope in __init__.",
    ),
    broken_forms.ForgetsItsHeadDim: (
        "is_well_formed",
        f"{FORM} it raised TypeError: ForgetsItsHeadDim must keep its option head_dim under that name, since it is "
        "made again from it; got no such attribute. Write self.head_dim = head_dim in __init__.",
    ),
    broken_forms.ForgetsRole: (
        "is_well_formed",
        f"{FORM} forward does not take role, since attention says whether it hands over queries or keys. Write def "
        'forward(self, x, positions=None, *, role="query").',
    ),
    broken_forms.ForgetsPositions: (
        "is_well_formed",
        f"{FORM} forward does not take positions, since attention hands them over. Write def forward(self, x, "
        "positions=None).",
    ),
    broken_forms.ClaimsToBeRelative: (
        "is_relative",
        "Moving every position by the same amount changes nothing. But positions moved by 1 change scores by # of "
        'their spread. Mend that, or take "relative" out of tags.',
    ),
    broken_forms.HoldsALambda: (
        "copied_equals_plain",
        "A deep copy, and one that was pickled, compute the same. But it raised #. Hold options, parameters and "
        "tensors alone, and no lambda, lock or open file.",
    ),
    broken_forms.AddsPositions: (
        "is_well_formed",
        f"{FORM} it raised TypeError at {{file}}:{{last}}, `return torch.add(x, positions)`: add(): argument 'other' "
        "(position 2) must be Tensor, not Positions",
    ),
    broken_forms.ReturnsNoRule: (
        "is_well_formed",
        f"{FORM} rule(self, device, dtype) must return a function of (offset, head); got None at {{file}}:{{before}}. "
        "Is a return missing?",
    ),
    broken_forms.ReturnsANumber: (
        "is_well_formed",
        f"{FORM} rule(self, device, dtype) must return a function of (offset, head); got 3 at {{file}}:{{before}}. "
        "Write return lambda offset, head: f(offset, head).",
    ),
    broken_forms.RuleOfOffsetAlone: (
        "is_well_formed",
        f"{FORM} rule(self, device, dtype) must return a function of (offset, head), since a bias has a number for "
        "each; got one of (offset) at {file}:{last}. Write lambda offset, head: f(offset, head).",
    ),
    broken_forms.RuleWithoutDtype: (
        "is_well_formed",
        f"{FORM} rule must take (self, device, dtype), since attention hands them over; got (self, device) at "
        "{file}:{before}. Write def rule(self, device, dtype).",
    ),
    broken_forms.RootOfOffsets: (
        "is_well_formed",
        f"{FORM} its bias is nan at offset -1, head 0. {FINITE} offset is negative for keys before the query, and 0 at "
        "the query itself.",
    ),
    broken_forms.RunsOutOfNumbers: (
        "is_well_formed",
        f"{FORM} its bias is -inf at offset -40, head 0. A bias is finite: take no logarithm of 0, and "
        "leave masks to attention, which takes causal, window and mask.",
    ),
    broken_forms.NegativePairs: (
        "is_well_formed",
        f"{FORM} what it adds to scores is nan for the query at position 1 and the key at 1, head 0. {FINITE} "
        "positions begin at 0.",
    ),
    broken_forms.MasksLaterKeys: (
        "is_well_formed",
        f"{FORM} its bias is -inf at offset 1, head 0. A bias is finite: take no logarithm of 0, and "
        "leave masks to attention, which takes causal, window and mask.",
    ),
    broken_forms.DividesByPositions: (
        "is_well_formed",
        f"{FORM} its result is # at position 2. {FINITE} positions begin at 0.",
    ),
    broken_forms.Exits: (
        "is_well_formed",
        f"{FORM} it raised SystemExit at {{file}}:{{last}}, `sys.exit(3)`: 3",
    ),
    broken_forms.Asserts: (
        "is_well_formed",
        f'{FORM} it raised AssertionError at {{file}}:{{last}}, `assert dtype is torch.float64, "too narrow"`: too '
        "narrow",
    ),
    broken_forms.Slopes: (
        "is_well_formed",
        f"{FORM} it raised RuntimeError at {{file}}:{{last}}, `return lambda offset, head: -a * offset.abs()`: The "
        "size of tensor a (2) must match the size of tensor b (11) at non-singleton dimension 1. Index what each "
        "head has with head: a[head].",
    ),
    broken_forms.CutsGradients: (
        "differentiates",
        "Gradients to tokens and to every parameter are exact, by finite differences in float64. But the gradient of a "
        "differs from finite differences. Compute with the tensors themselves, and write to none in place: .item(), "
        ".data, detach() and torch.tensor(...) cut it.",
    ),
    broken_forms.CutsWhatItLearns: (
        "learns",
        'Every parameter gets a gradient. But no gradient reaches a. Mend that, or take "learned" out of tags.',
    ),
    broken_forms.EndsUnsaid: (
        "remembers_nothing",
        f"{MEMORY} it raised IndexError at {{file}}:{{rule}}, `return -self.table(dtype)[offset.abs()] * "
        "self.a.to(dtype)[head]`: index # is out of bounds for dimension 0 with size 100. Serve texts of any length, "
        "or write self.usable_length = ... in __init__ where positions end.",
    ),
    broken_forms.RemembersTheLongest: (
        "remembers_nothing",
        f"{MEMORY} in evaluation, a short call after a long one: outputs differ by #, most at #. Compute it in "
        "__init__ where it follows from options, and hold it in a local variable otherwise.",
    ),
    broken_forms.SharesATable: (
        "configurations_apart",
        "An encoding gives the same whether or not one with other options was used before. But base=2.0 and base=100.0 "
        "give one result; a table is shared that should not be. Make tables in __init__ or in forward; one that "
        "encodings share must be found by all options, dtype and device.",
    ),
    broken_forms.DrawsItsSlope: (
        "loads_strictly",
        f"{LOADS} loaded from a checkpoint with legacy keys: outputs differ by #, most at #. Hold all that is drawn at "
        "random or learned as parameters, and let the rest follow from the options.",
    ),
    broken_forms.CountsItsParameters: (
        "loads_strictly",
        f"{LOADS} it raised RuntimeError: Error(s) in loading state_dict for CountsItsParameters. Make all parameters "
        "in __init__, the same ones for the same options.",
    ),
    broken_forms.MixesDtypes: (
        "half_equals_plain",
        f"{HALF} it raised RuntimeError at {{file}}:{{last}}, `return (x * self.cosines(x, positions)).float() @ "
        "self.mix`: expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16. Serve positions of any "
        "size, or write self.usable_length = ... in __init__ where they end. Cast parameters to the dtype that you "
        "compute in, self.a.to(dtype), and the result last: .to(x.dtype).",
    ),
}


def short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def without_numbers(words: str) -> str:
    """Leave out how far outputs differ, and where, which rounding decides, and what Python says of pickling."""
    words = re.sub(r"outputs differ by \S+, most at \([\d, ]+\)", "outputs differ by #, most at #", words)
    words = re.sub(
        r"index \d+ is out", "index # is out", re.sub(r"is -?(inf|nan) at position", "is # at position", words)
    )
    words = re.sub(r"change scores by \S+ of", "change scores by # of", words)
    return re.sub(r"raised \w+: Can't (pickle|get) .*?\. (?=Hold)", "raised #. ", words)


@pytest.mark.parametrize("broken", SAID, ids=lambda broken: broken.__name__)
def test_a_mistake_is_told_with_its_cure_and_where_it_is(
    broken: type[situs.Encoding], monkeypatch: pytest.MonkeyPatch
) -> None:
    check, said = SAID[broken]
    monkeypatch.setattr("situs.checks.CHECKS", [each for each in CHECKS if each.__name__ == check])
    report = check_encoding(broken(), raise_on_failure=False)
    lines, first = inspect.getsourcelines(broken)
    end = first + len(lines) - 1
    said = said.format(file=short(FILE), last=end, before=end - 1, rule=first + 3)
    assert {name: without_numbers(words) for name, words in report.failures.items()} == {check: said}
    head = str(report).splitlines()[0]
    place = f"(class at {short(FILE)}:{first}):"
    if check == "is_well_formed":
        assert head == f"{broken.__name__} cannot be checked before this is mended {place}"
    else:
        options = ", ".join(f"{name}={value}" for name, value in broken().config.items())
        assert head == f"{broken.__name__}({options}) breaks the contract in 1 of 2 checks {place}"


def test_a_class_that_does_not_set_up_its_module_is_told_where_it_assigns() -> None:
    class Unprepared(situs.OffsetBias):
        def __init__(self) -> None:
            self.num_heads = 2

        def rule(self, device: torch.device, dtype: torch.dtype) -> object:  # type: ignore[override]
            raise NotImplementedError

    with raises_exactly(
        AttributeError,
        "Unprepared must call super().__init__() before it assigns to self, since torch.nn.Module is set up there; got "
        "self.num_heads = ... first. Make super().__init__() the first line of __init__.",
    ):
        Unprepared()


@pytest.mark.compiled
def test_ours_have_no_line_of_a_users() -> None:
    assert where(situs.NoPE()) == ""
    report = check_encoding(situs.NoPE(), raise_on_failure=False)
    assert (report.where, str(report)) == ("", f"NoPE() keeps the contract: {len(report.passed)} checks passed.")


def test_a_path_is_written_as_seen_from_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = broken_forms.Scales()
    line = inspect.getsourcelines(broken_forms.Scales)[1]
    monkeypatch.chdir(FILE.parent)
    assert where(encoding) == f"broken_forms.py:{line}"
    monkeypatch.chdir(tmp_path)
    assert where(encoding) == f"{FILE}:{line}"


def test_a_copy_may_be_given_all_that_a_module_holds() -> None:
    """As torch does where it replicates modules."""
    encoding = situs.Fire(num_heads=2)
    copy = encoding.__new__(type(encoding))
    copy.__dict__ = dict(encoding.__dict__)
    assert copy.config == encoding.config
