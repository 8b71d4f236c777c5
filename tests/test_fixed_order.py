"""What decides a take, a score or a printed number on the testbed leaves no product to the BLAS or to LAPACK.

Their last bits depend on the CPU. The source is read for such calls; `besttake.core.arithmetic` has what to use
instead. A line may be excepted by a comment that begins with ``# any order:`` and says why nothing depends on it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "besttake"
MARK = "# any order: "

DECIDING = ("core", "testbed", "measure", "scorers", "arms", "encoders/pixels.py", "encoders/hog.py")
PRODUCTS = {"dot", "matmul", "inner", "tensordot", "vdot", "vecdot", "matvec", "vecmat", "convolve", "correlate"}
SOLVERS = {"polyfit", "cov", "corrcoef"}
# Nominations, which are compared again in float64.
ROUGH = {"core/search.py", "core/score.py"}


def modules() -> list[str]:
    paths = [SOURCE / place for place in DECIDING]
    files = [file for path in paths for file in ([path] if path.suffix else sorted(path.rglob("*.py")))]
    return [file.relative_to(SOURCE).as_posix() for file in files]


def plain_products(code: str) -> Iterator[str]:
    """Each line of ``code`` that leaves a product or a decomposition to BLAS or LAPACK and is not marked."""
    lines = code.splitlines()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                what = "@"
            case ast.Attribute(value=ast.Attribute(attr="linalg"), attr=name):
                what = f"linalg.{name}"
            case ast.Attribute(attr=name) if name in PRODUCTS:
                what = name
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in SOLVERS:
                what = name
            case ast.ImportFrom(module=module) if module and module.endswith("linalg"):
                what = module
            case ast.keyword(arg="optimize"):
                what = "einsum that may call the BLAS"
            case _:
                continue
        own = lines[node.lineno - 1 : node.end_lineno]
        if not any(len(line.partition(MARK)[2]) >= 10 for line in own):
            yield f"line {node.lineno}: {what}"


@pytest.mark.parametrize("module", modules())
def test_a_deciding_module_sums_in_a_fixed_order(module: str) -> None:
    assert list(plain_products((SOURCE / module).read_text())) == []


def test_rough_products_only_nominate() -> None:
    using = {name for name in modules() if "rough_product" in (SOURCE / name).read_text()}
    assert using - {"core/arithmetic.py"} == ROUGH


@pytest.mark.parametrize(
    "code",
    [
        "a @ b", "a @= b", "np.dot(a, b)", "a.dot(b)", "np.matmul(a, b, out=c)", "f = np.matmul", "np.inner(a, b)",
        "np.tensordot(a, b)", "np.vdot(a, b)", "np.linalg.norm(a)", "np.linalg.eigh(a)", "np.linalg.svd(a)",
        "np.linalg.qr(a)", "np.polyfit(a, b, 1)", "np.einsum('ij,jk', a, b, optimize=True)",
        "from numpy.linalg import norm", "a @ b  # any order:", "a @ b  # fast",
    ],
)  # fmt: skip
def test_the_check_sees_a_plain_product(code: str) -> None:
    assert list(plain_products(code))


@pytest.mark.parametrize("code", ["product(a, b)", "a * b", "a @ b  # any order: every partial sum is exact"])
def test_the_check_lets_the_rest_pass(code: str) -> None:
    assert not list(plain_products(code))
