"""Context parallel over real process groups: every rank's rows, and all gradients, are those of one process."""

import pathlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

import situs
from situs import Positions
from situs.attention.parallel import attend_sharded
from situs.positions.runs import shard_pieces
from tests.ranks import leave

pytestmark = pytest.mark.compiled  # new processes; the shapes are checked where these kernels are tested

HEADS, HEAD_DIM, LENGTH = 4, 8, 16


def encodings() -> dict[str, situs.Encoding | None]:
    sizes: Any = {"num_heads": HEADS, "head_dim": HEAD_DIM}
    torch.manual_seed(0)
    made: dict[str, situs.Encoding | None] = {
        "none": None,
        "rotary": situs.Rotary(head_dim=HEAD_DIM),
        "xpos": situs.XPos(head_dim=HEAD_DIM),
        "t5": situs.T5Bias(num_heads=HEADS, init_std=1.0),
        "alibi": situs.ALiBi(num_heads=HEADS),
        "kerple": situs.Kerple(num_heads=HEADS),
        "sandwich": situs.Sandwich(num_heads=HEADS),
        "fire": situs.Fire(num_heads=HEADS, threshold=4.0),
        "shaw": situs.Shaw(**sizes, max_distance=3),
        "transformer_xl": situs.TransformerXL(dim=12, **sizes, init_std=0.5),
        "tupe": situs.Tupe(dim=12, **sizes, init_std=0.5),
        "deberta": situs.Deberta(dim=12, **sizes, init_std=0.5, max_distance=6),
        "cope": situs.CoPE(**sizes, init_std=1.0, max_position=5),
    }
    return {name: None if each is None else each.double() for name, each in made.items()}


def wholes() -> dict[str, Positions]:
    return {"range": Positions.range(LENGTH), "packed": Positions.packed([5, 11])}


def work(rank: int, world_size: int, meeting: str, problems: str) -> None:
    """One rank: its shard of every case, compared with the whole that it computes for itself."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
    wrong = []
    for name, encoding in encodings().items():
        for kind, positions in wholes().items():
            for layout in ("contiguous", "zigzag"):
                for causal in (False, True):
                    error = difference(rank, world_size, encoding, positions, layout, causal)
                    if not error < 1e-10:
                        wrong.append(f"{name} {kind} {layout} causal={causal}: {error}")
    pathlib.Path(f"{problems}.{rank}").write_text("\n".join(wrong) or "none")
    leave()


def difference(
    rank: int, world_size: int, encoding: situs.Encoding | None, positions: Positions, layout: str, causal: bool
) -> float:
    torch.manual_seed(1)
    q, k, v, gradient = torch.randn(4, 2, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64)
    k, v = k[:, :2], v[:, :2]
    parameters = [] if encoding is None else list(encoding.parameters())
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    whole = situs.attend(*leaves, encoding=encoding, causal=causal, positions=positions)
    expected = torch.autograd.grad(whole, [*leaves, *parameters], gradient)

    pieces = shard_pieces(LENGTH, world_size, layout)[rank]
    own = torch.cat([torch.arange(*piece) for piece in pieces])
    shards = [tensor[:, :, own].clone().requires_grad_() for tensor in (q, k, v)]
    out = attend_sharded(*shards, encoding=encoding, causal=causal, positions=positions, layout=layout)  # type: ignore[arg-type]
    found = torch.autograd.grad(out, [*shards, *parameters], gradient[:, :, own])
    errors = [(out - whole[:, :, own]).abs().max()]
    errors += [(mine - all_of[:, :, own]).abs().max() for mine, all_of in zip(found[:3], expected[:3], strict=True)]
    for mine, all_of in zip(found[3:], expected[3:], strict=True):
        total = mine.clone()
        dist.all_reduce(total)
        errors.append((total - all_of).abs().max())
    return float(torch.stack([error.detach() for error in errors]).max())


@pytest.mark.thin(2)
@pytest.mark.parametrize("world_size", [2, 4])
def test_every_encoding_gives_on_many_ranks_what_it_gives_on_one(world_size: int, tmp_path: pathlib.Path) -> None:
    problems = tmp_path / "problems"
    spawn(work, (world_size, str(tmp_path / "meeting"), str(problems)), nprocs=world_size)
    assert [pathlib.Path(f"{problems}.{rank}").read_text() for rank in range(world_size)] == ["none"] * world_size


def test_gathered_positions_are_the_shards_one_after_another() -> None:
    whole = Positions.packed([5, 11])
    for layout in ("contiguous", "zigzag"):
        gathered = whole.gathered(4, layout=layout)
        shards = [whole.shard(rank, 4, layout=layout) for rank in range(4)]
        assert torch.equal(gathered.ids, torch.cat([shard.ids for shard in shards], 1))
        documents = [shard.documents for shard in shards if shard.documents is not None]
        assert gathered.documents is not None
        assert torch.equal(gathered.documents, torch.cat(documents, 1))
