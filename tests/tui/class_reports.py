"""Reports of made-up models, for the tests of what draws them."""

from tpu_console.engine.runs.class_report import ClassReport, ClassScore, Mistake


def even_report(names: list[str], examples: int = 100, wrong: int = 10) -> ClassReport:
    """Of every class as many are taken for the next one; the first is worse by far."""
    count = len(names)
    missed = [min(examples, 5 * wrong) if row == 0 else wrong for row in range(count)]
    matrix = tuple(
        tuple(
            examples - missed[row] if column == row else missed[row] if column == (row + 1) % count else 0
            for column in range(count)
        )
        for row in range(count)
    )
    classes = tuple(
        ClassScore(
            name,
            precision=matrix[row][row] / max(1, sum(matrix[other][row] for other in range(count))),
            recall=matrix[row][row] / examples,
            f1=matrix[row][row] / examples,
            examples=examples,
        )
        for row, name in enumerate(names)
    )
    mistakes = tuple(
        Mistake(names[row], names[(row + 1) % count], missed[row], missed[row] / examples) for row in range(count)
    )
    right = sum(matrix[row][row] for row in range(count)) / (count * examples)
    return ClassReport(count * examples, right, right, 0, False, classes, mistakes[:10], matrix)
