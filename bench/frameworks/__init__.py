"""Jobs through task frameworks, on this server and on Redis: `python -m bench.frameworks`.

Celery, dramatiq and taskiq on both, BullMQ on Redis, and the worker of this project's client, each with its
own worker command and the settings of its manual, eight jobs at a time.  A job writes down when it was
enqueued and when it started, so that start-up and shutdown of workers count nowhere.

    starts      what a job writes down, and its reader
    contenders  what is measured: a broker, a worker's command, a producer's command
    apps        the programs of each framework, one module each
"""
