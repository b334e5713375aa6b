"""One program a framework: its worker loads the module, and `python -m MODULE JOBS PAUSE_MS` enqueues.

The broker's URL is in `BENCH_BROKER`.
"""
