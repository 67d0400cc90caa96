"""Vectors as values of Numba code: ``x * x + 1.0`` on sixteen numbers at once, with no loop left to vectorise.

A value of the type ``Vector(dtype, count)`` is one LLVM vector of 512 bits, or the truths of a comparison of two. The
operators take two of them, or one and a number, which stands for as many of it and never changes their precision. What
the processor can't do in one instruction LLVM does in several.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import lower_builtin, register_model

intrinsic: Any = numba_intrinsic  # its callers pass no typing context, which a type checker can't know

BITS = 512
# Sums may be reordered into vectors, but infinities and NaN keep their meaning: they must reach the forces.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
_I32 = ir.IntType(32)


class Vector(types.Type):
    """``count`` numbers of ``dtype`` (float64, float32, int32), or truths of ``boolean``."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Vector({dtype}, {count})")


def vector_of(dtype: Any) -> Vector:
    """A whole vector of numbers."""
    return Vector(dtype, BITS // dtype.bitwidth)


def llvm_item(dtype: Any) -> ir.Type:
    if isinstance(dtype, types.Float):
        return ir.FloatType() if dtype == types.float32 else ir.DoubleType()
    return ir.IntType(1 if dtype == types.boolean else dtype.bitwidth)


def llvm_vector(vector: Vector) -> ir.VectorType:
    return ir.VectorType(llvm_item(vector.dtype), vector.count)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector: Vector) -> None:
        super().__init__(manager, vector, llvm_vector(vector))


def call_llvm(builder, name: str, result: ir.Type, *operands, **flags):
    """One of LLVM's own functions."""
    kind = ir.FunctionType(result, [operand.type for operand in operands])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands, **flags)


def shuffled(builder, one, two, places: list[int]):
    """The items at ``places`` of two vectors, the second's numbered on from the first's."""
    return builder.shuffle_vector(one, two, ir.Constant(ir.VectorType(_I32, len(places)), places))


def spread(builder, number, count: int):
    """A vector of the same number."""
    nothing = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    return shuffled(builder, builder.insert_element(nothing, number, _I32(0)), nothing, [0] * count)


def _as(context, builder, value, kind: types.Type, wanted: Vector):
    """A number, or whole numbers of as many lanes, as the wanted vector."""
    if not isinstance(kind, Vector):
        return spread(builder, context.cast(builder, value, kind, wanted.dtype), wanted.count)
    if kind.dtype == wanted.dtype:
        return value
    return builder.sitofp(value, llvm_vector(wanted))


def _common(a: types.Type, b: types.Type) -> Vector | None:
    """The vector that an operation on both gives; None where there is none."""
    if isinstance(a, Vector) and isinstance(b, Vector):
        if a == b or (a.count == b.count and b.dtype == types.int32):
            return a
        return b if a.count == b.count and a.dtype == types.int32 else None
    one, other = (a, b) if isinstance(a, Vector) else (b, a)
    return one if isinstance(one, Vector) and isinstance(other, (types.Number, types.Boolean)) else None


def _operator(function: Callable, emit: Callable, result: Callable[[Vector], Vector] = lambda v: v) -> None:
    """Teach Numba a function of two vectors; ``emit(builder, vector, a, b)`` writes it."""

    class Template(AbstractTemplate):
        key = function

        def generic(self, args, kws):
            common = _common(*args) if len(args) == 2 else None
            return signature(result(common), *args) if common else None

    infer_global(function)(Template)

    def lower(context, builder, sig, args):
        common = _common(*sig.args)
        assert common is not None
        a, b = (_as(context, builder, value, kind, common) for value, kind in zip(args, sig.args, strict=True))
        return emit(builder, common, a, b)

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(function, *kinds)(lower)


def _arithmetic(word: str) -> Callable:
    """``fadd`` of floating-point numbers, ``add`` of whole ones."""

    def emit(builder, vector, a, b):
        return getattr(builder, f"f{word}" if isinstance(vector.dtype, types.Float) else word)(a, b)

    return emit


def _comparison(word: str) -> Callable:
    """False where NaN takes part."""

    def emit(builder, vector, a, b):
        compare = builder.fcmp_ordered if isinstance(vector.dtype, types.Float) else builder.icmp_signed
        return compare(word, a, b)

    return emit


def _named_like(builder, name: str, vector: Vector, *operands):
    """LLVM's function of this name, of vectors."""
    full_name = f"llvm.{name}.v{vector.count}f{vector.dtype.bitwidth}"
    return call_llvm(builder, full_name, llvm_vector(vector), *operands)


def _extreme(word: str) -> Callable:
    """Python's ``min`` and ``max``: the first argument where the second is not beyond it, so also where it is NaN."""

    def emit(builder, vector, a, b):
        return builder.select(_comparison(word)(builder, vector, b, a), b, a)

    return emit


for _word in ("add", "sub", "mul"):
    for _function in (getattr(operator, _word), getattr(operator, f"i{_word}")):
        _operator(_function, _arithmetic(_word))
for _function in (operator.truediv, operator.itruediv):
    _operator(_function, lambda builder, vector, a, b: builder.fdiv(a, b))
for _function in (operator.pow, operator.ipow):  # by the mathematical library, lane by lane: right, and slow
    _operator(_function, lambda builder, vector, a, b: _named_like(builder, "pow", vector, a, b))
for _function, _word in (
    (operator.lt, "<"), (operator.le, "<="), (operator.gt, ">"), (operator.ge, ">="), (operator.eq, "=="),
):  # fmt: skip
    _operator(_function, _comparison(_word), lambda vector: Vector(types.boolean, vector.count))
for _extremum, _word in ((min, "<"), (max, ">")):
    _operator(_extremum, _extreme(_word))


@infer_global(operator.neg)
class _Negative(AbstractTemplate):
    key = operator.neg

    def generic(self, args, kws):
        return signature(args[0], args[0]) if isinstance(args[0], Vector) else None


@lower_builtin(operator.neg, Vector)
def _lower_negative(context, builder, sig, args):
    return builder.fneg(args[0])


def _function_of(name: str) -> Any:
    """An intrinsic of one floating-point number or a vector of them: LLVM's function of this name."""

    @intrinsic
    def function(typing_context, x):
        def emit(context, builder, sig, args):
            if isinstance(x, Vector):
                return _named_like(builder, name, x, args[0])
            return call_llvm(builder, f"llvm.{name}.f{x.bitwidth}", args[0].type, args[0])

        return x(x), emit

    return function


floor = _function_of("floor")
square_root = _function_of("sqrt")


@intrinsic
def to_index(typing_context, x):
    """Floating-point numbers without their fraction, as int32; undefined of NaN and of what is too large."""
    result = Vector(types.int32, x.count) if isinstance(x, Vector) else types.int32

    def emit(context, builder, sig, args):
        return builder.fptosi(args[0], context.get_value_type(result))

    return result(x), emit


@intrinsic
def power_of_two(typing_context, whole):
    """2^whole for whole numbers, kept as floating-point ones, of normal powers: by writing the exponent's bits."""
    dtype = whole.dtype if isinstance(whole, Vector) else whole
    bias, n_mantissa = (127, 23) if dtype == types.float32 else (1023, 52)

    def emit(context, builder, sig, args):
        def kind(item: ir.Type) -> ir.Type:
            return ir.VectorType(item, whole.count) if isinstance(whole, Vector) else item

        exponent = builder.fptosi(args[0], kind(_I32))  # by way of int32, which AVX2 can convert to as well
        if dtype == types.float64:
            exponent = builder.sext(exponent, kind(ir.IntType(64)))

        def constant(value: int):
            n = [value] * whole.count if isinstance(whole, Vector) else value
            return ir.Constant(exponent.type, n)

        bits = builder.shl(builder.add(exponent, constant(bias)), constant(n_mantissa))
        return builder.bitcast(bits, context.get_value_type(whole))

    return whole(whole), emit


@intrinsic
def choose(typing_context, condition, a, b):
    """``a`` where the condition holds, else ``b``, without a branch: of numbers, or of vectors if any is one."""
    vectors = [kind for kind in (a, b) if isinstance(kind, Vector)]
    if vectors:
        result: Any = vectors[0]
    elif isinstance(condition, Vector):
        result = Vector(types.float32 if condition.count == BITS // 32 else types.float64, condition.count)
    else:
        result = typing_context.unify_types(a, b)

    def emit(context, builder, sig, args):
        if isinstance(result, Vector):
            one, other = (_as(context, builder, v, k, result) for v, k in zip(args[1:], sig.args[1:], strict=True))
        else:
            one, other = args[1:]
        return builder.select(args[0], one, other)

    return (result(condition, a, b) if isinstance(result, Vector) else result(condition, result, result)), emit


@intrinsic
def zeros(typing_context, array):
    """A vector of zeros of an array's type."""
    result = vector_of(array.dtype)

    def emit(context, builder, sig, args):
        return ir.Constant(llvm_vector(result), [0.0] * result.count)

    return result(array), emit


@intrinsic
def n_lanes(typing_context, array):
    """How many numbers of an array's type make a vector: a constant to the compiler."""
    count = vector_of(array.dtype).count

    def emit(context, builder, sig, args):
        return ir.IntType(64)(count)

    return types.int64(array), emit


@intrinsic
def total(typing_context, vector, zero):
    """The sum of a vector's numbers, taken in the type of ``zero``."""

    def emit(context, builder, sig, args):
        item = llvm_item(zero)
        lanes = args[0]
        if vector.dtype != zero:
            lanes = builder.fpext(lanes, ir.VectorType(item, vector.count))
        name = f"llvm.vector.reduce.fadd.v{vector.count}f{zero.bitwidth}"
        return call_llvm(builder, name, item, ir.Constant(item, -0.0), lanes, fastmath=("reassoc",))

    return zero(vector, zero), emit
