"""Real jobs that share one virtual GPU, under a real server: `python -m bench.shares [slices tokens lend crashes]`.

All processes of jobs are pinned to one core, and what they get is measured by their CPU time and by their states in
/proc, every 5 ms. Figures of a machine with other work on that core are worse. Exit code 1 when a budget is broken.
"""
