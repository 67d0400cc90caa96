"""Whole vectors at once: innermost steps that Numba's own loops don't turn into good vector code.

What they store beyond the last number that is wanted, the next call writes over, or nobody reads: targets have room.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from mdrun.vectors import Vector, call_llvm, intrinsic, llvm_item, llvm_vector, shuffled, spread, vector_of

LANES = 16  # numbers of 4 bytes; half as many of 8

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_INTS, _FLOATS = ir.VectorType(_I32, LANES), ir.VectorType(_F32, LANES)


@intrinsic
def copy_lanes(typing_context, source, start, target, place):
    """``target[place : place + 16] = source[start : start + 16]``; both contiguous, of 4 bytes an item."""
    signature = types.void(source, types.int64, target, types.int64)

    def emit(context, builder, signature, arguments):
        lanes = _Lanes(context, builder, signature, arguments)
        lanes.store(lanes.load(0, arguments[1], _INTS), 2, arguments[3])
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def append_near(typing_context, x, y, z, rows, start, xi, yi, zi, reach2, out, place):
    """Store those of ``rows[start : start + 16]`` that are near a point in ``out[place :]``, together; how many.

    The near ones keep their order and are pushed together by one instruction where the processor has it (AVX-512's
    vpcompressd), by what LLVM makes of it elsewhere.

    Args:
        x, y, z: (n,) float32 coordinates of the candidates, contiguous.
        rows: (n,) int32.
        start: the first candidate.
        xi, yi, zi, reach2: float32, the point and the squared reach.
        out: int32, with room for 16 from ``place`` on.
    """
    signature = types.int64(
        x, y, z, rows, types.int64, types.float32, types.float32, types.float32, types.float32, out, types.int64
    )

    def emit(context, builder, signature, arguments):
        lanes = _Lanes(context, builder, signature, arguments)
        start, point, reach2, place = arguments[4], arguments[5:8], arguments[8], arguments[10]
        dx, dy, dz = (builder.fsub(lanes.load(d, start, _FLOATS), spread(builder, point[d], LANES)) for d in range(3))
        r2 = builder.fmul(dx, dx)
        for d in (dy, dz):
            r2 = call_llvm(builder, f"llvm.fma.v{LANES}f32", _FLOATS, d, d, r2)
        near = builder.fcmp_ordered("<", r2, spread(builder, reach2, LANES))
        return lanes.append(lanes.load(3, start, _INTS), near, 9, place)

    return signature, emit


@intrinsic
def append_negative(typing_context, values, source, start, out, place):
    """Store those of ``source[start : start + lanes]`` whose value is not >= 0 in ``out[place :]``, together; how many.

    NaN counts as negative. See ``append_near`` on how it is done.

    Args:
        values: float64 or float32, contiguous; ``lanes`` is 8 for float64, 16 for float32.
        source, out: int32, ``out`` with room for ``lanes`` from ``place`` on.
    """
    signature = types.int64(values, source, types.int64, out, types.int64)

    def emit(context, builder, signature, arguments):
        lanes = _Lanes(context, builder, signature, arguments)
        item = context.get_value_type(signature.args[0].dtype)
        n = LANES if item == _F32 else LANES // 2
        floats, ints = ir.VectorType(item, n), ir.VectorType(_I32, n)
        zeros = ir.Constant(floats, [0.0] * n)
        chosen = builder.fcmp_unordered("<", lanes.load(0, arguments[2], floats), zeros)
        return lanes.append(lanes.load(1, arguments[2], ints), chosen, 3, arguments[4])

    return signature, emit


@intrinsic
def gather_rows(typing_context, source, index, start, a, b, c, d):
    """``a[k], b[k], c[k], d[k] = source[index[k]]`` for the ``lanes`` of k from ``start`` on.

    Loads each row whole and transposes in registers, which is faster than a processor's gathers of single columns.

    Args:
        source: (n, 4) float64 or float32, contiguous.
        index: int32 rows; ``lanes`` is 8 for float64, 16 for float32.
        a, b, c, d: targets of ``source``'s type; None for a column that is not wanted.
    """
    signature = types.void(source, index, types.int64, a, b, c, d)

    def emit(context, builder, signature, arguments):
        lanes = _Lanes(context, builder, signature, arguments)
        item = context.get_value_type(signature.args[0].dtype)
        n = LANES if item == _F32 else LANES // 2
        rows = [lanes.row(0, lanes.item(1, builder.add(arguments[2], _I64(lane))), item) for lane in range(n)]
        for target, column in enumerate(transposed(builder, rows), 3):
            if signature.args[target] is not types.none:
                lanes.store(column, target, arguments[2])
        return context.get_dummy_value()

    return signature, emit


def transposed(builder, rows: list) -> list:
    """Four vectors, one a column, of as many rows of four numbers as a vector has lanes."""
    n = len(rows)
    quads = []
    for k in range(4):  # rows k, k + 4, k + 8, ... side by side
        joined = rows[k::4]
        while len(joined) > 1:
            both = list(range(2 * joined[0].type.count))
            joined = [shuffled(builder, joined[q], joined[q + 1], both) for q in range(0, len(joined), 2)]
        quads.append(joined[0])

    # 4 x 4 transposes within groups of four lanes, all groups at once
    def woven(one, two, first: int):
        """Of each four lanes the two from ``first`` on, from both in turn: 1a 2a 1b 2b."""
        return shuffled(builder, one, two, [q + k + v for q in range(first, n, 4) for k in (0, 1) for v in (0, n)])

    def paired(one, two, first: int):
        """Of each four lanes the two from ``first`` on, one's before two's: 1a 1b 2a 2b."""
        return shuffled(builder, one, two, [q + k + v for q in range(first, n, 4) for v in (0, n) for k in (0, 1)])

    low = [woven(quads[0], quads[1], 0), woven(quads[2], quads[3], 0)]
    high = [woven(quads[0], quads[1], 2), woven(quads[2], quads[3], 2)]
    return [paired(two[0], two[1], first) for two in (low, high) for first in (0, 2)]


@intrinsic
def rows_at(typing_context, source, index, start):
    """The four columns of ``source[index[k]]`` for the lanes of k from ``start`` on, as ``gather_rows`` but as vectors.

    Args:
        source: (n, 4) float64 or float32, contiguous.
        index: int32 rows.
    """
    column = vector_of(source.dtype)
    result = types.UniTuple(column, 4)

    def emit(context, builder, sig, args):
        lanes, item = _Lanes(context, builder, sig, args), llvm_item(column.dtype)
        rows = [lanes.row(0, lanes.item(1, builder.add(args[2], _I64(k))), item) for k in range(column.count)]
        return context.make_tuple(builder, result, transposed(builder, rows))

    return result(source, index, start), emit


@intrinsic
def indices_at(typing_context, index, start, like):
    """``index[k]`` for the lanes of k from ``start`` on that a vector of the array ``like`` has."""
    result = Vector(types.int32, vector_of(like.dtype).count)

    def emit(context, builder, sig, args):
        return _Lanes(context, builder, sig, args).load(0, args[1], llvm_vector(result))

    return result(index, start, like), emit


class _Lanes:
    """LLVM's words for loads, stores and calls on vectors of 16."""

    def __init__(self, context, builder, signature, arguments) -> None:
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments

    def _pointer(self, which: int, index, kind: ir.VectorType):
        array = self.context.make_array(self.signature.args[which])(self.context, self.builder, self.arguments[which])
        return self.builder.bitcast(self.builder.gep(array.data, [index]), kind.as_pointer())

    def load(self, which: int, index, kind: ir.VectorType):
        loaded = self.builder.load(self._pointer(which, index, kind))
        loaded.align = 4  # of an item, not of the vector
        return loaded

    def store(self, lanes, which: int, index) -> None:
        self.builder.store(lanes, self._pointer(which, index, lanes.type)).align = 4

    def item(self, which: int, index):
        return self.builder.sext(self.builder.load(self._pointer(which, index, _I32)), _I64)

    def row(self, which: int, index, item):
        """Four numbers of a row."""
        return self.load(which, self.builder.shl(index, _I64(2)), ir.VectorType(item, 4))

    def append(self, candidates, chosen, which: int, place):
        """Store the chosen ones of int32 lanes side by side; how many."""
        n, anything = candidates.type.count, ir.Constant(candidates.type, ir.Undefined)
        name = f"llvm.experimental.vector.compress.v{n}i32"
        self.store(call_llvm(self.builder, name, candidates.type, candidates, chosen, anything), which, place)
        bits = self.builder.bitcast(chosen, ir.IntType(n))
        return self.builder.zext(call_llvm(self.builder, f"llvm.ctpop.i{n}", bits.type, bits), _I64)
