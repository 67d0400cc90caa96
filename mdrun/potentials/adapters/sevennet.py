"""SevenNet of the package sevenn: ``sevennet:7net-0``, ``sevennet:7net-MF-0,modal=PBE``, or a checkpoint file.

Park et al., J. Chem. Theory Comput. 20, 4857 (2024), doi:10.1021/acs.jctc.4c00190.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mdrun.errors import InputError
from mdrun.graph import Graph
from mdrun.potentials.adapters.occupied import occupied, refreshed
from mdrun.potentials.adapters.packages import needed, quiet
from mdrun.potentials.base import ForceModel, UnknownSpecies, symbols_of
from mdrun.potentials.catalogue import IN_PACKAGES
from mdrun.potentials.graph_model import GraphModel, Needs

IN_THE_WHEEL = IN_PACKAGES["sevennet"]
FORCES = "force_output"


class SevenNet(nn.Module):
    """Per-atom energies by sevenn's own layers: they compute owned rows; convolutions see neighbours' features too.

    Before each convolution but the first, ``refresh_neighbors`` brings the features of neighbours. What goes into the
    first depends on the species alone, and is looked up.

    Args:
        net: sevenn's ``AtomGraphSequential``.
        modal: of a network with several.
    """

    needs = Needs(owned_first=True)

    def __init__(self, net: Any, modal: str | None = None) -> None:
        super().__init__()
        net.set_is_batch_data(False)
        net.delete_module_by_key(FORCES)
        net.delete_module_by_key("reduce_total_enegy")  # its spelling
        if modal is not None:
            net.prepare_modal_deploy(modal)
        self.net, self.cutoff, self._modal = net, float(net.cutoff), modal
        convolutions = [name for name, _ in net.named_children() if name.endswith("_convolution")]
        self.n_layers = len(convolutions)
        self._before_first = _up_to(net, convolutions[0])
        self._known = torch.tensor(sorted(net.type_map))
        self._features: Tensor | None = None
        net.onehot_idx_to_onehot.register_forward_hook(self._in_own_type)
        for n, name in enumerate(convolutions, 1):
            layer = getattr(net, name)
            layer.register_forward_pre_hook(self._look_up if n == 1 else partial(self._refresh, f"layer {n}"))
            layer.register_forward_hook(_keep_owned)

    @property
    def numbers(self) -> list[int]:
        """Atomic numbers of the species that it knows."""
        return self._known.tolist()

    def to(self, *args: Any, **kwargs: Any) -> SevenNet:
        self._features = None
        return super().to(*args, **kwargs)

    def forward(self, graph: Graph) -> Tensor:
        """(n_owned,) eV."""
        if self._features is None or self._features.device != graph.vectors.device:
            self._features = self._features_of_species(graph)
        wanted = graph.n_owned
        self._is_occupied = wanted > 0
        graph = occupied(graph, self.numbers[0])
        self._ghosts = graph.numbers[graph.n_owned :]
        data = self._input(graph.numbers[: graph.n_owned], graph)
        data["edge_index"] = torch.stack([graph.receivers, graph.senders])
        data["edge_vec"] = graph.vectors
        return self.net(data)["atomic_energy"][:wanted, 0]

    def _input(self, numbers: Tensor, graph: Graph) -> dict[str, Any]:
        return {
            "x": numbers,
            "atomic_numbers": numbers,
            "num_atoms": torch.tensor(len(numbers), device=numbers.device),
            "n_owned": len(numbers),
            "cell_volume": graph.vectors.new_ones(()),
        }

    def _features_of_species(self, graph: Graph) -> Tensor:
        """(119, width) what goes into the first convolution."""
        known = self._known.to(graph.numbers.device)
        data = self._input(known, graph)
        data["edge_index"] = known.new_zeros((2, 0))
        data["edge_vec"] = graph.vectors.new_zeros((0, 3))
        with torch.no_grad():
            data = self.net._preprocess(data)
            for module in self._before_first:
                data = module(data)
        table = data["x"].new_zeros((119, data["x"].shape[1]))
        table[known] = data["x"]
        return table

    def _in_own_type(self, module: nn.Module, args: Any, data: dict[str, Tensor]) -> None:
        dtype = next(self.net.parameters()).dtype  # sevenn's is float32 always
        data["x"] = data["x"].to(dtype)
        data["node_attr"] = data["node_attr"].to(dtype)

    def _look_up(self, module: nn.Module, args: Any) -> None:
        (data,) = args
        assert self._features is not None
        data["x"] = torch.cat([data["x"], self._features[self._ghosts]])

    def _refresh(self, exchange: str, module: nn.Module, args: Any) -> None:
        (data,) = args
        data["x"] = refreshed(data["x"], self._is_occupied, exchange)


def _up_to(net: nn.Module, name: str) -> list[nn.Module]:
    names = [child for child, _ in net.named_children()]
    return [getattr(net, child) for child in names[: names.index(name)]]


def _keep_owned(module: nn.Module, args: Any, data: dict[str, Any]) -> None:
    data["x"] = data["x"][: data["n_owned"]]


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    """See the module's text.

    Raises:
        InputError: the package, the file or the modal is not there.
        UnknownSpecies: it was not trained on one.
    """
    name = argument or IN_THE_WHEEL[0]
    unknown = set(options) - {"modal"}
    if unknown:
        raise InputError(f"sevennet takes modal=... and nothing else, not {', '.join(sorted(unknown))}.")
    checkpoint = needed("sevenn.util", "sevennet").load_checkpoint
    if not is_in_the_wheel(name) and not Path(name).is_file():
        raise InputError(f"sevennet:{name}: there is no such file, and the package has {', '.join(IN_THE_WHEEL)}.")
    try:
        with quiet():
            # Never a deep copy: e3nn traces it anew, and products of its constants get float32's rounding for good.
            net = checkpoint(name).build_model()
    except Exception as error:
        raise InputError(f"sevennet:{name} can't be loaded: {type(error).__name__}: {error}") from error
    modals, modal = list(net.modal_map or ()), options.get("modal")
    if modals and modal not in modals:
        wrong = "needs a modal" if modal is None else f"has no modal {modal}"
        raise InputError(f"sevennet:{name} {wrong}: name one of {', '.join(modals)}, as in sevennet:{name},modal=PBE.")
    if modal is not None and not modals:
        raise InputError(f"sevennet:{name} has no modals: leave modal={modal} out.")
    missing = sorted(set(numbers) - set(net.type_map))
    if missing:
        raise UnknownSpecies(f"sevennet:{name}", missing, symbols_of(sorted(net.type_map)))
    return GraphModel(SevenNet(net, modal), numbers, f"sevennet:{Path(name).name}{f' {modal}' if modal else ''}")


def is_in_the_wheel(name: str) -> bool:
    """Whether the weights come with the package, rather than from a file of the user's."""
    return name.lower() in [known.lower() for known in IN_THE_WHEEL]
