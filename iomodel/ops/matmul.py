"""Matrix products, their tilings, and the least traffic any tiling can reach."""

from __future__ import annotations

from iomodel.arrays import Number, sqrt
from iomodel.op import Op
from iomodel.tensor import Tensor


def matmul(a: Tensor, b: Tensor, out: Tensor, compute: str, inner: Number) -> Op:
    """out = a @ b: 2 x elements(out) x inner FLOPs on the matrix units of dtype `compute`.

    >>> t = lambda n, *s: Tensor(n, s, "bf16")
    >>> matmul(t("a", 4.0, 2.0), t("b", 2.0, 8.0), t("c", 4.0, 8.0), "bf16", 2.0).work
    {'matmul:bf16': 128.0}
    """
    return Op(
        name="matmul",
        reads=(a, b),
        writes=(out,),
        work={f"matmul:{compute}": 2 * out.elements * inner},
        kind="matmul",
    )


def io_lower_bound(m: Number, n: Number, k: Number, fast_elements: Number) -> Number:
    """Elements that any schedule of C[m,n] = A[m,k] B[k,n] must move: 2 m n k / sqrt(M) to leading order.

    M is the fast memory in elements. Range: m, n, k well above sqrt(M); below that the compulsory
    count m k + k n + m n is the larger bound.

    Source: Kwasniewski et al., Red-Blue Pebbling Revisited, SC 2019 (2mnk/sqrt(M) + mn, tight);
    Hong and Kung, STOC 1981 (the order).

    >>> io_lower_bound(1024.0, 1024.0, 1024.0, 16384.0)
    16777216.0
    """
    return 2 * m * n * k / sqrt(fast_elements)
