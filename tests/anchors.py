"""Anchors of a page's headings, as GitHub makes them."""

import pathlib
import re
import unicodedata

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchor_of(heading: str) -> str:
    """Lower case; letters, digits, hyphens and underscores stay, each space is a hyphen, the rest is left out."""
    kept = (
        sign
        for sign in heading.strip().lower()
        if sign in " -_" or unicodedata.category(sign)[0] in "LM" or sign.isdecimal()
    )
    return "".join(kept).replace(" ", "-")


def anchors_of(page: pathlib.Path) -> set[str]:
    """Anchors of all headings; the second of two that are alike ends in -1, and so on."""
    found: dict[str, int] = {}
    anchors = set()
    for heading in re.findall(r"^#{1,6} (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        anchor = anchor_of(heading)
        again = found.get(anchor, 0)
        found[anchor] = again + 1
        anchors.add(f"{anchor}-{again}" if again else anchor)
    return anchors
