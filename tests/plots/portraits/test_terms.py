"""Content-based terms, as drawn: maps of a text, and means by distance."""

import numpy as np
import pytest
import torch

import situs
from situs import plots
from situs.checks.bench import normal
from situs.lab.probing import portraits
from situs.lab.probing.stored import load
from tests.plots.portraits.reading import MINUS, drawn, extent, key, limits, lines, names, panels, words
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

DOWN = "rows: queries; columns: keys"
AHEAD = np.triu(np.ones((10, 10), dtype=bool), 1)


@pytest.mark.parametrize("given", [True, False])
def test_scores_are_content_and_position_and_their_sum(given: bool) -> None:
    encoding = situs.Shaw(num_heads=2, head_dim=8)
    query, key_ = torch.randn(2, 2, 10, 8) if given else (normal(2, 10, 8, seed=seed) for seed in (6, 7))
    figure = plots.scores(encoding, head=1, query=query, key=key_) if given else plots.scores(
        encoding, head=1, length=10
    )  # fmt: skip
    content, term = (each[1].numpy() for each in portraits.content_scores(encoding, query, key_))
    for axes, expected in zip(panels(figure), (content, term, content + term), strict=False):
        assert np.allclose(drawn(axes), np.where(AHEAD, np.nan, expected), equal_nan=True, atol=1e-6)
        assert extent(axes) == (-0.5, 9.5, 9.5, -0.5)
    assert len({limits(axes) for axes in panels(figure)[:3]}) == 1
    assert names(figure) == [("content", "scale · q·k"), ("position", "what is added"), ("both", "")]
    assert key(figure)[0].startswith(f"score: {MINUS}")
    spread = [each[~AHEAD].std() for each in (term, content)]
    assert words(figure) == [
        "shaw: scores by content and by position",
        f"{DOWN}; head 2, {'given' if given else 'random'} queries and keys, causal",
        f"Scores by content have a standard deviation of {spread[1]:.2g}, what position adds {spread[0]:.2g}. Diagonal "
        "stripes come from the distance, rows from the query, columns from the key.",
    ]


def test_what_is_given_of_queries_and_keys_is_said() -> None:
    encoding, some = situs.Shaw(num_heads=2, head_dim=8), torch.randn(2, 10, 8)
    for figure, said in ((plots.scores(encoding, query=some), "queries"), (plots.scores(encoding, key=some), "keys")):
        assert words(figure)[1].endswith(f", given {said}, causal")


def test_queries_and_keys_of_different_texts_are_refused() -> None:
    encoding, query = situs.Shaw(num_heads=2, head_dim=8), torch.zeros(2, 10, 8)
    for key_, shape in ((torch.zeros(2, 9, 8), "(2, 9, 8)"), (torch.zeros(1, 2, 10, 8), "(1, 2, 10, 8)")):
        with raises_exactly(
            ValueError,
            "query and key must have one shape (heads, length, head_dim), since both are of one text; got (2, 10, 8) "
            f"and {shape}.",
        ):
            plots.scores(encoding, query=query, key=key_)


@pytest.mark.parametrize("head", [2, -1])
def test_a_head_that_is_not_there_is_refused(head: int) -> None:
    with raises_exactly(ValueError, f"head must be one of 0 .. 1, since shaw has 2 here; got {head}."):
        plots.scores(situs.Shaw(num_heads=2, head_dim=8), head=head, length=4)


def test_lines_are_the_means_of_the_term_by_distance() -> None:
    encoding, (query, key_) = situs.Shaw(num_heads=2, head_dim=8), torch.randn(2, 2, 12, 8)
    _, term = portraits.content_scores(encoding, query, key_)
    shown = lines(panels(plots.scores(encoding, query=query, key=key_))[-1])
    assert list(shown) == ["head 1", "head 2"]
    for number, (across, up) in enumerate(shown.values()):
        assert across.tolist() == list(range(9))
        expected = [float(term[number].diagonal(-apart).mean()) for apart in range(9)]
        assert np.allclose(up, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta", "cope"])
def test_a_trained_encoding_is_drawn_with_the_queries_and_keys_of_its_layer(name: str) -> None:
    trained = load(name)
    assert trained is not None
    assert trained.query is not None
    assert trained.key is not None
    figure = plots.scores(plots.named(name), head=2)
    assert isinstance(trained.encoding, situs.ScoreEncoding)
    content, term = portraits.content_scores(trained.encoding, trained.query[:, :48], trained.key[:, :48])
    ahead = np.triu(np.ones((48, 48), dtype=bool), 1)
    for axes, expected in zip(panels(figure), (content, term, content + term), strict=False):
        assert np.allclose(drawn(axes), np.where(ahead, np.nan, expected[2].numpy()), equal_nan=True, atol=1e-5)
    assert words(figure)[1] == f"{DOWN}; head 3, a held-out text, causal"
    assert words(figure)[2].endswith(
        "Trained for 800 steps on texts of 64 bytes, Python's standard library; layer 1 of 2."
    )
    longer = plots.scores(plots.named(name), length=65)
    assert "random queries and keys" in words(longer)[1]


def test_the_head_whose_term_changes_most_with_distance_is_chosen() -> None:
    encoding = situs.Shaw(num_heads=2, head_dim=4, max_distance=8, values=False, per_head=True)
    assert encoding.key_table is not None
    with torch.no_grad():
        encoding.key_table.zero_()
        encoding.key_table[1, :, 0] = torch.arange(17.0)
    query = torch.ones(2, 10, 4)
    figure = plots.scores(encoding, query=query, key=torch.zeros(2, 10, 4))
    assert words(figure)[1].startswith(f"{DOWN}; head 2, ")
