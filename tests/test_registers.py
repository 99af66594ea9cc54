"""Values alive in a generated kernel, counted by hand, and what too many of them cost."""

from iomodel import load_profile
from iomodel.duration import expected_by_resource
from iomodel.op import Op
from iomodel.plan import assemble
from iomodel.registers import issue_slowdown, live_values, occupancy, registers, spilled_bytes
from iomodel.tensor import Tensor
from iomodel.tiling import generated_group
from iomodel.traffic import plan_bytes

H200 = load_profile("h200")
N = 1024.0


def tensor(name):
    return Tensor(name, (N,), "bf16")


def unary(source, out):
    return Op("exp", (tensor(source),), (tensor(out),), {"issue": N})


def fan(width):
    """exp of x, `width` times over, and then the sum of all, pair by pair: t1 .. tw wait for the adds."""
    ops = [unary("x", f"t{i}") for i in range(width)]
    total = "t0"
    for i in range(1, width):
        ops.append(Op("add", (tensor(total), tensor(f"t{i}")), (tensor(f"s{i}"),), {"issue": N}))
        total = f"s{i}"
    return assemble("fan", [generated_group("fan", tuple(ops), H200)], (total,)).kernels[0]


def test_a_chain_holds_two_values():
    """Its input and its output: each op's result replaces what it read."""
    ops = tuple(unary(f"t{i}", f"t{i + 1}") for i in range(20))
    kernel = assemble("chain", [generated_group("chain", ops, H200)], ("t20",)).kernels[0]
    assert live_values(kernel) == 2
    assert registers(kernel) == 24  # 16 + 4 x 2
    assert (occupancy(kernel, H200), issue_slowdown(kernel, H200), spilled_bytes(kernel)) == (1.0, 1.0, 0.0)


def test_a_fan_holds_all_its_branches():
    """At the last exp: x, which it reads, and all w results."""
    assert [live_values(fan(w)) for w in (2, 5, 40)] == [3, 6, 41]


def test_few_warps_fit_where_many_values_are_alive():
    """20 values: 96 registers. 65536 / 96 = 682 threads of 2048 an SM; 21.3 warps of the 48 that keep it busy."""
    kernel = fan(19)
    assert registers(kernel) == 96
    assert abs(occupancy(kernel, H200) - 682.67 / 2048) < 1e-4
    assert abs(issue_slowdown(kernel, H200) - 48 / 21.333) < 1e-3


def test_values_past_255_registers_spill_and_take_time():
    """64 values: 272 registers, 17 over: 4.25 values written and read, 4 bytes each: 34 B an element."""
    kernel = fan(63)
    assert spilled_bytes(kernel) == 34 * N
    plan = assemble("fan", [generated_group("fan", kernel.ops, H200)], [kernel.writes[0].name])
    times = expected_by_resource(kernel, plan_bytes(plan, H200)[0], H200)
    assert abs(times["spill"] / (34 * N / (4.8e12 * 0.885)) - 1) < 1e-12
    assert "spill" not in expected_by_resource(fan(3), plan_bytes(plan, H200)[0], H200)
