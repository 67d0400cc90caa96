"""Numbers out of tables by vectors of indices: ``array[indices]``, and a row of parameters for each lane.

There is no test of bounds, as nowhere in compiled loops.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, register_model

from mdrun.lanes import transposed
from mdrun.vectors import Vector, intrinsic, llvm_vector, spread, vector_of

QUAD = 4  # columns that are loaded together
FEW = 4  # rows among which comparisons are faster than loads
_I32, _I64 = ir.IntType(32), ir.IntType(64)


class TableRows(types.Type):
    """One row of a table for each lane; ``rows[k]`` is a vector, of column k if k is a number, or a vector of int32.

    Attributes:
        n_rows: of the table, where they are few enough to choose among them by comparisons; else 0.
    """

    def __init__(self, dtype: types.Type, n_rows: int) -> None:
        self.vector, self.n_rows = vector_of(dtype), n_rows
        self.members = (types.CPointer(dtype), types.int32, self.vector)
        super().__init__(name=f"TableRows({dtype}, {n_rows})")


@register_model(TableRows)
class _TableRowsModel(models.StructModel):
    def __init__(self, manager, kind: TableRows) -> None:
        super().__init__(manager, kind, list(zip(("data", "width", "row"), kind.members, strict=True)))


def choice_among(n_rows: int) -> Any:
    """What tells Numba by its type how to choose among the rows of a table: the last argument of ``table_rows``."""
    return (True,) * n_rows if n_rows <= FEW else True


@intrinsic
def table_rows(typing_context, table, row, few):
    """The ``TableRows`` of a contiguous (n, whole quads) array.

    Args:
        row: a vector of row numbers, in the array's own type.
        few: see ``choice_among``.
    """
    result = TableRows(table.dtype, len(few) if isinstance(few, types.BaseTuple) else 0)

    def emit(context, builder, sig, args):
        array = context.make_array(table)(context, builder, args[0])
        found = cgutils.create_struct_proxy(result)(context, builder)
        found.data, found.row = array.data, args[1]
        found.width = builder.trunc(builder.extract_value(array.shape, 1), _I32)
        return found._getvalue()

    return result(table, row, few), emit


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    key = operator.getitem
    prefer_literal = True

    def generic(self, args, kws):
        source, index = args
        if isinstance(source, TableRows) and isinstance(index, (Vector, types.Integer)):
            return signature(source.vector, source, index)
        if isinstance(source, types.Array) and source.ndim == 1 and isinstance(index, Vector):
            return signature(vector_of(source.dtype), source, index)
        return None


@lower_builtin(operator.getitem, types.Array, Vector)
def _items_of_array(context, builder, sig, args):
    array = context.make_array(sig.args[0])(context, builder, args[0])
    return _gathered(builder, array.data, args[1], llvm_vector(sig.return_type))


@lower_builtin(operator.getitem, TableRows, Vector)
def _items_of_rows(context, builder, sig, args):
    rows = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    return _gathered(builder, rows.data, builder.add(_first(builder, rows), args[1]), llvm_vector(sig.return_type))


@lower_builtin(operator.getitem, TableRows, types.Integer)
def _column_of_rows(context, builder, sig, args):
    rows = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    column = context.cast(builder, args[1], sig.args[1], types.int32)
    kind = llvm_vector(sig.return_type)
    index = builder.add(_first(builder, rows), spread(builder, column, kind.count))
    return _gathered(builder, rows.data, index, kind)


@lower_builtin(operator.getitem, TableRows, types.IntegerLiteral)
def _known_column_of_rows(context, builder, sig, args):
    rows = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    column = sig.args[1].literal_value
    choose_column = _chosen if sig.args[0].n_rows else _transposed
    return choose_column(builder, rows, column, sig.args[0].n_rows, llvm_vector(sig.return_type))


def _chosen(builder, rows, column: int, n_rows: int, kind: ir.VectorType):
    """By a comparison for each row of the table but the first."""
    for row in range(n_rows):
        place = builder.add(builder.mul(rows.width, _I32(row)), _I32(column))
        value = spread(builder, builder.load(builder.gep(rows.data, [place])), kind.count)
        if row == 0:
            found = value
        else:
            is_row = builder.fcmp_ordered("==", rows.row, ir.Constant(kind, [float(row)] * kind.count))
            found = builder.select(is_row, value, found)
    return found


def _transposed(builder, rows, column: int, n_rows: int, kind: ir.VectorType):
    """By four columns at once, which cost as much as one: LLVM finds them loaded when a formula asks for the next."""
    quad, place = divmod(column, QUAD)
    first = _first(builder, rows)
    found = []
    for k in range(kind.count):
        start = builder.gep(rows.data, [builder.sext(builder.extract_element(first, _I32(k)), _I64)])
        start = builder.gep(start, [_I64(QUAD * quad)])
        found.append(builder.load(builder.bitcast(start, ir.VectorType(kind.element, QUAD).as_pointer())))
        found[-1].align = 4
    return transposed(builder, found)[place]


def _first(builder, rows):
    """Where each lane's row begins, as int32."""
    count = rows.row.type.count
    whole = builder.fptosi(rows.row, ir.VectorType(_I32, count))
    return builder.mul(whole, spread(builder, rows.width, count))


def _gathered(builder, data, index, kind: ir.VectorType):
    """The numbers at int32 indices from a pointer on."""
    found = ir.Constant(kind, ir.Undefined)
    for k in range(kind.count):
        place = builder.sext(builder.extract_element(index, _I32(k)), _I64)
        found = builder.insert_element(found, builder.load(builder.gep(data, [place])), _I32(k))
    return found
