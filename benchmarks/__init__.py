"""Measurements against the peers: ``make bench``, or ``python -m benchmarks --quick``.

One file a question; each returns records, and only ``report`` words them.

    apply      turning queries and keys with the table at hand
    tables     the same with the table made first
    decode     one token
    accuracy   against float64
    compiled   under torch.compile
    startup    import, first call, and the contract's time
    attention  attention with an encoding beside attention without, and beside the forms usual elsewhere
    targets    what was required, what was measured, met or missed
"""
