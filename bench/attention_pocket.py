"""Efficient attention on the pocket suite: long documents and short texts, converted, distilled, in both orders.

    python -m bench.attention_pocket --seeds 5                 # hours on one core; goes on where it was stopped
    python -m bench.attention_pocket --tasks ner --seeds 1
    python -m bench.attention_pocket --seeds 5 --save          # also writes bench/results/attention_pocket.json

ner is tagged, and hotpot asked, over documents of 1,500 to 2,000 words: with windows of 512 tokens by the students with
full attention, and at once, in 2048 tokens, by the converted ones. rte and mrpc are short texts. A task's rows have one
budget; conversion and distillation are part of it. Retention is the score as a share of the teacher's. Milliseconds are
what a model takes to read one text of the test split, measured when all rows are there, in turn; the seconds of
training are in the report, but runs of different hours on one machine do not compare. With `--save`, the tasks that are
not asked for stay as they were.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.cli import FOLDER, parser
from bench.stats import cell, difference
from common import data, metrics, models, pocket, results, speed
from common.layers import attention
from methods import efficient_attention as ea

# BigBird reads short texts with full attention, at its cost, and its first block, where the names of ner are
# introduced, is seen by all.
LONG: dict[str, Any] = {
    "attention": "bigbird",
    "max_length": 2048,
    "short_length": 512,
    "window": 64,
    "batch_size": 8,
    "lr": 1.5e-3,
    "convert_share": 0.05,
    "distil_share": 0.15,
}
SHORT: dict[str, Any] = {"max_length": 128, "short_length": 128, "window": 16, "batch_size": 32}
TASKS = {"ner": LONG | {"budget": "6400"}}
# A question is one signal for a whole document: more of them in a step, at hotpot's teacher's rate. Half of all blocks
# are seen, without which too few of its pairs of facts see each other.
TASKS["hotpot"] = LONG | {"budget": "19200", "batch_size": 32, "lr": 6e-4, "random_blocks": 10}
TASKS |= {name: SHORT | {"budget": "12800"} for name in ("rte", "mrpc")}
# Of the others all; hotpot's are those that cost least for what they show. `--variants` asks for others
VARIANTS = {"hotpot": ("finetune", "convert", "convert-distil", "distil-convert")}
READ = 4  # texts whose reading is timed


def measure(name: str, seeds: list[int], variants: list[str], out_dir: Path) -> dict[str, Any]:
    """The teacher's figure, and for every variant its scores, speed and cost."""
    rows: dict[str, Any] = {variant: {"scores": [], "seconds": []} for variant in variants}
    for seed in seeds:
        settings: dict[str, Any] = TASKS[name] | {
            "seed": seed,
            "out_dir": str(out_dir),
            "resume": True,
        }
        args = ea.Args(task=f"pocket/{name}", variant=",".join(variants), **settings)
        args.check()
        ea.main(args)
        for variant, row in rows.items():
            path = results.folder_of(out_dir, "efficient_attention", args.task, variant, seed) / "result.json"
            record = results.load(path)
            row["scores"].append(record["primary"]["value"])
            row["seconds"].append(record["ledger"]["seconds"])
            row |= {"parameters": record["student"]["parameters"], "shape": record["student"]["shape"]}
    for variant, seconds in reading(args, variants, seeds[-1]).items():
        rows[variant]["read_seconds"] = seconds
    metric = record["primary"]["name"]
    teacher = float(np.mean([split[metric] for split in record["teacher"]["metrics"].values()]))
    row = {"metric": metric, "teacher": teacher, "budget": args.budget, "comparable": record["comparable"]}
    row |= {"attention": args.attention, "seeds": seeds, "environment": results.environment()}
    return row | {"parameters": record["teacher"]["parameters"], "variants": rows}


@torch.no_grad()
def reading(args: ea.Args, variants: list[str], seed: int) -> dict[str, float]:
    """Seconds in which each variant's model reads one text of the test split, one after the other, whole or in
    windows; medians of passes that take turns."""
    task = data.load(args.task)
    test = task.splits[task.reported[0]]
    few = data.Split(test.ids[:READ], test.texts[:READ], test.labels[:READ])
    contenders = {}
    for variant in variants:
        chain = ea.VARIANTS[variant]
        folder = results.folder_of(Path(args.out_dir), "efficient_attention", args.task, variant, seed)
        head, tokenizer = models.HEADS[task.task.kind], models.load_tokenizer(str(folder))
        model = (
            attention.load(folder, head) if "convert" in chain else head.from_pretrained(folder, use_safetensors=True)
        )
        tokenizer.model_max_length = args.max_length
        encoded = data.encode(tokenizer, few, task.task, ea.length_of(args, "convert" in chain))
        batches = [
            {k: v for k, v in data.collate(tokenizer, encoded, [i]).items() if k != "labels"}
            for i in range(len(encoded.ids))
        ]
        contenders[variant] = functools.partial(_read, model.eval(), batches)
    return {variant: seconds / READ for variant, seconds in speed.medians(contenders, turns=5).items()}


def _read(model: Any, batches: list[dict[str, torch.Tensor]]) -> None:
    for batch in batches:
        model(**batch)


def text(report: dict[str, Any]) -> str:
    """The table, and what each step adds, in Markdown."""
    lines = ["| task | | parameters | score | retention | ms a text |", "|---" * 6 + "|"]
    for name, table in report["tasks"].items():
        title = f"{name}, {metrics.TITLES[table['metric']]}"
        lines.append(f"| {title} | *teacher* | {table['parameters'] / 1e6:.2f}M | {100 * table['teacher']:.1f} | | |")
        for variant, row in table["variants"].items():
            kept = 100 * np.mean(row["scores"]) / table["teacher"]
            read = f"{1000 * row['read_seconds']:.3g}" if "read_seconds" in row else "-"
            cells = f"{cell(row['scores'])} | {kept:.1f}% | {read}"
            lines.append(f"| {title} | {variant} {row['shape']} | {row['parameters'] / 1e6:.2f}M | {cells} |")
    pairs = (
        ("kd", "finetune"),
        ("distil", "finetune"),
        ("convert-distil", "finetune"),
        ("convert-distil", "distil"),
        ("distil-convert", "finetune"),
        ("distil-convert", "convert-distil"),
        ("convert-distil", "convert"),
    )
    lines += ["", "| task | " + " | ".join(f"{a} over {b}" for a, b in pairs) + " |", "|---" * (len(pairs) + 1) + "|"]
    for name, table in report["tasks"].items():
        rows = table["variants"]
        cells = " | ".join(
            difference(rows[a]["scores"], rows[b]["scores"]) if a in rows and b in rows else "-" for a, b in pairs
        )
        lines.append(f"| {name} | {cells} |")
    seeds = "; ".join(f"{name}: {t['attention']}, {len(t['seeds'])} seeds" for name, t in report["tasks"].items())
    lines += ["", f"{seeds}."]
    return "\n".join(lines)


def main() -> None:
    command = parser(__doc__, "attention_pocket", list(TASKS), "runs/attention_pocket", list(TASKS))
    command.add_argument(
        "--variants", type=lambda text: text.split(","), metavar="V,...", help="rows (default: all; of hotpot four)"
    )
    options = command.parse_args()
    tasks = {}
    for name in options.tasks:
        variants = options.variants or VARIANTS.get(name, list(ea.VARIANTS))
        tasks[name] = measure(name, options.seeds, list(variants), options.out_dir)
    path = FOLDER / "attention_pocket.json"
    if options.save and path.exists():  # tasks measured before are kept
        tasks = json.loads(path.read_text(encoding="utf-8"))["tasks"] | tasks
    report = {"generator_version": pocket.VERSION, "tasks": {name: tasks[name] for name in TASKS if name in tasks}}
    print(text(report))
    if options.save:
        results.write_json(path, report)


if __name__ == "__main__":
    main()
