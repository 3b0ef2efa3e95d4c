"""The bench: runs of all methods under one budget, what they cost, and what follows from them.

From a file to a table:

    matrix     what a file asks for: rows, commands, values that were tuned
    run        the commands, here or on a cluster (cluster); sweep: the trials before them
    records    their results, read from folders and from files that were kept
    rows       rows of one table, baselines, differences; stats: their intervals and tests
    table      the tables; contrasts: planned comparisons and pairs; grid: how a table is printed
    readme     the tables on the pages; claims: the papers' claims; report: a page with plots

From a contender to a time:

    measure    contenders in turn, memory of a process, models to be measured
    speed      the tables of times, and the ratios of benchmarks; steps: training steps of the scripts
    profile    the students of a matrix

The papers: papers has their tables and commands, figures draws (plots).
"""
