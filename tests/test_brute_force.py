"""Bytes against a machine that walks the loops: every op, tiling and variant, on small shapes, exactly.

`Machine` knows nothing of formulas. A loop nest says which element it loads and stores in which kernel;
the machine counts how often (what is asked of L2) and collects which (the compulsory bytes: each kernel
reads an element it needs and did not make once, and writes one that a later kernel or the caller needs
once). The loops below are written from the algorithms, not from iomodel: the tiled matrix product from
any textbook, attention from Dao et al. 2022, algorithm 1 (fa1) and appendix B.2 (backward), and from
Dao 2024, algorithms 1 (fa2) and 2 (backward by key blocks).
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import iomodel
from iomodel import attention, chain, decode, gemm

#: Bytes an element.
SIZES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "nvfp4": 0.5625, "bool": 1.0}
H100 = iomodel.load_profile("h100-sxm")


class Machine:
    """Counts what kernels ask for. `sizes` gives the bytes of an element by tensor (`*` for the rest)."""

    def __init__(self, keep, **sizes):
        self.keep, self.sizes, self.kernels = set(keep), sizes, []
        self.spare = lambda name, index: False  # loaded with its block though nobody needs it

    def launch(self, *on_chip):
        """Begin a kernel; it may keep these tensors on chip between storing and loading them."""
        self.loads, self.stores, self.on_chip = Counter(), Counter(), set(on_chip)
        self.kernels.append((self.loads, self.stores))

    def load(self, name, *index):
        if name not in self.on_chip:
            self.loads[name, index] += 1

    def store(self, name, *index):
        self.stores[name, index] += 1

    def size(self, name):
        return self.sizes.get(name, self.sizes.get("_", 2.0))

    def finish(self):
        """(asked of L2 by tensor for each kernel, compulsory reads, compulsory writes)."""
        asked, reads, writes, needed = [], 0.0, 0.0, set(self.keep)
        for loads, stores in reversed(self.kernels):
            by_tensor = Counter()
            made = set(stores)
            for (name, _), times in loads.items():
                by_tensor[name] += times * self.size(name)
            for (name, _), times in stores.items():
                if name in needed:
                    by_tensor[name] += times * self.size(name)
            reads += sum(self.size(name) for name, i in set(loads) - made if not self.spare(name, i))
            writes += sum(self.size(name) for name, _ in made if name in needed)
            needed |= {name for name, _ in loads}
            asked.append(dict(by_tensor))
        return asked[::-1], reads, writes


def same(result, machine):
    """The model's bytes are the machine's: compulsory, and what is asked of L2 tensor by tensor and in all."""
    asked, reads, writes = machine.finish()
    moved = result.estimate.bytes
    assert (moved.compulsory_read, moved.compulsory_write) == (reads, writes)
    assert moved.compulsory == reads + writes
    found = []
    for one in result.estimate.kernels:
        k = one.kernel
        found.append({t.name: float(k.reread(t).asked) for t in (*k.reads, *k.writes) if k.reread(t).asked})
    assert found == asked
    assert moved.l2 == sum(sum(one.values()) for one in asked)


# --- chains ------------------------------------------------------------------------------------------

UNARY = ["exp", "scale", "relu", "gelu", "gelu-tanh", "silu", "tanh", "sigmoid", "dropout"]
BINARY = ["add", "residual", "mul", "swiglu"]  # read a second tensor of the same shape
CASTS = ["cast:fp32", "cast:bf16", "cast:fp8", "cast:fp4"]
NORMS = {"layer-norm": ("mean", "rstd"), "rms-norm": ("rstd",), "softmax": ()}
OPS = st.lists(st.sampled_from(["op", *UNARY, *BINARY, *CASTS, *NORMS, "bias"]), min_size=1, max_size=6)


def walk_chain(ops, shape, dtype, fused, train, keep, row_passes=lambda op, row_bytes: 1):
    """x -> t1 -> t2 ...: a kernel an op, or all in one; `row_passes` says how often rows are swept."""
    rows, columns = shape
    types = {"x": dtype}
    for i, op in enumerate(ops):
        types[f"t{i + 1}"] = op[5:] if op.startswith("cast:") else types["x" if i == 0 else f"t{i}"]
    kept = {f"t{i + 1}" for i, op in enumerate(ops) if op in keep} | {f"t{len(ops)}"}
    machine = Machine(kept, **{name: SIZES[kind] for name, kind in types.items()})
    made = [f"t{i + 1}" for i in range(len(ops))]
    if fused:
        machine.launch(*made)
    for i, op in enumerate(ops):
        source, out = ("x", *made)[i], made[i]
        if not fused:
            machine.launch()
        again = row_passes(op, columns * SIZES[types[source]])
        for r in range(rows):
            for c in range(columns):
                for _ in range(again):
                    machine.load(source, r, c)
                if op in BINARY:
                    machine.sizes[f"{op}{i + 1}"] = SIZES[types[source]]
                    machine.load(f"{op}{i + 1}", r, c)
                if op == "dropout" and train:
                    machine.sizes[f"mask{i + 1}"] = 1.0
                    machine.keep.add(f"mask{i + 1}")
                    machine.store(f"mask{i + 1}", r, c)
                machine.store(out, r, c)
            for statistic in NORMS.get(op, ()) if train else ():
                machine.sizes[f"{out}.{statistic}"] = 4.0
                machine.keep.add(f"{out}.{statistic}")
                machine.store(f"{out}.{statistic}", r)
        if op == "bias":  # one row that all rows share: it comes once and stays in L1
            machine.sizes[f"bias{i + 1}"] = SIZES[types[source]]
            for c in range(columns):
                machine.load(f"bias{i + 1}", c)
    return machine


def library_passes(op, row_bytes):
    """Library kernels: norms sweep a row for its statistics and again to apply them; softmax holds a row of
    up to 24 KiB in registers, and sweeps a longer one for the maximum, the sum and the result."""
    if op in ("layer-norm", "rms-norm"):
        return 2
    return 3 if op == "softmax" and row_bytes > 24 * 1024 else 1


@given(
    ops=OPS,
    shape=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    dtype=st.sampled_from(["bf16", "fp32", "fp16", "fp8"]),
    train=st.booleans(),
    data=st.data(),
)
def test_chain(ops, shape, dtype, train, data):
    keep = sorted(data.draw(st.sets(st.sampled_from(ops))))
    result = chain(ops, shape, train=train, keep=keep, dtype=dtype, gpu=H100)
    same(result["unfused"], walk_chain(ops, shape, dtype, False, train, keep, library_passes))
    same(result["fused"], walk_chain(ops, shape, dtype, True, train, keep))


@pytest.mark.parametrize(
    ("op", "columns", "library", "generated"),
    # Rows of bf16. Registers of a library softmax: 24 KiB = 12288 elements. A generated kernel's row on chip:
    # 48 KiB = 24576 elements, above it reads the row twice.
    [
        ("softmax", 12288, 1, 1),
        ("softmax", 12289, 3, 1),
        ("softmax", 24576, 3, 1),
        ("softmax", 24577, 3, 2),
        ("layer-norm", 24576, 2, 1),
        ("rms-norm", 24577, 2, 2),
        ("rms-norm", 100_000, 2, 2),
    ],
)
def test_long_rows_are_swept_again(op, columns, library, generated):
    result = chain([op], (2, columns), gpu=H100)
    same(result["unfused"], walk_chain([op], (2, columns), "bf16", False, False, [], lambda *_: library))
    same(result["fused"], walk_chain([op], (2, columns), "bf16", True, False, [], lambda *_: generated))


def test_a_reduction_makes_all_outside_tensors_of_its_kernel_pass_again():
    """scale, rms-norm, swiglu over rows of 30000 bf16: the fused kernel sweeps x and the gate twice each."""
    ops = ["scale", "rms-norm", "swiglu"]
    machine = walk_chain(ops, (1, 30000), "bf16", True, False, [])
    for c in range(30000):
        machine.load("x", 0, c)
        machine.load("swiglu3", 0, c)
    # x was loaded once by the walk and once here; the gate likewise
    same(chain(ops, (1, 30000), gpu=H100)["fused"], machine)


# --- matrix products -----------------------------------------------------------------------------------


def tiled(machine, rows, columns, inner, a, b, out, tile_m, tile_n):
    """out[i, j] = sum over l of a[i, l] b[l, j]: each tile of `out` loads its rows of A and columns of B whole.
    `a`, `b`, `out` map indices to (tensor, *index)."""
    for i in range(0, rows, tile_m):
        for j in range(0, columns, tile_n):
            tile_rows, tile_columns = range(i, min(i + tile_m, rows)), range(j, min(j + tile_n, columns))
            for step in range(inner):
                for r in tile_rows:
                    machine.load(*a(r, step))
                for c in tile_columns:
                    machine.load(*b(step, c))
            for r in tile_rows:
                for c in tile_columns:
                    machine.store(*out(r, c))


def tiles(tile_m, tile_n):
    """An H100 whose library cuts tiles of this size, so that small products have several."""
    profile = H100.override("sustained.matmul.tile_m", float(tile_m))
    return profile.override("sustained.matmul.tile_n", float(tile_n))


EPILOGUES = st.lists(st.sampled_from([*UNARY[1:], "bias", "residual", "add", "mul"]), max_size=4)
small = st.integers(1, 9)


@given(
    m=small,
    n=small,
    k=st.integers(1, 5),
    batch=st.integers(1, 3),
    tile_m=st.integers(1, 6),
    tile_n=st.integers(1, 6),
    epilogue=EPILOGUES,
    dtype=st.sampled_from(["bf16", "fp32", "fp8", "nvfp4"]),
    out_dtype=st.sampled_from([None, "fp32", "fp8"]),
)
def test_gemm(m, n, k, batch, tile_m, tile_n, epilogue, dtype, out_dtype):
    profile = tiles(tile_m, tile_n)
    if dtype == "nvfp4":
        profile = profile.override("compute.matmul:fp4", 4e15)
    result = gemm(m, n, k, batch, ",".join(epilogue), out_dtype, dtype=dtype, gpu=profile)
    wide = out_dtype or ("bf16" if SIZES[dtype] < 2 else dtype)
    outs = ["c", *(f"c{i}" for i in range(1, len(epilogue) + 1))]
    for variant, fused in (("unfused", False), ("fused", True)):
        machine = Machine({outs[-1]}, a=SIZES[dtype], b=SIZES[dtype], _=SIZES[wide])
        machine.launch(*(outs if fused else ()))
        for z in range(batch):
            tiled(
                machine,
                m,
                n,
                k,
                lambda r, step, z=z: ("a", z, r, step),
                lambda step, c, z=z: ("b", z, step, c),
                lambda r, c, z=z: ("c", z, r, c),
                tile_m,
                tile_n,
            )
        for i, name in enumerate(epilogue, 1):
            if not fused:
                machine.launch()
            for z in range(batch):
                for r in range(m):
                    for c in range(n):
                        machine.load(outs[i - 1], z, r, c)
                        if name in ("residual", "add", "mul"):
                            machine.load(f"{name}{i}", z, r, c)
                        machine.store(outs[i], z, r, c)
            if name == "bias":
                for c in range(n):
                    machine.load(f"bias{i}", c)
        same(result[variant], machine)


# --- decode ------------------------------------------------------------------------------------------


def walk_decode(kv_len, batch, heads, kv_heads, d, splits, rows, dtype, kv_dtype, split):
    """A thread block a sequence, K/V head, tile of up to `rows` query heads, and part of the cache."""
    sizes = {"k": SIZES[kv_dtype], "v": SIZES[kv_dtype], "partial": 4.0, "lse": 4.0, "_": SIZES[dtype]}
    machine = Machine({"o"}, **sizes)
    machine.launch()
    group = heads // kv_heads
    parts = min(splits, kv_len) if split else 1
    for b in range(batch):
        for g in range(kv_heads):
            mine = range(g * group, (g + 1) * group)
            for first in range(0, group, rows):
                tile = mine[first : first + rows]
                for part in range(parts):
                    for h in tile:
                        for e in range(d):
                            machine.load("q", b, h, e)
                    for t in range(part * kv_len // parts, (part + 1) * kv_len // parts):
                        for e in range(d):
                            machine.load("k", b, g, t, e)
                            machine.load("v", b, g, t, e)
                    for h in tile:
                        for e in range(d):
                            machine.store("partial" if split else "o", *((part,) if split else ()), b, h, e)
                        if split:
                            machine.store("lse", part, b, h)
    if split:
        machine.launch()
        for b in range(batch):
            for h in range(heads):
                for part in range(parts):
                    machine.load("lse", part, b, h)
                    for e in range(d):
                        machine.load("partial", part, b, h, e)
                for e in range(d):
                    machine.store("o", b, h, e)
    return machine


DECODES = {
    "kv_len": st.integers(1, 12),
    "batch": st.integers(1, 3),
    "kv_heads": st.integers(1, 3),
    "group": st.integers(1, 4),
    "d": st.integers(1, 4),
    "splits": st.integers(1, 14),
    "dtype": st.sampled_from(["bf16", "fp32"]),
    "kv_dtype": st.sampled_from(["bf16", "fp8", "fp4"]),
}


def decoded(kv_len, batch, kv_heads, group, d, splits, dtype, kv_dtype, rows=64):
    profile = H100.override("sustained.decode.rows", float(rows))
    result = decode(kv_len, batch, kv_heads * group, kv_heads, d, kv_dtype, splits, dtype=dtype, gpu=profile)
    shape = (kv_len, batch, kv_heads * group, kv_heads, d, splits, rows, dtype, kv_dtype)
    return [(result[name], walk_decode(*shape, name == "split-k")) for name in ("no-split", "split-k")]


@given(**DECODES)
def test_decode(**case):
    """K and V come once whatever the group; split-K's partial results are written and read in fp32."""
    (whole, walk_whole), (parts, walk_parts) = decoded(**case)
    same(whole, walk_whole)
    same(parts, walk_parts)


@given(**DECODES)
def test_decode_asks_for_the_query_in_every_part(**case):
    same(*decoded(**case)[1])


@given(**{**DECODES, "group": st.integers(3, 8)}, rows=st.integers(1, 3))
def test_decode_with_more_query_heads_than_a_tile_holds(rows, **case):
    """A group of more heads than the tile's rows is several thread blocks, and each streams the cache."""
    same(*decoded(**case, rows=rows)[0])


@pytest.mark.parametrize(
    ("kv_len", "batch", "kv_heads", "parts"),
    [
        (8192, 1, 8, 16),  # 8 pieces on 132 SMs: 16 parts each make 128 blocks, 17 would make 136
        (8192, 64, 8, 1),  # 512 pieces are enough
        (8192, 1, 132, 1),
        (320, 1, 1, 5),  # 5 steps of 64 tokens: no more parts than steps
        (256, 1, 1, 1),  # 4 steps or fewer are not split
    ],
)
def test_number_of_parts(kv_len, batch, kv_heads, parts):
    """As many parts as fill an H100's SMs; partial outputs are fp32, 128 elements a part, sequence and head."""
    result = decode(kv_len, batch, kv_heads, kv_heads, gpu=H100)["split-k"]
    (partial,) = [t.bytes for t in result.estimate.kernels[0].kernel.writes if t.name == "partial"]
    assert partial == parts * batch * kv_heads * 128 * 4


# --- attention -----------------------------------------------------------------------------------------


class Problem:
    """Small attention: who sees whom, by the definition of the masks."""

    def __init__(self, q_len, kv_len, batch, kv_heads, group, d, causal, window, dtype, mask, dropout, backward):
        self.q_len, self.kv_len, self.d, self.dtype = q_len, kv_len, d, dtype
        self.causal, self.window = causal, window
        self.mask, self.dropout, self.backward = mask, dropout, backward
        self.batch, self.kv_heads, self.group = batch, kv_heads, group
        self.heads = kv_heads * group
        self.seen = [{k for k in range(kv_len) if self.sees(q, k)} for q in range(q_len)]
        self.touched = sorted(set().union(*self.seen))

    def sees(self, q, k):
        place = q + self.kv_len - self.q_len
        return not (self.causal and k > place) and (self.window is None or abs(place - k) < self.window)

    def all_heads(self):
        return [(b, h, h // self.group) for b in range(self.batch) for h in range(self.heads)]

    def key_blocks(self, rows, block_kv):
        """Key blocks from the first to the last key that any of these queries sees."""
        seen = set().union(*(self.seen[q] for q in rows))
        return range(min(seen) // block_kv, max(seen) // block_kv + 1) if seen else range(0)

    def keys(self, j, block_kv):
        """The keys of a block: all that there are, also those at its edge that no query sees."""
        return range(j * block_kv, min((j + 1) * block_kv, self.kv_len))

    def query_blocks(self, block_q):
        return [range(i, min(i + block_q, self.q_len)) for i in range(0, self.q_len, block_q)]

    def machine(self):
        keep = {"o", "dq", "dk", "dv"} if self.backward else {"o"}
        wide = dict.fromkeys(("lse", "delta", "dq_zeros", "dq_sum"), 4.0) | {"l_m": 8.0, "dropout_mask": 1.0}
        saved = {"lse", "dropout_mask"} if self.backward else set()
        machine = Machine(keep | saved | {"l_m"}, **wide, _=SIZES[self.dtype])
        touched = set(self.touched)
        machine.spare = lambda name, index: name in ("k", "v") and index[2] not in touched
        return machine

    def run(self, profile, **blocks):
        return attention(
            seq=self.q_len,
            kv_seq=self.kv_len,
            batch=self.batch,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.d,
            causal=self.causal,
            window=self.window,
            mask=self.mask,
            dropout=0.1 if self.dropout else 0.0,
            backward=self.backward,
            dtype=self.dtype,
            gpu=profile,
            **blocks,
        )


def walk_standard(p, tile_m, tile_n):
    """A kernel an op over the full square of queries x touched keys; nothing is skipped under a mask."""
    m = p.machine()
    d, keys = p.d, p.touched
    square = [(b, h, q, k) for b, h, _ in p.all_heads() for q in range(p.q_len) for k in keys]

    def product(per_head, rows, columns, inner, a, b, out):
        m.launch()
        for bb, h, g in per_head:
            maps = [partial(f, bb, h, g) for f in (a, b, out)]
            tiled(m, rows, columns, inner, *maps, tile_m, tile_n)

    def elementwise(out, *reads):
        m.launch()
        for index in square:
            for name in reads:
                if name == "mask":
                    m.load(name, *index[2:])
                else:
                    m.load(name, *index)
            for name in out if isinstance(out, tuple) else (out,):
                m.store(name, *index)

    per_head = p.all_heads()
    product(
        per_head,
        p.q_len,
        len(keys),
        d,
        lambda b, h, g, r, s: ("q", b, h, r, s),
        lambda b, h, g, s, c: ("k", b, g, keys[c], s),
        lambda b, h, g, r, c: ("s", b, h, r, keys[c]),
    )
    scores, probabilities = "s", "p"
    if p.mask:
        elementwise("s_masked", "s", "mask")
        scores = "s_masked"
    elementwise("p", scores)
    if p.dropout:
        elementwise(("p_dropped", "dropout_mask") if p.backward else "p_dropped", "p")
        probabilities = "p_dropped"
    product(
        per_head,
        p.q_len,
        d,
        len(keys),
        lambda b, h, g, r, s: (probabilities, b, h, r, keys[s]),
        lambda b, h, g, s, c: ("v", b, g, keys[s], c),
        lambda b, h, g, r, c: ("o", b, h, r, c),
    )
    if not p.backward:
        return m
    # The heads of a group add up in dV and dK: one product with (head of the group, query) contracted.
    per_kv = [(b, 0, g) for b in range(p.batch) for g in range(p.kv_heads)]
    inner = p.group * p.q_len

    def head(g, s):
        return g * p.group + s // p.q_len, s % p.q_len

    product(
        per_kv,
        len(keys),
        d,
        inner,
        lambda b, _, g, r, s: (probabilities, b, *head(g, s), keys[r]),
        lambda b, _, g, s, c: ("do", b, *head(g, s), c),
        lambda b, _, g, r, c: ("dv", b, g, keys[r], c),
    )
    product(
        per_head,
        p.q_len,
        len(keys),
        d,
        lambda b, h, g, r, s: ("do", b, h, r, s),
        lambda b, h, g, s, c: ("v", b, g, keys[c], s),
        lambda b, h, g, r, c: ("dp", b, h, r, keys[c]),
    )
    gradient = "dp"
    if p.dropout:
        elementwise("dp_undropped", "dp", "dropout_mask")
        gradient = "dp_undropped"
    elementwise("ds", "p", gradient)
    product(
        per_head,
        p.q_len,
        d,
        len(keys),
        lambda b, h, g, r, s: ("ds", b, h, r, keys[s]),
        lambda b, h, g, s, c: ("k", b, g, keys[s], c),
        lambda b, h, g, r, c: ("dq", b, h, r, c),
    )
    product(
        per_kv,
        len(keys),
        d,
        inner,
        lambda b, _, g, r, s: ("ds", b, *head(g, s), keys[r]),
        lambda b, _, g, s, c: ("q", b, *head(g, s), c),
        lambda b, _, g, r, c: ("dk", b, g, keys[r], c),
    )
    return m


def row(m, verb, name, p, *index):
    """Load or store the d elements of one row."""
    for e in range(p.d):
        getattr(m, verb)(name, *index, e)


def walk_fa2(p, block_q, block_kv):
    """Dao 2024, algorithm 1: a thread block a query block streams the keys that its rows see."""
    m = p.machine()
    m.launch()
    for b, h, g in p.all_heads():
        for rows in p.query_blocks(block_q):
            for q in rows:
                row(m, "load", "q", p, b, h, q)
            for j in p.key_blocks(rows, block_kv):
                for k in p.keys(j, block_kv):
                    row(m, "load", "k", p, b, g, k)
                    row(m, "load", "v", p, b, g, k)
                    if p.mask:
                        for q in rows:
                            m.load("mask", q, k)
            for q in rows:
                row(m, "store", "o", p, b, h, q)
                if p.backward:
                    m.store("lse", b, h, q)
    if p.backward:
        walk_flash_backward(m, p, block_q, block_kv)
    return m


def walk_fa1(p, block_q, block_kv):
    """Dao et al. 2022, algorithm 1: outer loop over key blocks; Q, O, l and m of every query block that sees
    one of its keys pass through, and O, l and m go back."""
    m = p.machine()
    m.launch()
    for b, h, g in p.all_heads():
        for j in range(-(-p.kv_len // block_kv)):
            visitors = [rows for rows in p.query_blocks(block_q) if j in p.key_blocks(rows, block_kv)]
            if visitors:
                for k in p.keys(j, block_kv):
                    row(m, "load", "k", p, b, g, k)
                    row(m, "load", "v", p, b, g, k)
            for rows in visitors:
                for q in rows:
                    row(m, "load", "q", p, b, h, q)
                    row(m, "load", "o", p, b, h, q)
                    m.load("l_m", b, h, q)
                    if p.mask:
                        for k in p.keys(j, block_kv):
                            m.load("mask", q, k)
                    row(m, "store", "o", p, b, h, q)
                    m.store("l_m", b, h, q)
        for rows in p.query_blocks(block_q):
            for q in rows if not p.key_blocks(rows, block_kv) else ():  # they see nothing: zeros leave once
                row(m, "load", "q", p, b, h, q)
                row(m, "store", "o", p, b, h, q)
                m.store("l_m", b, h, q)
        if p.backward:
            for q in range(p.q_len):
                m.store("lse", b, h, q)
    if p.backward:
        walk_flash_backward(m, p, block_q, block_kv)
    return m


def walk_flash_backward(m, p, block_q, block_kv):
    """Dao 2024, algorithm 2: zeros for dQ's fp32 sums, row sums of dO x O, then a thread block a key block
    that Q, dO, the statistics and the running dQ pass through; then dQ to its dtype."""
    every = [(b, h, q) for b, h, _ in p.all_heads() for q in range(p.q_len)]
    m.launch()
    for index in every:
        row(m, "store", "dq_zeros", p, *index)
    m.launch()
    for index in every:
        row(m, "load", "o", p, *index)
        row(m, "load", "do", p, *index)
        m.store("delta", *index)
    m.launch()
    for b, h, g in p.all_heads():
        for j in range(-(-p.kv_len // block_kv)):
            visitors = [rows for rows in p.query_blocks(block_q) if j in p.key_blocks(rows, block_kv)]
            if visitors:
                for k in p.keys(j, block_kv):
                    row(m, "load", "k", p, b, g, k)
                    row(m, "load", "v", p, b, g, k)
            for rows in visitors:
                for q in rows:
                    row(m, "load", "q", p, b, h, q)
                    row(m, "load", "do", p, b, h, q)
                    m.load("lse", b, h, q)
                    m.load("delta", b, h, q)
                    row(m, "load", "dq_zeros", p, b, h, q)
                    row(m, "store", "dq_sum", p, b, h, q)
    for b in range(p.batch):  # dK and dV of a K/V head leave once, when its query heads have passed
        for g in range(p.kv_heads):
            for k in p.touched:
                row(m, "store", "dk", p, b, g, k)
                row(m, "store", "dv", p, b, g, k)
    m.launch()
    for index in every:
        row(m, "load", "dq_sum", p, *index)
        row(m, "store", "dq", p, *index)


def walk_bound(p):
    """Everything once: the inputs that some query needs, and the outputs."""
    m = p.machine()
    kv = [(b, g, k) for b in range(p.batch) for g in range(p.kv_heads) for k in p.touched]
    queries = [(b, h, q) for b, h, _ in p.all_heads() for q in range(p.q_len)]
    m.launch()
    for index in kv:
        row(m, "load", "k", p, *index)
        row(m, "load", "v", p, *index)
    for index in queries:
        row(m, "load", "q", p, *index)
        row(m, "store", "o", p, *index)
        if p.backward:
            m.store("lse", *index)
    if p.mask:
        for q in range(p.q_len):
            for k in p.seen[q]:
                m.load("mask", q, k)
    if p.backward:
        m.launch()
        for index in kv:
            for name in ("k", "v"):
                row(m, "load", name, p, *index)
                row(m, "store", f"d{name}", p, *index)
        for index in queries:
            for name in ("q", "o", "do"):
                row(m, "load", name, p, *index)
            m.load("lse", *index)
            row(m, "store", "dq", p, *index)
    return m


def problems(**fixed):
    drawn = {
        "q_len": st.integers(1, 9),
        "kv_len": st.integers(1, 10),
        "batch": st.integers(1, 2),
        "kv_heads": st.integers(1, 2),
        "group": st.integers(1, 3),
        "d": st.integers(1, 3),
        "causal": st.booleans(),
        "window": st.one_of(st.none(), st.integers(1, 11)),
        "dtype": st.sampled_from(["bf16", "fp32"]),
        "mask": st.booleans(),
        "dropout": st.booleans(),
        "backward": st.booleans(),
    }
    return st.builds(Problem, **(drawn | {name: st.just(value) for name, value in fixed.items()}))


block = st.integers(1, 7)


@given(problems(), block, block)
def test_standard(p, tile_m, tile_n):
    same(p.run(tiles(tile_m, tile_n))["standard"], walk_standard(p, tile_m, tile_n))


def plain(p):
    """Whether every query sees some key, and a mask that is read is read whole."""
    return all(p.seen) and not (p.mask and (p.causal or p.window))


@given(problems(), block, block)
def test_fa1(p, block_q, block_kv):
    assume(plain(p))
    same(p.run(H100, block_q=block_q, block_kv=block_kv)["fa1"], walk_fa1(p, block_q, block_kv))


@given(problems(), block, block)
def test_fa2_and_fa3(p, block_q, block_kv):
    assume(plain(p))
    result = p.run(H100, block_q=block_q, block_kv=block_kv)
    same(result["fa2"], walk_fa2(p, block_q, block_kv))
    same(result["fa3"], walk_fa2(p, block_q, block_kv))


@given(problems())
def test_io_lower_bound(p):
    same(p.run(H100)["io-lower-bound"], walk_bound(p))


@given(problems(causal=True, backward=False, mask=False), block, block)
def test_fa2_with_queries_that_see_nothing(p, block_q, block_kv):
    """More queries than keys under a causal mask: the first ones load no key, and their zeros are written."""
    assume(not all(p.seen))
    same(p.run(H100, block_q=block_q, block_kv=block_kv)["fa2"], walk_fa2(p, block_q, block_kv))


# Corners that the general draws above seldom reach, each with draws of its own.


@given(problems(causal=True, window=None, backward=False, mask=False), block, block)
def test_fa1_with_queries_that_see_nothing(p, block_q, block_kv):
    assume(not all(p.seen))
    same(p.run(H100, block_q=block_q, block_kv=block_kv)["fa1"], walk_fa1(p, block_q, block_kv))


@given(problems(group=3, mask=False), block, block)
def test_standard_with_grouped_heads(p, tile_m, tile_n):
    """A library's product for each of a group's heads asks for the panels of K (and V) that they share."""
    same(p.run(tiles(tile_m, tile_n))["standard"], walk_standard(p, tile_m, tile_n))


@given(problems(group=1, mask=True), block, block)
def test_standard_asks_for_the_mask_once_a_head(p, tile_m, tile_n):
    assume(p.batch * p.heads > 1)
    same(p.run(tiles(tile_m, tile_n))["standard"], walk_standard(p, tile_m, tile_n))


@given(problems(window=2, mask=False), block, block)
def test_fa1_loads_whole_key_blocks(p, block_q, block_kv):
    assume(plain(p))
    same(p.run(H100, block_q=block_q, block_kv=block_kv)["fa1"], walk_fa1(p, block_q, block_kv))


@given(problems(mask=True, causal=False, window=None), block, block)
def test_fa1_asks_for_the_mask_once_a_head(p, block_q, block_kv):
    same(p.run(H100, block_q=block_q, block_kv=block_kv)["fa1"], walk_fa1(p, block_q, block_kv))


@given(problems(mask=True, causal=False, window=None), block, block)
def test_fa2_asks_for_the_mask_that_there_is(p, block_q, block_kv):
    same(p.run(H100, block_q=block_q, block_kv=block_kv)["fa2"], walk_fa2(p, block_q, block_kv))


@given(problems(mask=True, causal=True, window=None), block, block)
def test_fa2_reads_the_mask_of_visited_blocks_only(p, block_q, block_kv):
    assume(all(p.seen))
    result, machine = p.run(H100, block_q=block_q, block_kv=block_kv)["fa2"], walk_fa2(p, block_q, block_kv)
    assert result.estimate.bytes.compulsory_read == machine.finish()[1]
