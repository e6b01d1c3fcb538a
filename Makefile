# Two commands to start with: make demo, make test. Needs Python >= 3.11 and Java >= 17; everything else goes to .venv.
# `make help` prints each target with the first sentence of the comment above it. The rest of a comment has its options.

PYTHON ?= python3
ARGS ?=
WORKERS ?= 3
BIN := .venv/bin
STAMP := .venv/.installed
# Two distributions, both as they lie here; what is read of a package when it is installed stands in these two files.
LAB := src/onceonly_lab
PROJECTS := pyproject.toml $(LAB)/pyproject.toml
MAKEFLAGS += --no-print-directory

# What Python has compiled and pytest has rewritten is kept: else each start of a test run, and of each of the processes
# that tests kill, compiles the library again.
unexport PYTHONDONTWRITEBYTECODE

# Temporary files of quick tests lie in memory where two gigabytes are free there: they wait for no disk, and a SIGKILL
# takes nothing from either. A TMPDIR of yours is kept.
MEMORY := $(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 {print $$4}')" -ge 2000000 ] && echo /dev/shm)
ifneq ($(MEMORY),)
fast test: export TMPDIR ?= $(MEMORY)
endif

.PHONY: help demo test fast first-hour test-time line lines connect connect-sample source source-sample torn slow drawn nightly ways-out ways-out-sample streaming102 streaming102-sample lab lab-schedules lab-points lab-tests rules-off stores mutants mutants-of-checker mutants-of-product noticed containers browser pooler sampled jar layers check pyright mypy lint package release-check compose suites house docs docs-site docs-tests bench profile fmt java

# Print each target with a sentence.
help:
	@awk '/^#/ {text = text substr($$0, 2); next} \
		match($$0, /^[a-z0-9-]+:/) && !($$1 in seen) {seen[$$1]; sub(/\. .*/, ".", text); printf "%-22s%s\n", substr($$1, 1, RLENGTH - 1), text} \
		{text = ""}' $(firstword $(MAKEFILE_LIST))

# Prove it on your machine: real flights, real SIGKILLs, each row counted; ARGS="--windows" for windows, late data, reads.
# ARGS="--quick" is shorter, ARGS="--full" longer. Each leaves demo-report/. stdout belongs to the program:
# `make demo ARGS="--output json"` must print JSON and nothing else.
demo: $(STAMP)
	@$(BIN)/python -m onceonly_lab.demo $(ARGS)

# Test each capability once, on real Spark and real stores, in ten minutes. ARGS="-k fence" WORKERS=0 runs some in this
# process. Each worker has one Spark, one Postgres and one broker for all of its files. Three, since each waits for a
# third of its time.
test: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --times .cache/test-time.json $(ARGS)

# Print where the seconds of the last `make test` went. ARGS="--page" writes docs/how-it-is-proven/test-time.md.
test-time: $(STAMP)
	@$(BIN)/python scripts/timetable.py $(ARGS)

# Test decisions and values in a minute, without Spark, servers or other processes. conftest.py reads from a test whether it is so.
fast: WORKERS = 2
fast: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --quiet -m pure tests $(ARGS)

# Do what a newcomer does, from sdist and wheels in a fresh environment outside of the checkout. The blocks of README,
# tutorial and the pages of "Write" that need no server, a kill, every printed pip install. One Python, drawn by the commit;
# ALL=1 takes each and writes docs/first-hour.json. A missing one is skipped; REQUIRE_PYTHONS=1 makes it fail.
first-hour: $(STAMP) java
	@$(BIN)/python -m scripts.first_hour $(if $(ALL),--all) $(ARGS)

# Run the compatibility suite on another line of Spark, in an environment of its own. make line L=3.5; without L the commit draws one.
# What must work there does; what needs jars that nobody built for it is refused by name. A line that the index does not
# give is skipped; REQUIRE_LINES=1 makes it fail. LOWEST=1: with the lowest versions that pyproject.toml allows.
# PY=3.12: on another Python. It writes docs/lines.json, from which the table of docs/install.md is made.
line: $(STAMP) java
	@$(BIN)/python -m scripts.lines $(or $(L),drawn) $(if $(LOWEST),--lowest) $(if $(PY),--python $(PY)) $(ARGS)$(if $(PY),; failed=$$?; $(BIN)/python scripts/lines_table.py; exit $$failed)

# Run `make line` for every line of Spark. It writes docs/lines.json, and the table of docs/install.md from it.
lines: $(STAMP) java
	@$(BIN)/python -m scripts.lines all $(ARGS); failed=$$?; $(BIN)/python scripts/lines_table.py; exit $$failed

# Test Spark Connect, with kills of server, workers and client. On another line: make connect L=4.1.
# More kills: make connect ARGS="--kills 100"; --kill-seed repeats some. Kills in a process of their own: a client that
# has lost a server asks the dead one again where PySpark takes the session that was active.
connect: $(STAMP) java
ifdef L
	@$(BIN)/python -m scripts.lines $(L) --connect $(ARGS)
else
	$(BIN)/pytest -m "connect and not kill" integration/connect $(ARGS)
	$(BIN)/pytest -m "connect and kill" integration/connect $(ARGS)
endif

# Test format("onceonly") with kills, on a classic session, on Spark Connect and in a pipeline. SOURCE_SEED=7 draws the same kills.
source: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m source $(ARGS)

# Compute the figures of Streaming 102 into Postgres, two drivers killed in each epoch. ARGS="--cases 2 --seed 7" draws two of them, --controls replays by the time of day as well, which must differ.
streaming102: $(STAMP) java
	@$(BIN)/python -m integration.figures $(ARGS)

# Run two cases of `make streaming102`.
streaming102-sample:
	@$(MAKE) streaming102 ARGS="--cases 2"

# Test each claim on each variant, chains of kills, all codes and examples, in hours.
slow: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m slow $(ARGS)

# Run slow suites of ten minutes that the commit draws. ARGS="--minutes 20 --seed 1f3" draws others.
drawn: $(STAMP) java
	@$(BIN)/python scripts/suites.py draw $(ARGS)

# Run all suites that `make test` leaves out, the stalest first. It records the results for `make check` and the docs.
# ARGS="--only connect" runs one, ARGS="--minutes 60" begins none after an hour.
nightly: $(STAMP) java
	@$(BIN)/python scripts/suites.py nightly $(ARGS)

# Judge sinks with two transactions twenty times each, which the conformance suite must never certify.
torn: $(STAMP)
	$(BIN)/pytest -m "not browser" tests/sinks/test_conformance_kills.py $(ARGS)

# Run each command that a refusal prints, on real stores, in 45 minutes. It writes docs/ways-out.md. ARGS="--sample 8
# --ways-out .cache/ways-out" runs a few, drawn by a seed that is printed, and leaves the page alone: the last folder counts.
ways-out: $(STAMP) java
	$(BIN)/pytest -m waysout --ways-out docs $(ARGS)

# Run eight commands of `make ways-out`.
ways-out-sample:
	@$(MAKE) ways-out ARGS="--sample 8 --ways-out .cache/ways-out"

# Run a few of the tests and six kills of `make connect`.
connect-sample: $(STAMP) java
	$(BIN)/pytest -m "connect and not kill" integration/connect --sample 5
	$(BIN)/pytest -m "connect and kill" integration/connect --sample 3 --kills 6

# Run three tests of `make source`.
source-sample: $(STAMP) java
	$(BIN)/pytest -m source --sample 3

# Run samples of ten slow targets, for CI, two at a time. ARGS="--minutes 20" begins none after these and names them.
sampled: $(STAMP) java
	@$(BIN)/python scripts/suites.py sample $(ARGS)

# Search a simulated world for faults: all interleavings within two bounds, random schedules, every fault point. No
# server, no Java. Targets with one process run two at a time.
lab: $(STAMP)
	$(BIN)/onceonly lab run --bound merged
	@$(MAKE) --jobs 2 --output-sync=target lab-schedules lab-points lab-tests

# Run searches by tests that are too long for `make test`.
lab-tests: $(STAMP)
	$(BIN)/pytest -m lab $(ARGS)

# Run random schedules.
lab-schedules: $(STAMP)
	$(BIN)/onceonly lab run

# Strike every fault point with every action, run several writers, drop each condition of exactness.
lab-points: $(STAMP)
	$(BIN)/onceonly lab points
	$(BIN)/onceonly lab writers --runs 2000
	$(BIN)/onceonly lab necessity

# Switch off changed rules and five others in the source, which the lab must notice. A printed seed draws the five: make
# rules-off ARGS="--seed 7"; all of them: onceonly lab rules-off.
rules-off: $(STAMP)
	$(BIN)/onceonly lab rules-off --quick --changed --count 5 --seed $$(date +%j) $(ARGS)

# Test sinks on servers in containers. Without an engine it reports that and passes.
containers: $(STAMP)
	@scripts/containers.sh $(ARGS)

# Test the audit page, the lab's report and the site in a Chromium. It downloads one if it must. Without one it reports
# that and passes.
browser: $(STAMP)
	@scripts/browser.sh $(ARGS)

# Test the recipe for PgBouncer. It downloads one if it must. Without one it reports that and passes.
pooler: $(STAMP)
	@scripts/pooler.sh $(ARGS)

# Run 300 random schedules on a real Postgres, Delta log and broker, without Spark. make stores ARGS="--seed 7" repeats some.
stores: $(STAMP) java
	$(BIN)/onceonly lab run --level L2 $(ARGS)

# Judge sinks, runners and readers that are broken on purpose, which the checker must name.
mutants: $(STAMP) java
	$(BIN)/onceonly lab mutants $(ARGS)

# Change the checker line by line, which its tests must notice nine times in ten.
mutants-of-checker: $(STAMP)
	@$(BIN)/pip install --quiet --group mutants >&2
	$(BIN)/mutmut run $(ARGS)
	$(BIN)/python scripts/mutants_killed.py 90

# Change the product line by line, which tests without Spark and servers must notice nine times in ten. Of 20 mutants they
# notice 15 so far. A printed seed draws a sample: ARGS="--count 60 --seed 7". Mutants of a sink need tests on its store:
# ARGS="--of delta --count 20 -- tests/sinks/test_delta_sink.py". .cache/reached.json keeps which test reaches which line.
mutants-of-product: $(STAMP)
	$(BIN)/python scripts/mutants.py $(ARGS)

# Switch off each rule of recovery, which a quick test must notice. make noticed ARGS="--only rewind._step#1" takes one
# rule; --record --page writes docs/how-it-is-proven/noticed.md.
noticed: $(STAMP)
	$(BIN)/python scripts/noticed.py $(ARGS)

# Compile the jar by which Spark's tasks send to Kafka, from sinks/java. It needs a JDK 17.
jar: $(STAMP) java
	@$(BIN)/python -m scripts.jar

# Print the import layers with sizes. ARGS="--picture docs/images/layers.svg" draws them.
layers: $(STAMP)
	@$(BIN)/python scripts/layers.py $(ARGS)

# Check lint, types, imports, distributions, the compose file, forgotten suites and style limits. Two at a time:
# the two type checkers are most of it, and each uses one core.
check: $(STAMP)
	@$(MAKE) --jobs 2 --output-sync=target pyright mypy lint package compose suites house

# Check that each slow suite has run within the last fifty commits.
suites:
	@$(BIN)/python scripts/suites.py check

# Check names, prose and structure against scripts/house/limits, which only improve. ARGS=--lower writes better figures down.
house: $(STAMP)
	@$(BIN)/python scripts/house/ratchet.py $(ARGS)

# Check types with pyright.
pyright: $(STAMP)
	$(BIN)/pyright

# Check types with mypy.
mypy: $(STAMP)
	$(BIN)/mypy

# Check style, format and import layers.
lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# Build both distributions, and check their files, and their metadata as an index would.
package: $(STAMP)
	$(BIN)/python scripts/wheel_contents.py
	$(BIN)/python scripts/package_metadata.py

# Build a release into dist/ and check it: names on the index, versions, a fresh install, the first hour on every Python.
# INDEX= is the address of a project's JSON on the package index, with {} for its name.
release-check: $(STAMP) java
	$(BIN)/python scripts/release_check.py --index "$(INDEX)"
	@$(MAKE) first-hour ALL=1

# Check the compose file, if docker compose is here.
compose:
	@if docker compose version >/dev/null 2>&1; then docker compose --profile metrics config -q && echo "compose: the file is valid"; \
	elif command -v docker-compose >/dev/null; then docker-compose --profile metrics config -q && echo "compose: the file is valid"; \
	else echo "compose: docker-compose.yml was not checked (neither docker compose nor docker-compose is here)"; fi

# Build the site, and test pages, help texts and messages against the code.
docs: docs-site docs-tests

# Build the site into site/. Any warning is an error, and readers of it need no network.
docs-site: $(STAMP)
	@$(BIN)/pip install --quiet --group docs >&2
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --site-dir site

# Test pages, help texts and messages against the code.
docs-tests: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m docs $(ARGS)

# Measure onceonly beside Spark's own writers. It writes benchmarks/results/.
bench: $(STAMP) java
	$(BIN)/python -m benchmarks $(ARGS)

# Show where the time of an epoch goes, by sink and way. ARGS="--only KafkaSink --tree" shows the calls, too.
profile: $(STAMP) java
	$(BIN)/python -m benchmarks.profile $(ARGS)

# Format the code.
fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Check that Java and the packages of the tests are here.
java: $(STAMP)
	@$(BIN)/python -m onceonly_lab.demo.preflight

# pip before 25.1 knows no dependency groups.
$(STAMP): $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "onceonly needs Python 3.11 or newer; name one: make PYTHON=python3.11 ..." >&2; exit 2; }
	@echo "installing onceonly and its tools into .venv (first use, a few minutes)" >&2
	@$(PYTHON) -m venv .venv || { echo "Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	@$(BIN)/pip install --quiet --upgrade 'pip>=25.1' >&2
	@$(BIN)/pip install --quiet --editable . --editable '$(LAB)[demo]' --group dev >&2
	@touch $@
