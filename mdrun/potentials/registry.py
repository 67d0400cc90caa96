"""From a string to a force model: ``lj``, ``lj:epsilon=0.0103,sigma=3.4``, ``eam:Cu.eam.alloy``, ``emt``,
``sw``, ``tersoff:SiC.tersoff``, ``FILE.py:FUNCTION``, and sums of these with ``' + '``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import torch

from mdrun.compiler import why_eager
from mdrun.context import DistributedContext
from mdrun.domain import Domain
from mdrun.errors import InputError, MdrunError
from mdrun.potentials import coulomb_dsf, lennard_jones, tabulated, zbl
from mdrun.potentials.base import ForceModel, Forces, setup, symbols_of, teardown
from mdrun.potentials.buckingham import BUCKINGHAM
from mdrun.potentials.catalogue import IN_PACKAGES, machine_learned
from mdrun.potentials.graph_model import GraphModel, is_energy_model
from mdrun.potentials.morse import MORSE
from mdrun.potentials.named_files import SCRIPT
from mdrun.potentials.named_files import terms_of as words_of
from mdrun.potentials.precision import DOUBLE, PRECISIONS
from mdrun.potentials.user_files import module_of_file
from mdrun.potentials.yukawa import YUKAWA

Loader = Callable[[str | None, dict[str, str], tuple[int, ...]], ForceModel]


def _load_eam(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    if argument is None or options:
        raise InputError("eam takes a file and nothing else: eam:Cu.eam.alloy (setfl, funcfl or eam.fs).")
    from mdrun.potentials.eam import EAM

    return EAM.from_file(Path(argument), numbers)


def _load_emt(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    if argument is not None or options:
        raise InputError("emt takes no options.")
    from mdrun.potentials.emt import EMT

    return EMT.for_species(numbers)


def _load_sw(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    from mdrun.potentials.stillinger_weber import StillingerWeber

    return StillingerWeber.load(Path(argument) if argument else None, numbers, options)


def _load_tersoff(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    from mdrun.potentials.tersoff import Tersoff

    return Tersoff.load(Path(argument) if argument else None, numbers, options)


def _load_package(adapter: str) -> Loader:
    """The loader of a package's adapter; neither is imported before a model of it is asked for."""

    def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
        module = importlib.import_module(f"mdrun.potentials.adapters.{adapter}")
        return module.load(argument, options, numbers)

    return load


LOADERS: dict[str, Loader] = {
    "lj": lennard_jones.load,
    "morse": MORSE.load,
    "buck": BUCKINGHAM.load,
    "yukawa": YUKAWA.load,
    "zbl": zbl.load,
    "dsf": coulomb_dsf.load,
    "table": tabulated.load,
    "eam": _load_eam,
    "emt": _load_emt,
    "sw": _load_sw,
    "tersoff": _load_tersoff,
    "mace": _load_package("mace"),
    "sevennet": _load_package("sevennet"),
    "chgnet": _load_package("chgnet"),
    "metatomic": _load_package("metatomic"),
    "ase": _load_package("ase_calculator"),
}

PLUG_INS = "mdrun.models"  # the group of entry points in which packages register theirs
EMT_METALS = frozenset({"Al", "Cu", "Ag", "Au", "Ni", "Pd", "Pt"})


@dataclass
class Sum:
    """Several models on one neighbour list; each keeps to its own cutoff."""

    terms: list[ForceModel]
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = " + ".join(term.name for term in self.terms)

    @property
    def cutoff(self) -> float:
        return max(term.cutoff for term in self.terms)

    @property
    def ghost_reach(self) -> float:
        return max(getattr(term, "ghost_reach", 0.0) for term in self.terms)

    @property
    def needs_all_nodes(self) -> bool:
        return any(getattr(term, "needs_all_nodes", False) for term in self.terms)

    @property
    def needs_owned_first(self) -> bool:
        return any(getattr(term, "needs_owned_first", False) for term in self.terms)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(line for term in self.terms for line in getattr(term, "warnings", ()))

    @property
    def is_compiled(self) -> bool:
        return all(getattr(term, "is_compiled", False) for term in self.terms)

    @property
    def non_finite_means(self) -> str:
        return " ".join(filter(None, (getattr(term, "non_finite_means", "") for term in self.terms)))

    def distributed_setup(self, context: DistributedContext) -> None:
        for term in self.terms:
            setup(term, context)

    def distributed_teardown(self) -> None:
        for term in self.terms:
            teardown(term)

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        total = self.terms[0](domain, totals)
        for term in self.terms[1:]:
            part = term(domain, totals)
            # What one term can't tell, the sum can't either.
            total = Forces(
                total.forces + part.forces,
                None if total.energy is None or part.energy is None else total.energy + part.energy,
                None if total.virial is None or part.virial is None else total.virial + part.virial,
            )
        return total


def load_model(spec: str, numbers: tuple[int, ...], precision: str = "double", backend: str = "numba") -> ForceModel:
    """The model that ``spec`` names, for the species of a structure.

    Args:
        spec: see the module's text.
        numbers: atomic numbers of the structure's types.
        precision: one of ``PRECISIONS``; a model of the user's learns of it if it has an attribute of that name.
        backend: "torch" for built-in models that evaluate by torch; a model of the user's is what it is.

    Raises:
        InputError: the name, an option or a file is wrong.
        UnknownSpecies: the model lacks a species.
        NoTorchPath: it has none, and ``backend`` is torch.
    """
    terms = [_load_term(term, numbers) for term in words_of(spec)]
    if backend == "torch":
        from mdrun.potentials.torch_models import on_torch

        is_ours = [
            SCRIPT.fullmatch(text) is None and not runs_torch(term)
            for term, text in zip(terms, words_of(spec), strict=True)
        ]
        terms = [on_torch(term) if ours else term for term, ours in zip(terms, is_ours, strict=True)]
    for term in terms:
        if hasattr(term, "precision"):
            term.precision = PRECISIONS[precision]
    return terms[0] if len(terms) == 1 else Sum(terms)


def terms_of(model: ForceModel) -> list[ForceModel]:
    """Those of a sum, or the model itself."""
    return model.terms if isinstance(model, Sum) else [model]


def without_precision(model: ForceModel) -> list[str]:
    """Names of those of a model's terms that take no precision; all that is built in does."""
    return [term.name for term in terms_of(model) if not hasattr(term, "precision")]


def granted_precision(model: ForceModel, wanted: str) -> str:
    """The precision by which a model's answers may be judged: no better than what its terms compute in.

    Terms say that in an attribute ``dtype``, which some models don't take from ``--precision``.
    """
    is_single = any(getattr(term, "dtype", None) == torch.float32 for term in terms_of(model))
    return "mixed" if wanted == DOUBLE.name and is_single else wanted


def notes_of_precision(model: ForceModel, wanted: str) -> list[str]:
    """What to tell the user where terms don't compute as ``--precision`` says."""
    asked = torch.float64 if wanted == DOUBLE.name else torch.float32
    known = {term.name: dtype for term in terms_of(model) if (dtype := getattr(term, "dtype", None)) is not None}
    notes = [
        f"--precision {wanted} is not granted by {name}, which computes in {str(dtype).removeprefix('torch.')} alone"
        for name, dtype in known.items()
        if dtype != asked
    ]
    deaf = [name for name in without_precision(model) if name not in known]
    if deaf and wanted != DOUBLE.name:
        notes.append(f"--precision {wanted} changes nothing for {', '.join(deaf)}: no attribute precision")
    return notes


def has_graph(model: ForceModel) -> bool:
    """Whether one of its terms reads a graph of nodes and edges, which a strategy deals out."""
    return any(isinstance(term, GraphModel) for term in terms_of(model))


def compile_terms(model: ForceModel, device: str) -> list[str]:
    """Have those of a model's terms compiled that allow it; why others are not, a line for each."""
    reasons = []
    for term in terms_of(model):
        trouble = getattr(term, "why_not_compiled", "it does not declare that it compiles") or why_eager(device)
        if trouble is None:
            term.wants_compiling = True  # type: ignore[attr-defined]
        else:
            reasons.append(f"--compile changes nothing for {term.name}: {trouble}")
    return reasons


def runs_torch(model: ForceModel) -> bool:
    """Whether torch computes, whatever the backend: one of its terms says so by ``runs_torch = True``."""
    return any(getattr(term, "runs_torch", False) for term in terms_of(model))


def refuse_unasked_code(spec: str, is_trusted: bool) -> None:
    """Weights that a package keeps as a pickle may run any code when they are loaded: only with the user's leave.

    Raises:
        InputError: a term names such a file, and nobody said that it can be trusted; or one that is not there.
    """
    if is_trusted:
        return
    for term in words_of(spec):
        name, _, rest = term.partition(":")
        file = rest.partition(",")[0]
        if name not in IN_PACKAGES or not file:
            continue
        is_file, names = Path(file).exists(), IN_PACKAGES[name]  # a file comes before a name
        is_name = file.lower() in map(str.lower, names)
        if not is_file and not is_name:
            has = f", and the package has {', '.join(names)}" if names else ""
            raise InputError(f"{term}: there is no file {file}{has}.")
        if is_file:
            raise InputError(
                f"model {term}: {file} is a pickle, and to load one is to run whatever code is in it. If you trust "
                "whoever made the file, add --trust-model (trust_model = true in a configuration)."
            )


def _load_term(spec: str, numbers: tuple[int, ...]) -> ForceModel:
    script = SCRIPT.fullmatch(spec)
    if script:
        return _load_script(Path(script.group(1)), script.group(2), _options(spec, script.group(3)), numbers)
    name, _, rest = spec.partition(":")
    plug_ins = {} if name in LOADERS else {point.name: point for point in entry_points(group=PLUG_INS)}
    if name not in LOADERS and name not in plug_ins:
        raise InputError(
            f"model {spec!r} is unknown; there are {', '.join([*LOADERS, *plug_ins])}, FILE.py:FUNCTION for your own, "
            "and sums with blanks around the sign: 'lj + eam:FILE'."
        )
    words = [word.strip() for word in rest.split(",")] if rest else []
    argument = words.pop(0) if words and "=" not in words[0] else None
    options = _options(spec, ",".join(words))
    if name in LOADERS:
        return LOADERS[name](argument, options, numbers)
    return _load_plug_in(plug_ins[name], argument, options, numbers)


def _load_plug_in(
    point: EntryPoint, argument: str | None, options: dict[str, str], numbers: tuple[int, ...]
) -> ForceModel:
    """What an installed package registers: a function that is called as a ``Loader``, and may return energy models."""
    origin = f"model {point.name} of the plug-in {point.value}"
    try:
        return as_force_model(point.load()(argument, options, numbers), numbers, origin)
    except MdrunError:
        raise
    except Exception as error:
        raise InputError(f"{origin} fails: {type(error).__name__}: {error}") from error


def _options(spec: str, text: str | None) -> dict[str, str]:
    options: dict[str, str] = {}
    for word in filter(None, (text or "").split(",")):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or key in options:
            raise InputError(f"model {spec!r}: {word!r} should be key=value, each key once.")
        options[key] = value
    return options


def _load_script(path: Path, function: str, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    """``FUNCTION(numbers, **options)`` of a file that the user wrote; naming it is the consent to run it."""
    module = module_of_file(path)
    make = getattr(module, function, None)
    if not callable(make):
        raise InputError(f"the model file {path} has no function {function}.")
    try:
        model = make(numbers, **options)
    except MdrunError:
        raise
    except Exception as error:
        raise InputError(f"{path}:{function} fails: {type(error).__name__}: {error}") from error
    return as_force_model(model, numbers, f"{path}:{function}")


def as_force_model(model: Any, numbers: tuple[int, ...], origin: str) -> ForceModel:
    """A model from outside of mdrun, as ``origin`` made it; one that gives energies of atoms gets its forces.

    Raises:
        InputError: it is neither a force model nor an energy model.
    """
    name = Path(origin).name
    if is_energy_model(model):
        return GraphModel(model, numbers, getattr(model, "name", name))
    if not callable(model) or not hasattr(model, "cutoff"):
        raise InputError(
            f"{origin} returned {type(model).__name__}, which is no model: a force model has an attribute cutoff (Å) "
            "and a call (domain, totals) -> mdrun.potentials.base.Forces; an energy model has cutoff, n_layers and "
            "forward(graph) -> energies of the atoms, eV."
        )
    if not hasattr(model, "name"):
        model.name = name
    return model


def default_model(numbers: tuple[int, ...]) -> str:
    """What serves the species of a structure when no model was named.

    Raises:
        InputError: nothing built in does; the text says what would.
    """
    symbols = set(symbols_of(numbers))
    if symbols <= set(lennard_jones.NOBLE_GASES):
        return "lj"
    if symbols <= EMT_METALS:
        return "emt"
    if symbols == {"Si"}:
        return "sw"
    raise InputError(
        f"no built-in model covers {', '.join(sorted(symbols))} together. Name one with --model: eam:FILE for metals "
        "and alloys (setfl, funcfl or eam.fs files, for example from the NIST Interatomic Potentials Repository), "
        "sw:FILE and tersoff:FILE for covalent solids (LAMMPS's parameter files; tersoff alone has Si and C), "
        f"lj:epsilon=...,sigma=... or lj:FILE.toml, or FILE.py:FUNCTION for your own; {machine_learned(numbers)}. "
        "mdrun models tells more. Without --model, "
        f"{', '.join(lennard_jones.NOBLE_GASES)} run as lj, {', '.join(sorted(EMT_METALS))} as emt and Si as sw."
    )
