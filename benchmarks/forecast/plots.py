"""Plots as SVG, without a library: a square from 0 to 1 with curves in it."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

SIDE, EDGE = 260, 44
COLORS = ("#1668b8", "#c2570c", "#557a2c", "#7a3f99", "#666666")


def square(title: str, across: str, up: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """An SVG of curves over the unit square, with the diagonal on which a calibrated model lies."""
    def x(value: float) -> str:
        return f"{EDGE + value * SIDE:.1f}"

    def y(value: float) -> str:
        return f"{EDGE + (1 - value) * SIDE:.1f}"
    whole = SIDE + 2 * EDGE + 18 * len(curves)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE + 2 * EDGE} {whole}" font-family="sans-serif" font-size="11" role="img">',
           f"<title>{title}</title>", f'<rect width="100%" height="100%" fill="#ffffff"/><text x="{EDGE}" y="20" font-size="13">{title}</text>']
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        out.append(f'<path d="M{x(tick)} {y(0)}V{y(1)}M{x(0)} {y(tick)}H{x(1)}" stroke="#dddddd" fill="none"/>'
                   f'<text x="{x(tick)}" y="{EDGE + SIDE + 14}" text-anchor="middle">{tick:g}</text>'
                   f'<text x="{EDGE - 6}" y="{y(tick)}" text-anchor="end" dominant-baseline="middle">{tick:g}</text>')
    out.append(f'<path d="M{x(0)} {y(0)}L{x(1)} {y(1)}" stroke="#999999" stroke-dasharray="4 4"/>')
    out.append(f'<text x="{EDGE + SIDE / 2}" y="{EDGE + SIDE + 30}" text-anchor="middle">{across}</text>'
               f'<text transform="translate(12 {EDGE + SIDE / 2}) rotate(-90)" text-anchor="middle">{up}</text>')
    for i, (name, points) in enumerate(curves.items()):
        color = COLORS[i % len(COLORS)]
        if points:
            out.append(f'<path d="M{"L".join(f"{x(a)} {y(b)}" for a, b in points)}" stroke="{color}" stroke-width="2" fill="none"/>')
            out += [f'<circle cx="{x(a)}" cy="{y(b)}" r="2.5" fill="{color}"/>' for a, b in points]
        line = SIDE + 2 * EDGE + 18 * i
        out.append(f'<rect x="{EDGE}" y="{line - 4}" width="18" height="4" fill="{color}"/><text x="{EDGE + 24}" y="{line + 2}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
