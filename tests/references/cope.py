"""Contextual positions (CoPE): a query counts the keys its gates let through.

Paper    Golovneva et al., arXiv:2405.18719, section 4.

    g_ij = sigmoid(q_i . k_j),    p_ij = min(sum_(l >= j) g_il, p_max)    over the keys l that i sees
    e[p] = (p - floor p) e[ceil p] + (1 - p + floor p) e[floor p]
    t_ij = q_i . e[p_ij]

with rows e[0] ... e[p_max]. A key that is not seen has no gate, and so does not count.

Departures: the authors' code scales the products in the gate by 1 / sqrt(d), which the formulas leave out;
the logits are an argument here, and ``gate_logits`` the authors' choice of them. The paper's listing
adds t to scores already scaled; the released code scales it with the raw products unless told not to.
"""

import math

import numpy as np
from numpy.typing import NDArray


def gate_logits(q: NDArray[np.float64], k: NDArray[np.float64]) -> NDArray[np.float64]:
    """q . k / sqrt(d). Shapes: q (h, n, d), k (h, m, d) -> (h, n, m)."""
    return np.stack([q[head] @ k[head].T / math.sqrt(q.shape[2]) for head in range(len(q))])


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), by whichever form cannot overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def positions(
    logits: NDArray[np.float64], visible: NDArray[np.bool_], max_position: int | None = None
) -> NDArray[np.float64]:
    """p, no greater than the last of ``max_position`` rows. Shapes: logits (h, n, m), visible (n, m) -> (h, n, m)."""
    heads, queries, keys = logits.shape
    counted = np.zeros((heads, queries, keys))
    for head in range(heads):
        for i in range(queries):
            for j in range(keys):
                gates = [sigmoid(float(logits[head, i, later])) for later in range(j, keys) if visible[i, later]]
                counted[head, i, j] = sum(gates) if max_position is None else min(sum(gates), max_position - 1)
    return counted


def term(
    q: NDArray[np.float64],
    logits: NDArray[np.float64],
    visible: NDArray[np.bool_],
    table: NDArray[np.float64],
) -> NDArray[np.float64]:
    """t, whatever the pair's own visibility.

    Shapes: q (h, n, d), logits (h, n, m), visible (n, m), table ([h,] max_position, d) -> (h, n, m).
    """
    tables = np.broadcast_to(table, (len(q), *table.shape[-2:]))
    counted = positions(logits, visible, tables.shape[1])
    added = np.zeros(logits.shape)
    for head, i, j in np.ndindex(*logits.shape):
        p = float(counted[head, i, j])
        below, above = math.floor(p), math.ceil(p)
        e = (p - below) * tables[head, above] + (1 - (p - below)) * tables[head, below]
        added[head, i, j] = q[head, i] @ e
    return added
