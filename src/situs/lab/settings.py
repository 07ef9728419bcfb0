"""Settings: the sizes of the lab's model, and what all trials of a comparison share."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Size:
    """Hold the sizes of a decoder."""

    dim: int = 64
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        if min(self.dim, self.layers, self.heads) < 1:
            raise ValueError(
                f"dim, layers and heads must be 1 or more, since they size the model; got {self.dim}, {self.layers} "
                f"and {self.heads}."
            )
        if self.dim % (2 * self.heads):
            raise ValueError(
                f"dim must be a multiple of twice heads, since each head has an even share of it; got dim={self.dim} "
                f"and heads={self.heads}."
            )


@dataclass(frozen=True)
class Settings:
    """Hold what all trials of a comparison share."""

    train_length: int = 64
    multiples: tuple[int, ...] = (1, 2, 4, 8, 16)
    batch: int = 24
    learning_rate: float = 6e-3
    warm_up: int = 40
    windows: int = 128
    size: Size = field(default_factory=Size)
    device: str = "cpu"

    def __post_init__(self) -> None:
        if min(self.train_length, self.batch, self.windows) < 1:
            raise ValueError(
                f"train_length, batch and windows must be 1 or more, since they count; got {self.train_length}, "
                f"{self.batch} and {self.windows}."
            )
        if self.multiples[:1] != (1,) or list(self.multiples) != sorted(set(self.multiples)):
            raise ValueError(
                f"multiples must begin with 1 and rise, since lengths are compared with the training length; got "
                f"{self.multiples}."
            )

    def warm_up_within(self, steps: int) -> int:
        """Tell how many steps the learning rate rises in a training: ``warm_up``, or a quarter of a short one."""
        return min(self.warm_up, max(1, steps // 4))

    @property
    def lengths(self) -> list[int]:
        """All lengths that are tested at."""
        return [multiple * self.train_length for multiple in self.multiples]
