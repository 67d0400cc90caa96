"""One short file for each package of machine-learned potentials, imported only where its model is named."""
