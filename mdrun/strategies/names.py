"""What ``--strategy`` takes. Imports nothing: options are read before torch is."""

AUTO, HALO, PARTITION, REPLICATE = "auto", "halo", "partition", "replicate"
STRATEGIES = (AUTO, HALO, PARTITION, REPLICATE)
