"""Starting velocities: drawn by atom id, the centre of mass at rest, the temperature exact, and what counts as one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms, units
from scipy import stats

from mdrun.errors import InputError
from mdrun.integrate.velocities import degrees_of_freedom, draw_momenta, is_at_rest, remove_momentum
from mdrun.philox import STREAM_VELOCITIES, normals


def mixed(n: int) -> torch.Tensor:
    """(n,) masses of helium and xenon in turn."""
    return torch.tensor([4.0026, 131.293], dtype=torch.float64).repeat(n // 2 + 1)[:n]


def free(n: int) -> torch.Tensor:
    return torch.ones((n, 3), dtype=torch.bool)


def draw(n: int, temperature: float = 300, seed: int = 1, conserves: bool = True, mobile=None) -> torch.Tensor:
    return draw_momenta(mixed(n), free(n) if mobile is None else mobile, temperature, seed, conserves)


def kelvin(momenta: torch.Tensor, n_dof: int) -> float:
    """By ASE's kinetic energy and Boltzmann constant."""
    atoms = Atoms(f"Ar{len(momenta)}", masses=mixed(len(momenta)).numpy(), momenta=momenta.numpy())
    return 2 * atoms.get_kinetic_energy() / (n_dof * units.kB)


@pytest.mark.parametrize("n", [2, 3, 8, 1001])
@pytest.mark.parametrize(("conserves", "lost"), [(True, 3), (False, 0)])
def test_the_temperature_is_exact_and_the_centre_of_mass_at_rest(n, conserves, lost):
    """A momentum that the ensemble keeps at zero takes three degrees of freedom with it; under a heat bath it moves."""
    momenta = draw(n, conserves=conserves)
    assert kelvin(momenta, 3 * n - lost) == pytest.approx(300, rel=1e-13)
    assert momenta.sum(dim=0).abs().max() < 1e-12 * n


def test_velocity_not_momentum_is_shared_out_to_unlike_masses():
    masses, momenta = mixed(8), torch.randn((8, 3), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    taken = (momenta - remove_momentum(momenta, masses)) / masses[:, None]
    torch.testing.assert_close(taken, (momenta.sum(dim=0) / masses.sum()).expand(8, 3), rtol=1e-13, atol=1e-15)


def test_velocities_are_maxwells():
    """Kolmogorov and Smirnov on 30,000 components, each scaled by its own mass; false alarms: 1e-6."""
    n = 10_000
    momenta = draw(n, seed=7)
    scaled = momenta / torch.sqrt(mixed(n) * units.kB * 300)[:, None]
    assert stats.kstest(scaled.flatten().numpy(), "norm").pvalue > 1e-6
    light, heavy = (scaled[k::2].square().mean().item() for k in (0, 1))
    assert (light, heavy) == pytest.approx((1, 1), abs=5 * (2 / 15_000) ** 0.5)  # equipartition; false alarms: 1e-6


def test_each_atom_draws_by_its_id_and_the_seed():
    """What an atom gets of the noise does not depend on who else is there; only the two corrections do."""
    mobile = free(6)
    mobile[0, 0] = False  # one fixed component: no centre of mass to take off
    few, many = draw(6, mobile=mobile), draw(600, mobile=torch.cat([mobile, free(594)]))
    ratio = (few[mobile] / many[:6][mobile]).numpy()
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-13)
    noise = normals(1, STREAM_VELOCITIES, 0, torch.arange(6)) * mixed(6).sqrt()[:, None]
    ratio = (few[mobile] / noise[mobile]).numpy()
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-13)


def test_the_same_seed_draws_the_same_and_its_neighbor_does_not():
    assert torch.equal(draw(50, seed=3), draw(50, seed=3))
    a, b = draw(2000, seed=3), draw(2000, seed=4)
    correlation = np.corrcoef(a.flatten(), b.flatten())[0, 1]
    assert abs(correlation) < 5 / 6000**0.5  # false alarms: 6e-7


def test_the_temperature_only_scales():
    torch.testing.assert_close(draw(20, 400), 2 * draw(20, 100), rtol=1e-13, atol=0)
    assert not draw(20, 0).any()


def test_fixed_components_get_nothing_and_are_not_counted():
    mobile = free(108)
    mobile[:54] = False
    momenta = draw(108, mobile=mobile)
    assert not momenta[~mobile].any()
    assert momenta[mobile].all()
    assert kelvin(momenta, 162) == pytest.approx(300, rel=1e-13)
    mobile = free(10)
    mobile[3, 2] = False
    momenta = draw(10, mobile=mobile)
    assert momenta[3, 2] == 0
    assert kelvin(momenta, 29) == pytest.approx(300, rel=1e-13)


def test_one_atom_alone_keeps_its_velocity():
    momenta = draw(1, conserves=False)
    assert momenta.all()
    assert kelvin(momenta, 3) == pytest.approx(300, rel=1e-13)
    assert kelvin(draw(1, conserves=True), 3) == pytest.approx(300, rel=1e-13)


def test_where_nothing_may_move_a_draw_is_refused():
    with pytest.raises(InputError, match="every atom is fixed"):
        draw(5, mobile=torch.zeros((5, 3), dtype=torch.bool))


@pytest.mark.parametrize(
    ("fixed", "at_zero", "n_dof"),
    [([], True, 27), ([], False, 30), ([0], True, 27), ([0], False, 27), (range(10), True, 0), (range(10), False, 0)],
)
def test_degrees_of_freedom_are_the_mobile_components_less_a_momentum_that_stays_zero(fixed, at_zero, n_dof):
    """Three fewer only where all are free: a fixed atom takes up momentum."""
    mobile = free(10)
    mobile[list(fixed)] = False
    assert degrees_of_freedom(mobile, at_zero) == n_dof


def test_a_lone_atom_at_rest_has_no_degree_of_freedom_left_and_never_a_negative_number():
    assert degrees_of_freedom(free(1), True) == 0
    assert degrees_of_freedom(free(1), False) == 3


def test_at_rest_means_up_to_rounding_of_a_text_file():
    momenta = draw(100)
    assert is_at_rest(momenta)
    assert is_at_rest(torch.zeros((4, 3), dtype=torch.float64))
    assert is_at_rest(torch.from_numpy(np.round(momenta.numpy(), 8)))
    assert not is_at_rest(momenta + torch.tensor([0.0, 0.01, 0.0]))
    assert not is_at_rest(torch.tensor([[1.0, 0.0, 0.0]]))
