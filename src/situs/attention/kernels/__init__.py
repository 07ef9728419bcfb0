"""The kernels that ``attend`` chooses among. They share inputs, tiles and softmax; none imports another.

flash       encodings of the input, of queries and keys, products of positions: torch's own attention, as it is
toeplitz    encodings that know positions by the offset alone: strided views, slanted products, tails
banded      rotary whose rotations differ by band of distance
flex        biases as score_mods of FlexAttention, compiled
blockwise   anything, asked tile by tile
dense       biases of any kind as one dense mask: single queries, dropout, graphs
reference   anything, every score formed
"""
