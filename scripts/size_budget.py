"""Hold functions to a size: median at most 8 lines, 95th percentile 45, none above 80, nesting at most 3.

Usage: python scripts/size_budget.py [DIR ...]   (default: src/draftmark)
Prints what is over and exits 1; a docstring does not count as lines.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

MEDIAN, P95, LONGEST, NESTING, FILE = 8, 45, 80, 3, 500
Function = ast.FunctionDef | ast.AsyncFunctionDef
NESTS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith, ast.Match)


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function in a module, methods and inner ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from ``def`` to the end, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def depth(node: ast.AST, level: int = 0) -> int:
    """Deepest nesting of control flow; an ``elif`` counts as its ``if``, inner functions apart."""
    deepest = level
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda | ast.ClassDef):
            continue
        elif_ = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        deepest = max(deepest, depth(child, level + (isinstance(child, NESTS) and not elif_)))
    return deepest


def complaints(root: Path) -> Iterator[str]:
    """One line for each thing over the budget."""
    lengths = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        if (lines := text.count("\n")) > FILE:
            yield f"{path}: {lines} lines; split it (at most {FILE})"
        for function in functions(ast.parse(text)):
            lengths.append(length(function))
            if lengths[-1] > LONGEST:
                yield f"{path}:{function.lineno} {function.name}: {lengths[-1]} lines (at most {LONGEST})"
            if (nesting := depth(function)) > NESTING:
                yield f"{path}:{function.lineno} {function.name}: nested {nesting} deep (at most {NESTING})"
    if not lengths:
        return
    p95 = sorted(lengths)[int(0.95 * (len(lengths) - 1))]
    if median(lengths) > MEDIAN:
        yield f"{root}: median function has {median(lengths)} lines (at most {MEDIAN})"
    if p95 > P95:
        yield f"{root}: 95th percentile of functions is {p95} lines (at most {P95})"


def main() -> int:
    """Check every folder named on the command line."""
    found = [line for root in sys.argv[1:] or ["src/draftmark"] for line in complaints(Path(root))]
    print("\n".join(found) or "size budget kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
