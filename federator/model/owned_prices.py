"""What an hour of an owned GPU is taken to cost where its site declares no price, so that no place counts as free.

A place that counted as free drew work from everywhere: a job waited beside idle GPUs for it. The figure only weighs one place against another
in plans; nobody is billed by it.
"""

LIST_USD_GPU_H = {
    "T4": 0.526,
    "L4": 0.8048,
    "A10G": 1.006,
    "L40S": 1.861,
    "V100": 3.06,
    "A100": 2.745,
    "H100": 6.88,
    "MI300X": 6.0,
}
"""List prices on demand per GPU and hour, in USD: AWS, us-east-1, as published 2026-07-20 (g4dn.xlarge, g6.xlarge, g5.xlarge, g6e.xlarge, p3.8xlarge, p4d.24xlarge, p5.48xlarge);
of AMD's MI300X Azure, eastus2, as published 2026-06-18 (ND96isr_MI300X_v5)."""
OTHER_USD_GPU_H = 1.861
"""A model that is not among them counts as the median of those of AWS."""
OWNED_SHARE = 0.125
"""What an owned hour costs at the margin (power, wear), as a part of the list price. With the whole of it renting would seem to cost nothing beyond home. It is our
assumption: of sites whose operators told their marginal prices, H100, A100, L40S and L4 cost 9 to 13 % of it."""


def undeclared_usd_gpu_h(model: str) -> float:
    """The price of an hour of one owned GPU of that model whose site declares none, in USD; 0 for hosts without GPUs."""
    if not model:
        return 0.0
    return round(OWNED_SHARE * LIST_USD_GPU_H.get(model.upper(), OTHER_USD_GPU_H), 4)
