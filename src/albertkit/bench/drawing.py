"""A report as a picture: shares of the ceiling, and texts per second against the batch."""

from pathlib import Path

from albertkit.bench.measuring import Report
from albertkit.extras import optional
from albertkit.files import write_picture

matplotlib_figure = optional("matplotlib.figure", extra="train")
_MARKERS = "osD^vP*X"


def draw(report: Report, target: Path) -> None:
    """Draw to a .png, .svg or .pdf file; the name was checked (`files.check_picture`).

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    figure = matplotlib_figure.Figure(figsize=(11, 4.2), layout="constrained")
    roofline, speed = figure.subplots(1, 2)
    sides = list(dict.fromkeys(one.side for one in (*report.grid, *report.texts)))
    lengths = sorted({one.length for one in report.grid})
    for number, side in enumerate(sides):
        colour = f"C{number}"
        for marker, length in zip(_MARKERS, lengths, strict=False):
            own = [one for one in report.grid if one.side == side and one.length == length]
            roofline.plot(
                [one.flops / 1e9 for one in own], [report.share(one) for one in own], marker, color=colour
            )
            speed.plot(
                [one.batch for one in own],
                [one.texts_per_second for one in own],
                f"{marker}-",
                color=colour,
                linewidth=1,
            )
        for one in report.texts:
            if one.side == side:
                roofline.axhline(report.share(one), color=colour, linestyle=":", linewidth=1)
        roofline.plot([], [], "-", color=colour, linewidth=4, label=side)
    for marker, length in zip(_MARKERS, lengths, strict=False):
        speed.plot([], [], marker, color="0.4", label=f"{length} tokens")
    if report.texts:
        roofline.plot([], [], ":", color="0.4", label=f"{report.texts[0].batch} texts")
    roofline.axhline(1, color="0.3", linewidth=1)
    roofline.annotate(
        f"largest matrix product: {report.ceiling / 1e9:,.0f} GFLOP/s",
        (0.02, 1),
        xycoords=("axes fraction", "data"),
        va="bottom",
    )
    roofline.set(
        xscale="log",
        ylim=(0, max(1.15, *(report.share(one) * 1.05 for one in report.grid), 0)),
        xlabel="operations of a call (GFLOP)",
        ylabel="share of the largest product",
    )
    speed.set(xscale="log", yscale="log", xlabel="texts at once", ylabel="texts per second")
    batches = sorted({one.batch for one in report.grid})
    speed.set_xticks(batches, [str(one) for one in batches])
    speed.minorticks_off()
    for panel in (roofline, speed):
        panel.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    about = report.about
    title = f"{Path(report.model).name}: {about['dtype']}, {about['processor']}, {about['threads']} threads"
    figure.suptitle(title.replace("$", r"\$"), fontsize="medium")  # "$" alone would begin a formula
    write_picture(figure, target, dpi=130)
