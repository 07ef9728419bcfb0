"""PoPE: content as magnitude, position as phase; twice the channels in every kernel."""

import math

import pytest
import torch

import situs
from situs import PoPE, Positions
from tests.raising import raises_exactly
from tests.references import pope as reference


def made(heads: int = 4) -> PoPE:
    encoding = PoPE(head_dim=8, num_heads=heads)
    assert encoding.delta is not None
    torch.nn.init.uniform_(encoding.delta, -2 * math.pi, 0)
    return encoding


@pytest.mark.parametrize("start", [0, 1_000_003])
def test_products_are_the_papers_scores(start: int) -> None:
    encoding = made(2).double()
    assert encoding.delta is not None
    q, k = torch.randn(2, 1, 2, 6, 8, dtype=torch.float64)
    ids = start + torch.tensor([0, 1, 5, 9, 30, 31])
    where = Positions.explicit(ids)
    found = encoding(q, where) @ encoding(k, where, role="key").mT
    for head in range(2):
        arrays = q[0, head].numpy(), k[0, head].numpy(), ids.numpy(), ids.numpy()
        expected = reference.scores(*arrays, encoding.delta[head].detach().numpy())
        torch.testing.assert_close(found[0, head].detach(), torch.from_numpy(expected), rtol=0, atol=1e-9)


def test_phases_of_queries_are_those_that_the_paper_adds_to_keys() -> None:
    encoding, plain = made(1), PoPE(head_dim=8, learned=False)
    assert encoding.delta is not None
    x = torch.randn(1, 1, 1, 8)
    cos, sin = encoding.delta.cos(), encoding.delta.sin()
    key = plain(x, 3, role="key")
    first, second = key.chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    torch.testing.assert_close(plain(x, 7) @ turned.mT, encoding(x, 7) @ key.mT)


def test_a_turn_more_or_less_changes_nothing() -> None:
    encoding, x = made(2), torch.randn(1, 2, 5, 8)
    assert encoding.delta is not None
    before = encoding(x)
    with torch.no_grad():
        encoding.delta.add_(2 * math.pi)
    torch.testing.assert_close(encoding(x), before, rtol=0, atol=1e-5)


@pytest.mark.parametrize("beside", ["nothing", "alibi", "shaw", "tupe", "temperature"])
def test_every_kernel_gives_what_the_reference_gives(beside: str) -> None:
    sizes = {"dim": 8, "head_dim": 8, "num_heads": 4}
    others = [] if beside == "nothing" else [situs.entry(beside).build(**sizes)]
    encodings = [*others, made()]
    q, k, v = (torch.randn(2, heads, 33, width) for heads, width in ((4, 8), (2, 8), (2, 12)))
    v = v[..., :8] if beside == "shaw" else v
    request = {"encoding": encodings, "causal": True}
    expected = situs.attention.reference(q, k, v, **request)  # type: ignore[arg-type]
    served = []
    for impl in ("flash", "toeplitz", "blockwise", "dense"):
        if situs.explain(q, k, v, **request).others.get(impl, "could").startswith("could"):  # type: ignore[arg-type]
            out = situs.attend(q, k, v, **request, impl=impl)  # type: ignore[arg-type]
            torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)
            served.append(impl)
    assert {"toeplitz", "blockwise"} <= set(served)


def test_the_scale_is_that_of_the_width_before() -> None:
    encoding, q, k = PoPE(head_dim=8, learned=False), *torch.randn(2, 1, 1, 1, 8)
    values = torch.tensor([[[[0.0]], [[1.0]]]]).view(1, 1, 2, 1)
    out = situs.attend(q, torch.cat((k, -k), 2), values, encoding=encoding, positions=1, key_positions=0)
    scores = encoding(q, 1) @ encoding(torch.cat((k, -k), 2), role="key").mT / math.sqrt(8)
    torch.testing.assert_close(out[0, 0, 0, 0], scores.softmax(-1)[0, 0, 0, 1])


def test_a_cache_holds_keys_as_they_were_and_evicts_them() -> None:
    layer = situs.Attention(dim=32, num_heads=4, num_kv_heads=2, encoding=made()).eval()
    x = torch.randn(1, 13, 32)
    with torch.no_grad():
        cache, short = (layer.make_cache(batch=1, max_length=16) for _ in range(2))
        parts = [layer(part, cache=cache) for part in x[:, :12].split([5, 1, 6], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), layer(x[:, :12]), rtol=0, atol=1e-6)
        assert cache.keys.shape[-1] == 8
        cache.evict(5)
        layer(x[:, 5:12], cache=short)
        torch.testing.assert_close(layer(x[:, 12:], cache=cache), layer(x[:, 12:], cache=short), rtol=0, atol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    words = (
        "num_heads must be given where phases are learned, since each head has its own; got None. Use learned=False "
        "for none."
    )
    with raises_exactly(ValueError, words):
        PoPE(head_dim=8)
    words = "x must have 4 heads, since this PoPE has phases for each; got shape (1, 2, 3, 8)."
    with raises_exactly(ValueError, words):
        made()(torch.ones(1, 2, 3, 8))


def test_what_padding_holds_has_no_gradient() -> None:
    places = Positions.from_mask(torch.tensor([[0, 1, 1, 1]]))
    query, key, value = torch.randn(3, 1, 2, 4, 8).unbind()
    query[:, :, 0], key[:, :, 0] = torch.nan, torch.inf
    leaves = [each.requires_grad_() for each in (query, key, value)]
    situs.attend(*leaves, encoding=PoPE(head_dim=8, learned=False), positions=places).sum().backward()
    for leaf in leaves[:2]:
        assert leaf.grad is not None
        assert leaf.grad[:, :, 0].eq(0).all()
        assert leaf.grad.isfinite().all()
