"""The performance record: ``python -m benchmarks.report [measure|draw] [--quick] [--groups NAME ...] [--models PATH ...]``.

*Measuring* runs the peers side by side, in interleaved rounds, and writes ``performance.json``; *drawing* makes ``performance.md``,
``performance.svg`` and ``performance.png`` of it, and the tables of the README between its markers. Both without either.
``tests/test_report.py`` fails when they differ from the record.
"""
