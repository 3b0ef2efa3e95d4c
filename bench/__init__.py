"""The comparison of all methods: matrices of runs, tables, the papers' tables and figures, sizes and speed."""
