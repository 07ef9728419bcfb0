"""Every item of five common explanations of position encodings, and the heading of the course or of the page of
mistakes that treats it.

The five, by letter, with lines of the text as it was read:

    A    an answer on "how many position embedding methods", with code
    B    notes on the background of the RoFormer paper, equations 1 to 10
    C    notes on five methods, with a comparison and questions
    D    a short article on variants, in the notation of RoFormer
    E    a lesson on positional encodings, with code and figures
"""

from typing import NamedTuple


class Item(NamedTuple):
    """Hold where an item stands in its text, what it says, and where it is treated: file#anchor under docs/."""

    text: str
    lines: str
    says: str
    where: tuple[str, ...]


M, C = "mistakes.md#", "course/"
ORDER, PLACES, WAVES = f"{C}01-order.md#", f"{C}02-where-position-enters.md#", f"{C}03-sinusoids.md#"
TABLES, RELATIVE = f"{C}04-learned-tables.md#", f"{C}05-relative-positions.md#"
ROTARY, ALIBI, CHOOSING = f"{C}06-rotary.md#", f"{C}07-alibi.md#", f"{C}10-choosing.md#"

INVARIANT = f"{M}attention-is-permutation-invariant-without-positions-all-orders-are-treated-alike"
SUMMED = f"{M}the-output-of-token-n-is-the-sum-over-n-of-am-n-vn"
COSINE = f"{M}a-dot-product-is-the-cosine-of-an-angle-so-attention-is-about-angles-alone"
WAVELENGTHS = f"{M}wavelengths-run-from-2π-to-10000--2π-one-for-each-channel"
UNIQUE = f"{M}three-cosines-show-that-every-position-is-unique"
FOR_FREE = f"{M}relative-positions-come-for-free-since-pn--k-is-a-linear-function-of-pn"
SMOOTH = f"{M}sinusoids-continue-smoothly-and-stay-bounded-so-they-generalise-to-longer-sequences"
VARIANCE = f"{M}embeddings-have-variance-1-and-are-therefore-scaled-by-d"
MEMORY = f"{M}sinusoids-take-max_len--d-numbers-of-memory-like-a-learned-table"
PADDING = f"{M}position-ids-are-cumsummask--mask---1-so-padding-gets-0"
ANEW = f"{M}a-longer-sequence-needs-a-table-that-is-initialised-anew"
SWAPPED = f"{M}cos-and-sin-repeated-for-neighbours-with-a-swap-of-halves"
GATHERED = f"{M}rotated-even-channels-concatenated-with-rotated-odd-ones"
EMBEDDINGS = f"{M}rotary-rotates-the-embeddings"
APPROXIMATE = f"{M}the-score-of-rotary-is-approximately-a-function-of-m---n-x_m-w_q-rn---m-w_k-x_n"
DECAY = f"{M}scores-of-rotary-decay-with-distance"
EXTRAPOLATES = f"{M}rotary-extrapolates-since-it-is-relative"
WRAPPING = f"{M}angles-cannot-get-too-large-since-sine-and-cosine-wrap-around"
CLIPPED = f"{M}t5s-bias-is-a-table-clipped-at-a-distance-added-to-q--k--d"
SIGN = f"{M}i---j-or-j---i-the-relative-position-either-way"
SHAW = f"{M}shaws-keys-are-w-x--a"
XL = f"{M}transformer-xl-replaces-pm-by-u-and-v-which-w_q-then-projects"
UNTIED = f"{M}raffel-et-al-untied-words-and-positions-deberta-projects-the-same-vector-the-same-way-twice"
SLOPES = f"{M}alibis-heads-learn-slopes-of-2-8hh"
ALIBI_LONG = f"{M}alibi-extrapolates-so-it-reads-long-contexts"

ITEMS = [
    Item("A", "7", "self-attention is permutation-invariant", (INVARIANT, f"{ORDER}the-formula")),
    Item("A", "11-34", "kinds of encodings: absolute, relative, rotary", (f"{PLACES}the-formula",)),
    Item("A", "17-61", "a learned table, as code; BERT uses it", (f"{TABLES}a-table-is-an-embedding",)),
    Item("A", "64-78", "sinusoids are fixed; their formula", (f"{WAVES}the-formula",)),
    Item("A", "80-102", "sinusoids, as code", (f"{WAVES}the-table",)),
    Item("A", "104-109", "relative positions generalise better to longer texts",
         (f"{RELATIVE}which-is-best-measured",)),
    Item("A", "111-115", "T5: QK/sqrt(d) + b(i - j)", (CLIPPED, SIGN)),
    Item("A", "117-150", "T5's bias as a clipped table, as code",
         (CLIPPED, f"{RELATIVE}buckets-what-t5-does-and-what-is-called-t5")),
    Item("A", "154-158", "rotary rotates queries and keys, and supports extrapolation",
         (f"{ROTARY}the-intuition", EXTRAPOLATES)),
    Item("A", "160-164", "rotary by cosines and sines of a pair", (f"{ROTARY}the-formula",)),
    Item("A", "166-204", "rotary, as code that mixes two pairings", (SWAPPED, f"{ROTARY}many-speeds-and-two-pairings")),
    Item("A", "206-212", "a table: used in, idea, generalises", (f"{CHOOSING}the-table",)),
    Item("A", "214", "there are four categories with variants", (f"{PLACES}the-formula",)),
    Item("A", "216-231", "rotary as a matrix", (f"{ROTARY}the-formula", f"{ROTARY}the-code")),
    Item("A", "233-253", "rotary as a complex product", (f"{ROTARY}the-formula", f"{ROTARY}the-code")),
    Item("A", "255-261", "the angle, pos / 10000^(2i/d)", (f"{ROTARY}the-formula",)),
    Item("A", "264-272", "the written forms are equal", (f"{ROTARY}the-code",)),
    Item("A", "280-287", "a figure: one vector rotated by its position", (f"{ROTARY}the-picture",)),
    Item("A", "289", "several frequencies rotate at different speeds", (f"{ROTARY}many-speeds-and-two-pairings",)),
    Item("B", "1", "attention does not know positions by itself", (f"{ORDER}the-intuition", f"{PLACES}the-intuition")),
    Item("B", "14-24", "equation 1: f_q, f_k, f_v", (f"{PLACES}the-formula",)),
    Item("B", "26-33", "equation 2: softmax and weighted sum", (f"{PLACES}the-formula",)),
    Item("B", "35", "all methods choose the functions of equation 1", (f"{PLACES}the-formula",)),
    Item("B", "37-45", "equation 3: W (x + p)", (f"{PLACES}the-formula", f"{PLACES}one-attention-four-places")),
    Item("B", "47", "trainable vectors up to a maximum length", (f"{TABLES}the-formula", f"{TABLES}the-table-ends")),
    Item("B", "49-54", "equation 4: sinusoids", (f"{WAVES}the-formula",)),
    Item("B", "56", "each channel a sinusoid; wavelengths from 2 pi to 10000 2 pi",
         (WAVELENGTHS, f"{WAVES}wavelengths")),
    Item("B", "56", "PE(pos + k) is a linear function of PE(pos)",
         (FOR_FREE, f"{WAVES}a-step-is-a-rotation", f"{WAVES}what-a-model-can-use-of-it")),
    Item("B", "58-68", "equation 5: Shaw's keys and values W (x + p)", (SHAW, f"{RELATIVE}each-method-term-by-term")),
    Item("B", "70", "distances are clipped", (f"{RELATIVE}the-formula",)),
    Item("B", "70-74", "equation 6: four terms", (f"{RELATIVE}the-formula", f"{RELATIVE}the-four-terms")),
    Item("B", "76-80", "equation 7: Transformer-XL, u and v projected", (XL, f"{RELATIVE}each-method-term-by-term")),
    Item("B", "82", "values without positions", (f"{RELATIVE}the-formula",)),
    Item("B", "82-86", "equation 8: T5's bias", (f"{RELATIVE}each-method-term-by-term",)),
    Item("B", "88-92", "equation 9: projections for positions, said to be Raffel et al.'s",
         (UNTIED, f"{RELATIVE}each-method-term-by-term")),
    Item("B", "94-98", "equation 10: DeBERTa's two middle terms", (UNTIED, f"{RELATIVE}each-method-term-by-term")),
    Item("B", "100", "a comparison found the variant of equation 10 most efficient",
         (f"{RELATIVE}what-people-get-wrong", f"{RELATIVE}which-is-best-measured")),
    Item("B", "104", "rotary encodes absolute positions by rotation, and relative ones follow",
         (f"{ROTARY}the-formula",)),
    Item("B", "106", "rotary unifies absolute and relative", (f"{ROTARY}the-question",)),
    Item("B", "109", "rotary can be expanded to any length", (EXTRAPOLATES,)),
    Item("B", "109", "dependency decays with distance", (DECAY, f"{ROTARY}does-the-score-decay-with-distance")),
    Item("B", "109", "rotary with linear attention", (f"{ROTARY}with-linear-attention",)),
    Item("B", "111-116", "the general form, R W x for even d", (f"{ROTARY}the-formula",)),
    Item("B", "117-129", "the rotary matrix, with theta counted from 1", (WAVELENGTHS, f"{ROTARY}the-formula")),
    Item("B", "129-130", "a figure of rotary", (f"{ROTARY}the-picture",)),
    Item("B", "131-134", "the score is x W_q R(n - m) W_k x, without a transpose", (APPROXIMATE,)),
    Item("B", "135", "R is orthogonal, so lengths stay", (f"{ROTARY}the-code",)),
    Item("B", "135", "R is sparse, so it is not multiplied as a matrix", (f"{ROTARY}the-code",)),
    Item("B", "137", "multiplicative, where others are additive; derived from a condition",
         (f"{ROTARY}the-formula", f"{ROTARY}where-the-form-comes-from")),
    Item("C", "4", "Transformers are permutation-invariant", (INVARIANT,)),
    Item("C", "5-9", "the formula of sinusoids", (f"{WAVES}the-formula",)),
    Item("C", "11", "two channels form a pair of one frequency", (f"{WAVES}the-intuition",)),
    Item("C", "12-15", "high channels are slow: a multi-scale view", (f"{WAVES}the-intuition", f"{WAVES}wavelengths")),
    Item("C", "16-18", "encodings are added to embeddings", (f"{WAVES}the-formula",)),
    Item("C", "19-22", "relative distances can be inferred without training for it",
         (FOR_FREE, f"{WAVES}what-a-model-can-use-of-it")),
    Item("C", "23-28", "learned positions as parameters", (f"{TABLES}the-formula",)),
    Item("C", "29-34", "flexible, no length beyond L; BERT 512, GPT-2 1024", (f"{TABLES}the-formula",)),
    Item("C", "35", "a learned table often works as well", (f"{TABLES}the-formula", f"{TABLES}what-training-finds")),
    Item("C", "36-39", "what matters is how far apart two tokens are",
         (f"{RELATIVE}the-intuition", f"{RELATIVE}the-same-words-100-positions-later")),
    Item("C", "40-43", "x W_q (x W_k + r)", (f"{RELATIVE}the-formula",)),
    Item("C", "44-45", "T5's scalar biases, beside QK/sqrt(d)", (CLIPPED,)),
    Item("C", "46-49", "length-generalizable within the trained offsets; some more compute",
         (f"{RELATIVE}which-is-best-measured", f"{CHOOSING}the-table")),
    Item("C", "50-53", "rotary rotates queries and keys instead of adding", (f"{ROTARY}the-intuition",)),
    Item("C", "54-58", "pairs of channels and their rotation", (f"{ROTARY}the-formula",)),
    Item("C", "59-62", "why pairs, why several frequencies; nothing is learned",
         (f"{ROTARY}many-speeds-and-two-pairings",)),
    Item("C", "63-64", "in polar form a rotation keeps the length", (f"{ROTARY}the-picture",)),
    Item("C", "65-67", "the score is approximately a function of m - n", (APPROXIMATE,)),
    Item("C", "68-69", "rotary in one line", (f"{ROTARY}the-intuition",)),
    Item("C", "70-75", "ALiBi's formula", (f"{ALIBI}the-formula",)),
    Item("C", "76-77", "heads learn their scale of locality", (SLOPES, f"{ALIBI}the-code")),
    Item("C", "78-79", "ALiBi is trained short and tested long", (ALIBI_LONG, f"{ALIBI}train-short-test-long")),
    Item("C", "80-87", "a comparison: applied to, encodes, generalises, models", (f"{CHOOSING}the-table",)),
    Item("C", "88-93", "a dot product measures angles", (COSINE, f"{ROTARY}the-picture")),
    Item("C", "94-95", "why channels are paired", (f"{ROTARY}the-formula",)),
    Item("C", "96", "why frequencies differ", (f"{ROTARY}many-speeds-and-two-pairings",)),
    Item("C", "97", "where theta comes from", (f"{ROTARY}the-formula",)),
    Item("C", "98", "angles cannot get too large", (WRAPPING, f"{ROTARY}can-the-angle-become-too-large")),
    Item("C", "99-104", "a summary of five methods", (f"{CHOOSING}advice-in-plain-words",)),
    Item("D", "11", "unlike a recurrent network, attention takes all tokens at once",
         (f"{ORDER}a-recurrent-network-beside-it",)),
    Item("D", "11", '"The cat sat" is the same as "Sat cat the"', (INVARIANT, f"{ORDER}the-two-sentences")),
    Item("D", "13", "no recurrence or convolution to understand order", (f"{ORDER}what-people-get-wrong",)),
    Item("D", "14-24", "tokens and embeddings", (f"{ORDER}the-formula",)),
    Item("D", "26-39", "f_q, f_k and f_v", (f"{PLACES}the-formula",)),
    Item("D", "41-51", "softmax; output_n as a sum over n", (SUMMED, f"{PLACES}the-formula")),
    Item("D", "53", "absolute encodings only represent order", (f"{PLACES}what-people-get-wrong",)),
    Item("D", "56-64", "absolute: W (x + p)", (f"{PLACES}the-formula",)),
    Item("D", "67-76", "relative: W x + p(m - n)", (f"{RELATIVE}the-formula", SIGN)),
    Item("D", "79-80", "rotary multiplies embeddings by a rotation", (EMBEDDINGS,)),
    Item("D", "82-88", "rotary by e^(i m theta); below it the words of another formula", (f"{ROTARY}the-formula",)),
    Item("E", "2-6", "a definition of invariance that is one of equivariance", (INVARIANT, f"{ORDER}the-formula")),
    Item("E", "7-29", "shuffled attention, as code", (f"{ORDER}the-two-sentences",)),
    Item("E", "30-34", "the cat chased the dog", (f"{ORDER}the-question",)),
    Item("E", "35-39", '"I love Paris" in three orders', (f"{ORDER}the-two-sentences",)),
    Item("E", "40", "recurrent networks do not have this problem", (f"{ORDER}a-recurrent-network-beside-it",)),
    Item("E", "40", "parallel work is why Transformers lose order", (f"{ORDER}what-people-get-wrong",)),
    Item("E", "41-43", "input = word + position", (f"{PLACES}the-formula", f"{PLACES}what-people-get-wrong")),
    Item("E", "44-48", "four requirements",
         (f"{PLACES}four-requirements-measured", f"{PLACES}the-fourth-requirement-takes-training")),
    Item("E", "49-60", "the formula, with i up to d/2", (WAVELENGTHS, f"{WAVES}the-formula")),
    Item("E", "61-95", "sinusoids in NumPy; first positions printed", (f"{WAVES}the-table",)),
    Item("E", "96-121", "figures: heat map and channels", (f"{WAVES}the-picture",)),
    Item("E", "122-126", "patterns: fast and slow channels", (f"{WAVES}wavelengths",)),
    Item("E", "127-136", "cosines of three positions as proof that all are unique",
         (UNIQUE, f"{WAVES}neighbours-are-alike")),
    Item("E", "137-142", "PE(pos + k) = f(PE(pos)) by trigonometry",
         (f"{WAVES}the-formula", f"{WAVES}a-step-is-a-rotation")),
    Item("E", "143-151", "extrapolation: the pattern continues smoothly", (SMOOTH, f"{WAVES}does-it-extrapolate")),
    Item("E", "152-156", "values stay in -1 .. 1", (f"{WAVES}the-table", SMOOTH)),
    Item("E", "157-206", "a module with a stored table and dropout", (MEMORY, f"{TABLES}dropout")),
    Item("E", "207-218", "embeddings are scaled by the root of d",
         (VARIANCE, f"{TABLES}why-embeddings-are-multiplied-by-d")),
    Item("E", "219-249", "a learned table with dropout, as code",
         (f"{TABLES}a-table-is-an-embedding", f"{TABLES}dropout")),
    Item("E", "250-256", "a table: learned beside sinusoidal", (f"{TABLES}the-formula",)),
    Item("E", "257-260", "models and their encodings, Reformer among the relative ones",
         (UNTIED, f"{TABLES}what-people-get-wrong", f"{CHOOSING}the-table")),
    Item("E", "261", "learned is better for fixed lengths, sinusoidal for long ones",
         (f"{TABLES}the-formula", f"{WAVES}does-it-extrapolate")),
    Item("E", "262-264", "relative encodings generalise to longer texts", (f"{RELATIVE}which-is-best-measured",)),
    Item("E", "265-268", '"her" is two positions before "duck"', (SIGN, f"{RELATIVE}the-question")),
    Item("E", "269-303", "a clipped table as T5's, counted i - j", (CLIPPED, SIGN)),
    Item("E", "304-317", "attention with a bias of n x n, as code",
         (f"{PLACES}one-attention-four-places", f"{RELATIVE}exercises")),
    Item("E", "318-320", "rotary extrapolates excellently", (EXTRAPOLATES, f"{ROTARY}what-people-get-wrong")),
    Item("E", "321-343", "rotary, as code that gathers even and odd channels", (GATHERED,)),
    Item("E", "344-349", "advantages of rotary", (f"{ROTARY}what-people-get-wrong", f"{CHOOSING}the-table")),
    Item("E", "350-354", "for longer texts a table must be initialised anew", (ANEW, f"{TABLES}the-table-ends")),
    Item("E", "355-360", "memory: 2048 x 768 x 4 bytes", (MEMORY, f"{TABLES}memory")),
    Item("E", "361-387", "position ids of padded texts", (PADDING, f"{TABLES}positions-of-padded-texts")),
    Item("E", "388-408", "a summary, with models of today", (f"{CHOOSING}advice-in-plain-words",)),
]  # fmt: skip
