"""Method names: how people write encodings for ``situs compare`` and ``situs plot``, and what is made of them.

    alibi                    a registered encoding
    my_module:MyEncoding     a class of one's own
    shaw(max_distance=32)    with options, which are Python literals
    rotary&alibi             both in one layer
    rotary/none              layers take turns
    rotary+yarn              with its frequencies scaled to a longer text
    rotary+random            with positions drawn from a larger range
    rotary+axial             for images
    rotary,alibi             several methods

``grammar`` takes a name apart, once, into a `Method`; ``methods`` and ``lab.probing.sitters`` make encodings of it.
Within brackets none of these signs separates anything: 1e+5 is a number there.
"""

from situs.lab.naming.grammar import Method, Part, parse, parse_all, require_additions

__all__ = ["Method", "Part", "parse", "parse_all", "require_additions"]
