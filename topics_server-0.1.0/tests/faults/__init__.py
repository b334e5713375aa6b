"""Faults of real files, disks and processes, and sweeps over every byte of a small store.

What lies beside its subject stays there; docs/guarantees.md names for each promise the test that
shows it.  Here are the faults that belong to no single module: limits that the kernel sets, disks
that are full, power that is cut, and damage anywhere.
"""
