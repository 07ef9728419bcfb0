"""Situs: position encodings for Transformers.

>>> import situs, torch
>>> rotary = situs.Rotary(head_dim=64, pairing="halves")
>>> queries = rotary(torch.randn(2, 8, 16, 64))
"""

import importlib
from typing import TYPE_CHECKING

from situs.registry import ENCODINGS

# A program uses a few of these, so each is loaded when it is first asked for. Encodings are added from the registry.
_ON_DEMAND = {
    "situs": ("attention", "functional", "models", "rotation"),
    "situs.attention": ("Explanation", "attend", "explain"),
    "situs.attention.cache": ("KVCache",),
    "situs.attention.layer": ("Attention",),
    "situs.checks": ("CheckReport", "EncodingCheckError", "check_encoding"),
    "situs.encodings.bands": ("DualChunk", "ReRoPE", "SelfExtend"),
    "situs.encodings.base": ("Encoding", "Feature", "InputEncoding", "QueryKeyEncoding"),
    "situs.encodings.cumulated": ("CumulatedScore",),
    "situs.encodings.bias": ("BiasEncoding", "OffsetBias", "PairBias", "PositionProduct"),
    "situs.encodings.rotation": ("RotationEncoding",),
    "situs.encodings.scaling": (
        "DynamicNTKScaling", "LinearScaling", "Llama3Scaling", "LongRoPE", "NTKByPartsScaling", "NTKScaling",
        "ProportionalScaling", "ScaledFrequencies", "Scaling", "YaRN",
    ),
    "situs.encodings.schedule": ("schedule",),
    "situs.encodings.score": ("OffsetScore", "OffsetVectors", "ScoreEncoding", "ValueEncoding"),
    "situs.encodings.split": ("Axial", "Sections", "Split"),
    "situs.encodings.value_map": ("ValueMap",),
    "situs.functional.grids": ("Vision",),
    "situs.functional.pairing": ("convert_pairing",),
    "situs.positions": ("Positions",),
    "situs.registry": ("create", "entry", "names", "register"),
}  # fmt: skip
_MODULES = {name: module for module, several in _ON_DEMAND.items() for name in several} | {
    each.cls: each.module for each in ENCODINGS.values()
}

# A static type checker runs nothing, so it is told every name here, each under its own so that strict checkers take it
# for public. `make names` writes this block from the table above and the registry, and tests compare them.
# names: begin
if TYPE_CHECKING:
    from situs import attention as attention
    from situs import functional as functional
    from situs import models as models
    from situs import plots as plots
    from situs import rotation as rotation
    from situs.attention import Explanation as Explanation
    from situs.attention import attend as attend
    from situs.attention import explain as explain
    from situs.attention.cache import KVCache as KVCache
    from situs.attention.layer import Attention as Attention
    from situs.checks import CheckReport as CheckReport
    from situs.checks import EncodingCheckError as EncodingCheckError
    from situs.checks import check_encoding as check_encoding
    from situs.encodings.alibi import ALiBi as ALiBi
    from situs.encodings.bands import DualChunk as DualChunk
    from situs.encodings.bands import ReRoPE as ReRoPE
    from situs.encodings.bands import SelfExtend as SelfExtend
    from situs.encodings.base import Encoding as Encoding
    from situs.encodings.base import Feature as Feature
    from situs.encodings.base import InputEncoding as InputEncoding
    from situs.encodings.base import QueryKeyEncoding as QueryKeyEncoding
    from situs.encodings.bias import BiasEncoding as BiasEncoding
    from situs.encodings.bias import OffsetBias as OffsetBias
    from situs.encodings.bias import PairBias as PairBias
    from situs.encodings.bias import PositionProduct as PositionProduct
    from situs.encodings.boxes import Boxes as Boxes
    from situs.encodings.cope import CoPE as CoPE
    from situs.encodings.cumulated import CumulatedScore as CumulatedScore
    from situs.encodings.deberta import Deberta as Deberta
    from situs.encodings.fire import Fire as Fire
    from situs.encodings.forgetting import Forgetting as Forgetting
    from situs.encodings.gated import GatedBias as GatedBias
    from situs.encodings.kerple import Kerple as Kerple
    from situs.encodings.learned import Learned as Learned
    from situs.encodings.learned_grid import LearnedGrid as LearnedGrid
    from situs.encodings.lerope import LeRoPE as LeRoPE
    from situs.encodings.mlp import MLPBias as MLPBias
    from situs.encodings.nope import NoPE as NoPE
    from situs.encodings.pope import PoPE as PoPE
    from situs.encodings.projected import ProjectedBias as ProjectedBias
    from situs.encodings.rope_mixed import RoPEMixed as RoPEMixed
    from situs.encodings.rotary import Rotary as Rotary
    from situs.encodings.rotary_value import RotaryValue as RotaryValue
    from situs.encodings.rotation import RotationEncoding as RotationEncoding
    from situs.encodings.sandwich import Sandwich as Sandwich
    from situs.encodings.scaling import DynamicNTKScaling as DynamicNTKScaling
    from situs.encodings.scaling import LinearScaling as LinearScaling
    from situs.encodings.scaling import Llama3Scaling as Llama3Scaling
    from situs.encodings.scaling import LongRoPE as LongRoPE
    from situs.encodings.scaling import NTKByPartsScaling as NTKByPartsScaling
    from situs.encodings.scaling import NTKScaling as NTKScaling
    from situs.encodings.scaling import ProportionalScaling as ProportionalScaling
    from situs.encodings.scaling import ScaledFrequencies as ScaledFrequencies
    from situs.encodings.scaling import Scaling as Scaling
    from situs.encodings.scaling import YaRN as YaRN
    from situs.encodings.schedule import schedule as schedule
    from situs.encodings.score import OffsetScore as OffsetScore
    from situs.encodings.score import OffsetVectors as OffsetVectors
    from situs.encodings.score import ScoreEncoding as ScoreEncoding
    from situs.encodings.score import ValueEncoding as ValueEncoding
    from situs.encodings.shaw import Shaw as Shaw
    from situs.encodings.sinusoidal import Sinusoidal as Sinusoidal
    from situs.encodings.split import Axial as Axial
    from situs.encodings.split import Sections as Sections
    from situs.encodings.split import Split as Split
    from situs.encodings.swin import SwinBias as SwinBias
    from situs.encodings.t5 import T5Bias as T5Bias
    from situs.encodings.temperature import Temperature as Temperature
    from situs.encodings.transformer_xl import TransformerXL as TransformerXL
    from situs.encodings.tupe import Tupe as Tupe
    from situs.encodings.value_map import ValueMap as ValueMap
    from situs.encodings.vitdet import ViTDet as ViTDet
    from situs.encodings.xpos import XPos as XPos
    from situs.functional.grids import Vision as Vision
    from situs.functional.pairing import convert_pairing as convert_pairing
    from situs.positions import Positions as Positions
    from situs.registry import create as create
    from situs.registry import entry as entry
    from situs.registry import names as names
    from situs.registry import register as register
# names: end

__all__ = sorted(_MODULES)

__version__: str  # read from the package's metadata when it is first asked for


def __getattr__(name: str) -> object:
    if name in ("huggingface", "plots"):  # not in __all__: they alone need transformers and matplotlib
        return importlib.import_module(f"situs.{name}")
    if name == "__version__":
        globals()[name] = importlib.import_module("importlib.metadata").version("situs")
        return globals()[name]
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'situs' has no attribute {name!r}")
    if module == "situs":
        return importlib.import_module(f"situs.{name}")
    found = globals()[name] = getattr(importlib.import_module(module), name)
    return found


def __dir__() -> list[str]:
    """List what is loaded, and every public name that is not yet."""
    return sorted({*globals(), *__all__, "__version__"})
