"""The papers' figures and analyses, as PNG and JSON files under --out.

    python -m bench figures cmow "man bites dog"             # every order of these words: what CBOW and CMOW make of it
    python -m bench figures attention lsg,bigbird            # what a token sees
    python -m bench figures cka-curve 128                    # what CKA and a cosine say of two layers of this width
    python -m bench figures mc3kd MODEL --task pocket/rte    # SVCCA of all pairs of layers, C_T, RCCC: figures 2, 6-8
    python -m bench figures mc3kd MODEL,MODEL --task sst2    # and what differs between two models: figure 9
    python -m bench figures mc3kd-track RUN,RUN              # RCCC and the score by epoch, of --budget paper: 4, 5
    python -m bench figures xtc RUN,RUN                      # distances and weights of quantised runs: figures 5, 6
    python -m bench figures cka RUN,RUN                      # validation loss of runs on one task: figures 3a, 4
    python -m bench figures cka-size RUN,RUN                 # the score by the student's size: figures 2, 3b, 3c
    python -m bench figures cka-layers RUN,RUN               # CKA of student and teacher by layer, of growing budgets
    python -m bench figures arena bench/results/arena.jsonl.gz --out docs/img # arena.png, ladder.png

RUN is the folder of a finished run, or one above several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from safetensors.numpy import load_file

from bench import Parser, report
from bench.matrix import chosen
from bench.records import folder_of
from bench.report import save
from bench.table import budget_of, load
from common import data, evaluate, models, results
from common.args import BadInput, read, split_paths, student_shape
from common.layers.attention import random_blocks
from common.teacher import get_teacher

# --- ways to draw --------------------------------------------------------------------------------------------

Line = tuple[Sequence[float], Sequence[float]]


def heatmaps(matrices: dict[str, np.ndarray], path: Path, names: Sequence[str] = (), signed: bool = False) -> None:
    """Square matrices, one below the other, with values in the cells where they are few: entries in [0, 1], or `signed`
    ones, in red above zero and in green below. Rows and columns are layers, 0 in the upper left, or have `names`."""
    size = len(next(iter(matrices.values())))
    side = max(3.6, 0.45 * size + 0.9)
    figure = Figure(figsize=(side, side * len(matrices)), layout="constrained")
    grid: Any = figure.subplots(len(matrices), squeeze=False)
    for axes, (title, matrix) in zip(grid.flat, matrices.items(), strict=True):
        shades: dict[str, Any] = {"vmin": 0, "vmax": 1, "cmap": "viridis"}
        if signed:
            most = np.abs(matrix).max() or 1.0
            shades = {"vmin": -most, "vmax": most, "cmap": "RdYlGn_r"}
        image = axes.imshow(matrix, aspect="auto", **shades)
        axes.set(title=title, xlabel="layer", ylabel="layer", xticks=range(size), yticks=range(size))
        if names:
            axes.set(xlabel="the same, in the same order", ylabel="", xticks=[], yticklabels=names)
        if size > 15:
            figure.colorbar(image, shrink=0.8)
            continue
        for (i, j), value in np.ndenumerate(matrix):
            colour = "black" if signed or value > 0.6 else "white"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)
    save(figure, path)


def lines(series: dict[str, Line], path: Path, title: str, x: str, y: str, marked: Sequence[float] = ()) -> None:
    """Named lines of (x, y) values; vertical marks at the x values of `marked`."""
    figure = Figure(figsize=(4.4, 3.4), layout="constrained")  # read at a phone's width, too
    axes = figure.subplots()
    for name, (xs, ys) in series.items():
        axes.plot(xs, ys, marker="o" if len(xs) <= 50 else "", markersize=4, label=name)
    for position in marked:
        axes.axvline(position, color="grey", linestyle=":", linewidth=1)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    if len(series) > 1:
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    save(figure, path)


# --- mc3kd ---------------------------------------------------------------------------------------------------


def mc3kd(names: str, folder: Path, words: list[str]) -> None:
    """SVCCA between all layers of a model over training inputs of a task. A model without the task's head is fine-tuned
    first, as the scripts' teachers are; with `--teacher-epochs 0` one of the hub or of a folder is seen as it is.

    Below the matrix' diagonal stands C_T(l) (eq. 2), with the layers that a student of `--student`'s depth is given
    (eq. 3, figure 7); RCCC is layer 1 against layer N. Of two models, with a comma, of one depth, figure 9 as well.
    `words`: arguments of methods/mc3kd.py.
    """
    from methods import mc3kd as method

    args = read(method.Args, None, words)
    for task in (data.load(name, **args.source) for name in args.tasks):
        matrices = []
        for name in split_paths(names):
            teacher = get_teacher(args, task, name, headless=True)
            N = teacher.model.config.num_hidden_layers
            pairs = [(i, j) for i in range(N + 1) for j in range(i + 1, N + 1)]
            found = method.layer_svcca(args, task, "train", teacher.tokenizer, teacher.model, pairs)
            matrix = np.eye(N + 1)
            for (i, j), value in zip(pairs, found, strict=True):
                matrix[i, j] = matrix[j, i] = value
            sequence = [float(matrix[l - 1, l]) for l in range(1, N + 1)]
            selected = method.select_layers(sequence, min(N, student_shape(args.student)[0]))
            ends = -3 if (Path(name) / "result.json").exists() else -1  # a run's folder: variant, settings, seed
            label, rccc = "-".join(Path(name).parts[ends:]), float(matrix[1, N])
            place = folder / "mc3kd" / task.name / label
            record = {"model": teacher.signature, "task": task.name, "data": f"{task.origin}#{task.fingerprint}",
                      "rccc": rccc, "svcca": matrix.tolist(), "sequence": sequence, "selected": selected}  # fmt: skip
            results.write_json(place / "svcca.json", record)
            print(f"{label} on {task.name}: RCCC {rccc:.4f}, C_T(l) {', '.join(f'{c:.3f}' for c in sequence)}")
            heatmaps({f"SVCCA, {label}, {task.name}": matrix}, place / "svcca.png")
            title = f"C_T(l), {label}; dotted: the {len(selected)} selected layers"
            series: dict[str, Line] = {"C_T": (range(1, N + 1), sequence)}
            lines(series, place / "sequence.png", title, "layer l", "SVCCA with layer l - 1", selected)
            matrices.append(matrix)
        if len(matrices) == 2:
            mc3kd_compared(matrices[0], matrices[1], folder / "mc3kd" / task.name / "compared.png", names)


def mc3kd_compared(first: np.ndarray, second: np.ndarray, path: Path, names: str) -> None:
    """Figure 9: how much larger each SVCCA is in the second model; what share of them moves as RCCC does."""
    if first.shape != second.shape:
        raise BadInput(
            f"{names}: have {len(first) - 1} and {len(second) - 1} layers; figure 9 compares models of one depth"
        )
    difference = second - first
    moved = difference[np.triu_indices(len(first), 1)]
    agree = float((np.sign(moved) == np.sign(difference[1, -1])).mean())
    title = f"SVCCA, {names}: second less first\n{agree:.0%} of the pairs move as RCCC, itself included"
    heatmaps({title: difference}, path, signed=True)
    print(f"RCCC {difference[1, -1]:+.4f}; of {len(moved)} pairs of layers {agree:.0%} move as RCCC, itself included")


def mc3kd_track(runs: str, folder: Path, words: list[str]) -> None:
    """Figures 4 and 5: RCCC and the score at the end of every epoch, from the logs, in two pictures."""
    rccc: dict[str, Line] = {}
    scores: dict[str, Line] = {}
    found = runs_of(runs)
    for run, record in found:
        log = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
        rows = [row for row in log if "rccc" in row and "epoch" in row]
        if not rows:
            raise BadInput(f"{run}: its log has no epochs; run methods/mc3kd.py with --budget paper")
        label, epochs = f"{record['variant']} from {record['teacher']['name']}", [row["epoch"] for row in rows]
        label += f" ({run})" * (label in rccc)
        rccc[label], scores[label] = ((epochs, [row[key] for row in rows]) for key in ("rccc", "score"))
    task, primary = (found[0][1][key] for key in ("task", "primary"))
    place, title = folder / "mc3kd" / task, evaluate.TITLES[primary["name"]]
    lines(rccc, place / "epochs.png", task, "epoch", "RCCC")
    lines(scores, place / "epochs-score.png", task, "epoch", title)


# --- xtc -----------------------------------------------------------------------------------------------------


def xtc(runs: str, folder: Path, words: list[str]) -> None:
    """Figures 5 and 6: of every linear the distance between its float weight, before it had bits, and its quantised one
    after training; and the float weights behind the bits of the first linear, with the values that they become."""
    from methods import xtc as method

    series: dict[str, Line] = {}
    weights: dict[str, np.ndarray] = {}
    before_and_after: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for place, record in sorted(runs_of(runs), key=lambda run: str(run[1]["budget"]["amount"]).zfill(9)):
        distance, latent = record["analysis"].get("distance"), place / "latent.safetensors"
        if not distance or not latent.is_file():
            raise BadInput(f"{place}: is no run of methods/xtc.py with 1 or 2 bits")
        title = f"{record['settings']['bits']} bits, {record['budget']['amount']:,} examples".replace("1 bits", "1 bit")
        label = title + (f" ({place})" if title in series else "")
        values = list(distance.values())[1:]  # the word embedding, many times as large, stands in the analysis alone
        series[label] = (range(1, len(values) + 1), values)
        state = load_file(latent)
        weights[label] = np.concatenate([state[f"{name}.weight"].ravel() for name in distance])
        linear = list(distance)[1]  # one matrix, since each has a scale of its own
        quantised = method.Quantizer(record["settings"]["bits"])(torch.from_numpy(state[f"{linear}.weight"]))
        before_and_after[label] = state[f"{linear}.weight"].ravel(), quantised.numpy().ravel()
    to = folder / "xtc"
    lines(series, to / "distance.png", "float before, quantised after", "linear, from below", "l2 distance")
    levels(before_and_after, to / "weights.png")
    report: dict[str, Any] = {
        label: {"distance": list(series[label][1]), "mean_absolute": float(np.abs(W).mean()), "std": float(W.std())}
        for label, W in weights.items()
    }
    results.write_json(to / "analysis.json", report)
    rows = [[label, f"{np.mean(r['distance']):.3f}", f"{r['mean_absolute']:.4f}", f"{r['std']:.4f}"]
            for label, r in report.items()]  # fmt: skip
    print(results.columns(rows, ["", "mean l2 distance", "mean |W|", "std of W"]))


def levels(matrices: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    """For each matrix its float weights, as a histogram, and above it the few values that they become."""
    figure = Figure(figsize=(4.2, 0.4 + 2.1 * len(matrices)), layout="constrained")
    grid: Any = figure.subplots(len(matrices), sharex=True, squeeze=False)
    for (title, (latent, quantised)), axes in zip(matrices.items(), grid.flat, strict=True):
        end = np.quantile(np.abs(latent), 0.999)
        bins = np.linspace(-end, end, 81)
        height = axes.hist(latent, bins=bins, color="C0", alpha=0.5, label="before: float")[0].max()
        values, counts = np.unique(quantised, return_counts=True)
        axes.vlines(values, 0, 1.05 * height, color="C3", linewidth=2.5, label="after: quantised")
        for value, count in zip(values, counts, strict=True):
            axes.text(value, 1.12 * height, f"{count / len(quantised):.0%}", ha="center", fontsize=9, color="C3")
        axes.set(ylim=(0, 1.35 * height), yticks=[])
        axes.set_title(title, fontsize=9)
    grid[-1, 0].set_xlabel("value of a weight", fontsize=9)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save(figure, path)


# --- cmow ----------------------------------------------------------------------------------------------------


def cmow(text: str, folder: Path, words: list[str]) -> None:
    """Cosine similarity of the encodings of all orders of a few words: a sum of vectors, a product of matrices.

    The embeddings are drawn, not trained: what can be told apart is a matter of the arithmetic. They are drawn with a
    larger spread than a student starts with, whose matrices lie so near the identity that an order shows in the third
    digit.
    """
    from methods import cmow as method

    names = text.split()
    if not 2 <= len(set(names)) <= 3 or len(set(names)) != len(names):
        raise BadInput(f"{text!r}: must be two or three different words, whose 2 or 6 orders fit into a picture")
    orders = torch.tensor(list(permutations(range(len(names)))))
    labels = [" ".join(names[i] for i in order) for order in orders]
    torch.manual_seed(0)
    matrices = method.add_identity(20**-0.5 * torch.randn(len(names), 20 * 20))
    encodings = {
        "CBOW: a sum of vectors": torch.randn(len(names), 400)[orders].sum(1),
        "CMOW: a product of matrices": method.ordered_product(matrices[orders]).flatten(1),
    }
    found: dict[str, np.ndarray] = {}
    for title, E in encodings.items():
        found[title] = torch.nn.functional.cosine_similarity(E[:, None], E, dim=-1).numpy()
        print(f"{title}: {labels[0]!r} and {labels[-1]!r} have a cosine similarity of {found[title][0, -1]:.2f}")
    heatmaps(found, folder / "cmow" / "orders.png", labels)


# --- cka -----------------------------------------------------------------------------------------------------


def cka_curve(width: str, folder: Path, words: list[str]) -> None:
    """Similarity of a layer and the same layer with more and more of another in it, by CKA and by a cosine: as it is,
    turned and three times as large, and projected to a quarter of its width. 2,000 tokens; some dimensions vary much,
    most a little, as in trained models. As it is, CKA says what it says of the turned one."""
    from methods import cka as method

    D = int(width) if width.isdecimal() else 0
    if not 8 <= D <= 1024:
        raise BadInput(f"{width!r}: must be a width of 8 to 1,024")
    torch.manual_seed(0)
    layer, other = torch.randn(2, 1, 2000, D) * torch.arange(1, D + 1) ** -0.5
    turn = torch.linalg.qr(torch.randn(D, D)).Q
    series: dict[str, tuple[list[float], list[float]]] = {}
    for share in np.linspace(0, 1, 11):
        mixed = (1 - share) * layer + share * other
        turned, narrow = 3 * mixed @ turn, mixed @ turn[:, : D // 4]
        for name, loss in {
            "cosine: as it is": method.hidden_loss("cosine", mixed, layer),
            "cosine: rotated, times 3": method.hidden_loss("cosine", turned, layer),
            "CKA: rotated, times 3": method.cka_loss(method.covariances(turned, layer)),
            f"CKA: {D // 4} of {D} dimensions": method.cka_loss(method.covariances(narrow, layer)),
        }.items():
            xs, ys = series.setdefault(name, ([], []))
            xs.append(100 * share)
            ys.append(1 - loss.item())
    for name, (_, ys) in series.items():
        print(f"{name}: {', '.join(f'{y:.2f}' for y in ys)}")
    lines({**series}, folder / "cka" / "curve.png", f"One layer of width {D}, compared with itself",
          "% of another layer that is mixed in", "similarity")  # fmt: skip


def cka(runs: str, folder: Path, words: list[str]) -> None:
    """Figures 3a and 4: the validation loss along pre-training and along the task."""
    found, drawn = runs_of(runs), False
    task = found[0][1]["task"]
    for stage in ("pretraining", "task"):
        series: dict[str, Line] = {}
        for place, record in found:
            if curve := record["analysis"].get("validation", {}).get(stage):
                label = f"{record['variant']} {record['student']['shape']} seed {record['seed']}"
                label += f" ({place})" * (label in series)
                series[label] = ([100 * (i + 1) / len(curve) for i in range(len(curve))], curve)
        if series:
            drawn = True
            lines(series, folder / "cka" / task / f"{stage}.png", f"{stage}, {task}", "% of the stage",
                  "validation loss")  # fmt: skip
    if not drawn:
        raise BadInput(f"{runs}: no run has a validation loss; methods/cka.py writes it")


def cka_size(runs: str, folder: Path, words: list[str]) -> None:
    """Figures 2, 3b and 3c: of finished runs on one task, mean over seeds, every metric by the student's parameters: a
    line for each variant, and a level one for the teacher. distilBART is `cosine` with `--init teacher --keep spread`.
    """
    records = [record for _, record in runs_of(runs)]
    task, split = records[0]["task"], next(iter(records[0]["metrics"]))
    if len(amounts := {record["budget"]["amount"] for record in records}) > 1:
        raise BadInput(f"{runs}: are of several budgets, {', '.join(map(str, sorted(amounts)))}; give runs of one")
    for name in records[0]["metrics"][split]:
        points: dict[str, dict[float, list[float]]] = {}
        for record in records:
            size = record["student"]["parameters"] / 1e6
            points.setdefault(record["variant"], {}).setdefault(size, []).append(record["metrics"][split][name])
        series: dict[str, Line] = {}
        for variant, of in points.items():
            series[variant] = sorted(of), [100 * float(np.mean(of[size])) for size in sorted(of)]
            print(f"{variant}: {', '.join(f'{x:.1f}M {y:.1f}' for x, y in zip(*series[variant], strict=True))}")
        if (level := records[0]["teacher"]["metrics"].get(split, {}).get(name)) is not None:
            sizes = [size for of in points.values() for size in of]
            series["teacher"] = (min(sizes), max(sizes)), (100 * level, 100 * level)
        title = f"{task}, {split}; the teacher has {records[0]['teacher']['parameters'] / 1e6:.0f}M"
        lines(series, folder / "cka" / task / f"size-{name}.png", title, "million parameters", f"{name}, %")


def cka_layers(runs: str, folder: Path, words: list[str]) -> None:
    """The root of CKA of every student layer and its partner in the fine-tuned teacher, by how many examples a student
    was trained on: of finished runs on one task with `--teacher`'s default, say with budgets that grow.

    Over all tokens of 256 examples of the reported split. `words`: arguments of methods/cka.py, where the runs had any.
    """
    from methods import cka as method

    found = runs_of(runs)
    args = read(method.Args, None, ["--task", found[0][1]["task"], *words])
    (task,) = (data.load(name, **args.source) for name in args.tasks)
    teacher = get_teacher(args, task)
    split = data.head(task.splits[task.reported[0]], method.HELD_OUT)
    encoded = data.encode(teacher.tokenizer, split, task.task, args.max_length)
    inputs = data.collate(teacher.tokenizer, encoded, range(len(encoded)))
    inputs.pop("labels")

    def states(model: Any) -> list[torch.Tensor]:
        """(1, n, D) of every layer, the embeddings' first."""
        with torch.no_grad():
            hidden = model.cpu().eval()(**inputs, output_hidden_states=True).hidden_states
        return [layer[inputs["attention_mask"].bool()][None] for layer in hidden]

    T, points = states(teacher.model), dict[str, list[tuple[int, float]]]()
    for place, record in found:
        S = states(models.load_model(str(place), models.load_config(str(place)), task.task.kind, head=True))
        for i, l in enumerate(method.layer_map(len(T) - 1, len(S) - 1), 1):
            loss = method.cka_loss(method.covariances(S[i], T[l])).item()
            name = f"{record['variant']}, layer {i} and teacher's {l}"
            points.setdefault(name, []).append((record["ledger"]["student_examples"], 1 - loss))
    series: dict[str, Line] = {name: tuple(zip(*sorted(of), strict=True)) for name, of in points.items()}  # type: ignore[misc]
    for name, (_, ys) in series.items():
        print(f"{name}: {', '.join(f'{y:.2f}' for y in ys)}")
    lines(series, folder / "cka" / "layers.png", f"Student beside teacher, {task.name}", "examples trained on",
          "root of CKA")  # fmt: skip


def runs_of(runs: str) -> list[tuple[Path, dict[str, Any]]]:
    """The finished runs in these folders, given with commas, and below them: where each is, and its result."""
    paths = {place: sorted(Path(place).rglob("result.json")) for place in split_paths(runs) or [runs]}
    for wrong in (place for place, found in paths.items() if not found):
        raise BadInput(f"{wrong}: holds no result.json; give the folder of a finished run, or one above some")
    found = {path.parent: results.load(path) for some in paths.values() for path in some}  # each once
    if len(tasks := {record["task"] for record in found.values()}) > 1:
        raise BadInput(f"{runs}: are of several tasks, {', '.join(sorted(tasks))}; give runs on one")
    return list(found.items())


# --- efficient attention: what a token sees ------------------------------------------------------------------

TOKENS = 64


def attention(names: str, folder: Path, words: list[str]) -> None:
    """How much each of 64 tokens takes from every other, in full attention and in efficient ones as their papers define
    them, at sizes at which 64 tokens show what each leaves out.

    A token's value is its own number, one-hot, so that what comes out at a token is what it saw. Queries and keys are
    the positions' sines and cosines: full attention looks at the neighbourhood and, a little, everywhere.
    """
    from methods import efficient_attention as method

    place = torch.arange(TOKENS)[:, None] / 5.0 / 2.0 ** torch.arange(4)
    Q = 1.8 * torch.cat([place.sin(), place.cos()], 1)[None]  # the keys, too
    V = torch.eye(TOKENS)[None]
    seen = {
        "full": method.attend(Q, Q, V, torch.ones(TOKENS, TOKENS, dtype=torch.bool)),
        "longformer": method.longformer(Q, Q, V, (Q, Q, V), window=6, is_global=torch.arange(TOKENS) == 0),
        "bigbird": method.bigbird(Q, Q, V, block=4, drawn=random_blocks(TOKENS // 4, 1, 1, 0)),
        "lsg": method.lsg(Q, Q, V, block=8, sparse=2, reach=4, global_count=1),
        "nystromformer": method.nystromformer(Q, Q, V, landmarks=8),
    }
    panels = {name: seen[name][0].abs().numpy() for name in ("full", *chosen("attention", names, seen, "the figure"))}
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(4.2, 0.4 + 2.2 * rows), layout="constrained")
    grid: Any = figure.subplots(rows, 2)
    for axes in grid.flat:
        axes.axis("off")
    for axes, (name, weights) in zip(grid.flat, panels.items(), strict=False):
        axes.axis("on")
        axes.imshow(np.where(weights > 1e-6, weights, np.nan), norm=LogNorm(3e-4, 0.1), cmap="viridis")
        axes.set(title=f"{name}: {(weights > 1e-6).mean():.0%}", xticks=[], yticks=[])
    figure.supylabel("query token", fontsize=9)
    figure.supxlabel("key token; white: not seen; above: share of pairs", fontsize=9)
    save(figure, folder / "attention" / "masks.png")


# --- the command ---------------------------------------------------------------------------------------------


def arena_of(names: str, folder: Path, words: list[str]) -> None:
    """The first plots of `python -m bench report`, for a page: bars, and a ladder of four rows, named in words."""
    from bench import pages  # which reads docs/tables.toml: an installed package has none

    places = split_paths(names)
    found = load(map(folder_of, places), budget_of(places))
    titles = pages.arena_titles()
    for row in found.rows:
        row.label = titles.get(row.name, row.label)
    if not report.draw_arena(found, folder / "arena.png", "Losses on all tokens' states come near the teacher"):
        raise BadInput(f"{names}: no row has results on every task")
    report.draw_ladder(found, folder / "ladder.png", ("undistilled", "kd", "pkd-skip", "mse-kd"))


FIGURES: dict[str, Callable[[str, Path, list[str]], None]] = {
    "cmow": cmow, "attention": attention, "cka-curve": cka_curve,
    "mc3kd": mc3kd, "mc3kd-track": mc3kd_track, "xtc": xtc, "cka": cka, "cka-size": cka_size,
    "cka-layers": cka_layers, "arena": arena_of,
}  # fmt: skip


def main(argv: list[str]) -> None:
    parser = Parser("figures", __doc__)
    parser.add_argument("figure", choices=FIGURES, help="which")
    parser.add_argument("what", help="a model, finished runs or tasks, as above; arguments of the scripts may follow")
    parser.add_argument("--out", type=Path, default=Path("runs/figures"), help="where they go (default: runs/figures)")
    asked, words = parser.parse_known_args(argv)
    if words and asked.figure not in ("mc3kd", "cka-layers"):
        raise BadInput(f"{words[0]}: no such argument; the figure {asked.figure} takes none of a script")
    FIGURES[asked.figure](asked.what, asked.out, words)
