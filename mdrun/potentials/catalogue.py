"""What models there are, whether their package is installed, and what is known of each without loading it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

REFRESH, NO_LAYERS, WIDE = "refresh", "one cutoff", "wide halo"


# Packages whose files are pickles, and the names of the weights that they bring; sevenn fetches others from the net.
IN_PACKAGES: dict[str, tuple[str, ...]] = {
    "mace": (), "sevennet": ("7net-0", "7net-MF-0", "7net-l3i5"), "chgnet": ("0.3.0", "r2scan")
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One line of ``mdrun models``.

    Attributes:
        spec: what --model takes.
        species: in words.
        cutoff: Å, in words.
        layers: how often in a row atoms learn of their neighbours; 0 for models without layers.
        halo: how several ranks share it.
        licence: of the code and the weights.
        package: distribution, and module, of an optional package.
        extra: of mdrun, that installs it.
        heaviest: the highest atomic number of weights that come with the package; 0 where a file says.
    """

    spec: str
    species: str
    cutoff: str
    layers: str = "0"
    halo: str = NO_LAYERS
    licence: str = ""
    package: tuple[str, str] | None = None
    extra: str = ""
    unknown: frozenset[int] = frozenset()
    heaviest: int = 0

    @property
    def state(self) -> str:
        """``built in``, ``installed`` with the version, or how to install it."""
        if self.package is None:
            return "built in"
        if not self.is_installed:
            return f"pip install 'mdrun[{self.extra}]'"
        try:
            return f"installed, {version(self.package[0])}"
        except PackageNotFoundError:
            return "installed"

    @property
    def is_installed(self) -> bool:
        return self.package is None or importlib.util.find_spec(self.package[1]) is not None

    def covers(self, numbers: tuple[int, ...]) -> bool:
        """Whether weights that come with the package know all of them."""
        return all(1 <= z <= self.heaviest and z not in self.unknown for z in numbers)


MACE, SEVENN, CHGNET = ("mace-torch", "mace"), ("sevenn", "sevenn"), ("chgnet", "chgnet")
SEVENN_LICENCE = "MIT"
RADIOACTIVE = frozenset({84, 85, 86, 87, 88})  # Po to Ra, which 7net has not seen
SEVENNETS = {"layers": "5", "halo": REFRESH, "licence": SEVENN_LICENCE, "package": SEVENN, "extra": "sevennet",
             "unknown": RADIOACTIVE, "heaviest": 94}  # fmt: skip

ENTRIES = (
    Entry("lj", "Ne Ar Kr Xe; any with epsilon and sigma", "2.5 σ or as given"),
    Entry("lj:FILE.toml", "the file's", "the file's"),
    Entry("morse:...", "any, by parameters", "as given"),
    Entry("buck:...", "any, by parameters", "as given"),
    Entry("yukawa:...", "any, by parameters", "as given"),
    Entry("zbl:inner=I,outer=O", "all", "as given"),
    Entry("dsf:alpha=A,cutoff=C", "any with charges", "as given"),
    Entry("table:FILE,...", "the file's", "as given"),
    Entry("eam:FILE", "the file's", "the file's"),
    Entry("emt", "Al Cu Ag Au Ni Pd Pt", "5.7 to 6"),
    Entry("sw, sw:FILE", "Si; the file's", "3.77; the file's"),
    Entry("tersoff, tersoff:FILE", "Si C; the file's", "3.2; the file's"),
    Entry("sevennet:7net-0", "89 elements up to Pu, without Po to Ra", "5.0", **SEVENNETS),  # type: ignore[arg-type]
    Entry("sevennet:7net-l3i5", "89 elements, as 7net-0", "5.0", **SEVENNETS),  # type: ignore[arg-type]
    Entry("sevennet:7net-MF-0,modal=PBE or R2SCAN", "89 elements, as 7net-0", "5.0", **SEVENNETS),  # type: ignore[arg-type]
    Entry("sevennet:FILE", "the file's", "the file's", "the file's", REFRESH, "MIT (code), the file's", SEVENN,
          "sevennet"),
    Entry("chgnet", "94 elements, H to Pu", "6.0, bonds 3.0", "4", REFRESH, "BSD (modified)", CHGNET, "chgnet",
          heaviest=94),
    Entry("chgnet:r2scan", "94 elements, H to Pu", "6.0, bonds 3.0", "4", REFRESH, "BSD (modified)", CHGNET, "chgnet",
          heaviest=94),
    Entry("mace:FILE", "the file's", "the file's", "the file's", REFRESH, "MIT (code), the file's", MACE, "mace"),
    Entry("metatomic:FILE", "the file's", "the file's", "the file's", "wide halo", "BSD (code), the file's",
          ("metatomic-torch", "metatomic"), "metatomic"),
    Entry("ase:MODULE:CLASS,...", "the calculator's", "its own", "its own", "one rank; wide halo with reach=Å",
          "the calculator's"),
    Entry("FILE.py:FUNCTION", "yours", "yours", "yours", "refresh or wide halo", "yours"),
)  # fmt: skip


def serving(numbers: tuple[int, ...]) -> Iterator[Entry]:
    """Machine-learned models whose weights come with their package, and know all the species."""
    return (entry for entry in ENTRIES if entry.heaviest and entry.covers(numbers))


def machine_learned(numbers: tuple[int, ...]) -> str:
    """What there is for species that nothing built in covers, in a clause."""
    found = list(serving(numbers))
    if not found:
        return "mace:FILE where you have a model of them (pip install 'mdrun[mace]')"
    ready = [entry.spec for entry in found if entry.is_installed]
    if ready:
        return f"machine-learned and installed: {', '.join(ready)}"
    extras = dict.fromkeys(entry.extra for entry in found)
    ways = ", ".join(f"{extra} (pip install 'mdrun[{extra}]')" for extra in extras)
    return f"machine-learned, with weights in the package: {ways}"
