"""Method names: how people write encodings for ``situs compare`` and ``situs plot``, and what is made of them.

    alibi, ALiBi, RoPE, T5Bias       a registered encoding, by any spelling of its name or class
    my_module:MyEncoding             a class of one's own; or folder/own.py:MyEncoding, or folder/own.py
    shaw(max_distance=32)            with options, which are Python literals
    rotary&alibi                     both in one layer
    rotary/none                      layers alternate
    rotary+yarn, yarn                with frequencies scaled to a longer text
    rotary+llama3(factor=8.0)        with options of the scaling, used as they are written
    rotary+random                    with positions drawn from a larger range
    rotary+axial                     for images
    rotary,alibi                     several methods

``grammar`` takes a name apart, once, into a `Method` under the registry's names, which records, tables and figures
show; ``methods`` and ``lab.probing.sitters`` make encodings of it. Within brackets none of these signs separates
anything: 1e+5 is a number there.

A scaling without options is fitted by the lab: its original length is that of training, and its factor is the length
tested by that of training. Options that are written take the place of these. With a factor or a target_length, the
factor is the same at every length beyond that of training, where the frequencies stay as they were trained. Bands of
distance (``rotary+selfextend``, ``+rerope``, ``+dualchunk``) are fitted so that all distances are such as in training.
"""

from situs.lab.naming.grammar import Method, Part, parse, parse_all, require_additions

__all__ = ["Method", "Part", "parse", "parse_all", "require_additions"]
