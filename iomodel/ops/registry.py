"""Every op that a workload file may name. To add one, write a rule in its family and enter it there."""

from __future__ import annotations

from collections.abc import Mapping

from iomodel.ops import elementwise, gradients, indexing, losses, optimizers, products, reductions, shapes
from iomodel.ops.call import Rule

FAMILIES = (elementwise, reductions, products, shapes, indexing, losses, optimizers, gradients)

#: PyTorch name -> rule.
OPS: Mapping[str, Rule] = {name: rule for family in FAMILIES for name, rule in family.RULES.items()}
