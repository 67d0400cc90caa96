"""Vectors out of arrays and back, for what a loop keeps of a row of neighbours: arrays are contiguous, of numbers of
any type, and have room for the whole vector."""

from __future__ import annotations

from numba import types

from mdrun.vectors import intrinsic, llvm_vector, vector_of


def _pointer(context, builder, kind, array, place):
    numbers = context.make_array(kind)(context, builder, array)
    vector = llvm_vector(vector_of(kind.dtype))
    return builder.bitcast(builder.gep(numbers.data, [place]), vector.as_pointer())


@intrinsic
def load(typing_context, array, place):
    """The vector ``array[place : place + n_lanes(array)]``."""

    def emit(context, builder, sig, args):
        loaded = builder.load(_pointer(context, builder, array, *args))
        loaded.align = array.dtype.bitwidth // 8  # of an item, not of the vector
        return loaded

    return vector_of(array.dtype)(array, types.int64), emit


@intrinsic
def store(typing_context, vector, array, place):
    """``array[place : place + n_lanes(array)] = vector``."""

    def emit(context, builder, sig, args):
        value, *where = args
        builder.store(value, _pointer(context, builder, array, *where)).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(vector, array, types.int64), emit
