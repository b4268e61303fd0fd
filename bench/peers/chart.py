"""A chart of the training steps: the speedup of Axle in each row, and shares of the peak."""

import html
import math

LEFT, WIDTH, ROW = 150, 820, 34
# Bars end at these speedups, on a logarithmic axis.
LOW, HIGH = 0.5, 32


def text(x, y, content, **attributes):
    named = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.0f}" y="{y:.0f}"{named}>{html.escape(content)}</text>'


def chart(rows, cpu):
    """Returns an SVG. Bars to the right of the line at 1 are rows in which Axle is faster than the
    best peer."""
    right = WIDTH - 240

    def position(speedup):
        share = math.log(min(max(speedup, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
        return LEFT + share * (right - LEFT)

    height = 96 + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="#222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        text(16, 26, f"Training steps: speedup of Axle over the fastest peer ({cpu})",
             font_size=15, font_weight="bold"),
        text(right + 24, 54, "share of peak: Axle, peer", fill="#555", font_size=11),
    ]
    for tick in (0.5, 1, 2, 4, 8, 16, 32):
        x = position(tick)
        line = "#222" if tick == 1 else "#ddd"
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="62" y2="{height - 26}" '
                     f'stroke="{line}"/>')
        parts.append(text(x, height - 10, f"{tick:g}x", text_anchor="middle", fill="#555",
                          font_size=11))
    for index, row in enumerate(rows):
        top = 66 + ROW * index
        begin, end = sorted((position(1), position(row["ratio"])))
        color = "#2a7f4f" if row["ratio"] >= 1 else "#b5482a"
        name = row["model"] + (" bf16" if row["dtype"] == "bf16" else "")
        shares = " %, ".join(f"{100 * row[e]['share_of_peak']:.0f}" for e in ("axle", row["best"]))
        parts += [
            text(LEFT - 12, top + 18, name, text_anchor="end"),
            f'<rect x="{begin:.1f}" y="{top + 4}" width="{max(end - begin, 1):.1f}" '
            f'height="{ROW - 14}" fill="{color}"/>',
            text(position(max(row["ratio"], 1)) + 6, top + 18, f"{row['ratio']:.2f}x"),
            text(right + 24, top + 18, f"{shares} % ({row['best']})"),
        ]
    return "\n".join([*parts, "</svg>", ""])
