"""A task for encodings of images: fill in masked patches of smooth random fields.

A field is white noise, smoothed by a Gaussian, so that near pixels are alike and far ones are not. Half of the patches
are hidden from the model, which predicts their pixels from the others. A hidden patch has no content, so what it
looks at is decided by positions alone. Fields are computed: no images are needed, and every machine has the same.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from situs.encodings.base import Encoding, InputEncoding
from situs.lab.model import Layer
from situs.lab.probing.sitters import patches_of
from situs.lab.settings import Size

PIXELS = 2  # of a patch, each way
SMOOTHING = 2.5  # the Gaussian's standard deviation in pixels
HIDDEN = 0.5  # the share of patches that are hidden


class Fields(NamedTuple):
    """Hold a batch of fields: the pixels of all patches, and which patches are hidden."""

    patches: Float[Tensor, "batch patches pixels"]
    hidden: Bool[Tensor, "batch patches"]


def draw_fields(generator: torch.Generator, batch: int, size: tuple[int, int]) -> Fields:
    """Draw fields of ``size`` patches, whose pixels have a mean of 0 and a variance of 1."""
    reach = round(3 * SMOOTHING)
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float32)
    gaussian = torch.exp(-0.5 * (offsets / SMOOTHING) ** 2)
    gaussian = gaussian / gaussian.norm()  # the sum of squares is 1, so that the variance stays 1
    height, width = (PIXELS * side for side in size)
    noise = torch.randn(batch, 1, height + 2 * reach, width + 2 * reach, generator=generator)
    smooth = nn.functional.conv2d(noise, gaussian.view(1, 1, -1, 1))
    smooth = nn.functional.conv2d(smooth, gaussian.view(1, 1, 1, -1))
    patches = nn.functional.unfold(smooth, PIXELS, stride=PIXELS).transpose(1, 2)  # (batch, patches, pixels)
    return Fields(patches, torch.rand(patches.shape[:2], generator=generator) < HIDDEN)


@final
class FieldModel(nn.Module):
    """Predict the pixels of hidden patches: a small encoder, alike for all encodings."""

    def __init__(self, encodings: list[list[Encoding]], *, image: tuple[int, int], size: Size) -> None:
        """
        encodings: those of each layer; encodings of the input stand in the first.
        image: patches down and right.
        """
        super().__init__()
        self.positions = patches_of([each for layer in encodings for each in layer], image)
        self.embedding = nn.Linear(PIXELS**2, size.dim)
        self.hidden = nn.Parameter(torch.zeros(size.dim))
        self.inputs = nn.ModuleList(each for each in encodings[0] if isinstance(each, InputEncoding))
        self.layers = nn.ModuleList(
            Layer(size, [each for each in layer if not isinstance(each, InputEncoding)], causal=False)
            for layer in encodings
        )
        self.norm = nn.RMSNorm(size.dim)
        self.head = nn.Linear(size.dim, PIXELS**2)

    def forward(self, fields: Fields) -> Float[Tensor, "batch patches pixels"]:
        """Predict all patches from those that are not hidden."""
        x = torch.where(fields.hidden[..., None], self.hidden, self.embedding(fields.patches))
        for encoding in self.inputs:
            x = encoding(x, self.positions)
        for layer in self.layers:
            x = layer(x, self.positions)
        predicted: Tensor = self.head(self.norm(x))
        return predicted

    def loss(self, fields: Fields) -> Float[Tensor, ""]:
        """Give the mean squared error of hidden pixels: 1 where nothing is learnt."""
        error: Tensor = self(fields) - fields.patches
        return error[fields.hidden].square().mean()
