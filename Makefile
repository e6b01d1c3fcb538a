# Two commands to start with: make demo, make test. Needs Python >= 3.11 and Java >= 17; everything else goes to .venv.
#   make demo ARGS="--quick"     make test ARGS="-k judge"     make fast     make check     make fmt

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

.PHONY: demo test fast test-time line lines connect connect-sample source source-sample torn slow drawn nightly ways-out ways-out-sample streaming102 streaming102-sample lab lab-schedules lab-points lab-tests rules-off stores mutants mutants-of-checker mutants-of-product noticed containers browser pooler sampled layers check pyright mypy lint package compose suites house docs docs-site docs-tests bench fmt java

# stdout belongs to the program: `make demo ARGS="--output json"` must print JSON and nothing else.
demo: $(STAMP)
	@$(BIN)/python -m onceonly_lab.demo $(ARGS)

# Workers, each with one Spark, one Postgres and one broker for all of its files; three, since each waits for a third of
# its time. WORKERS=0 uses none.
test: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --times .cache/test-time.json $(ARGS)

# Where the seconds of the last `make test` went; ARGS="--page" writes docs/how-it-is-proven/test-time.md.
test-time: $(STAMP)
	@$(BIN)/python scripts/timetable.py $(ARGS)

# Decisions and values: no Spark, no server, no other process. conftest.py reads from a test whether it is so.
fast: WORKERS = 2
fast: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --quiet -m pure tests $(ARGS)

# Another line of Spark, in an environment of its own: make line L=3.5; without L one drawn by the commit, which is printed.
# What must work there does; what needs jars that nobody built for it is refused by name. A line that the index does not
# give is skipped; REQUIRE_LINES=1 makes it fail. LOWEST=1: with the lowest versions that pyproject.toml allows.
line: $(STAMP) java
	@$(BIN)/python scripts/lines.py $(or $(L),drawn) $(if $(LOWEST),--lowest) $(ARGS)

# All of them, one after another; writes docs/lines.json, and the README's table from it.
lines: $(STAMP) java
	@$(BIN)/python scripts/lines.py all $(ARGS); failed=$$?; $(BIN)/python scripts/lines_table.py; exit $$failed

# On Spark Connect: a server per run, refusals, kills of server, workers and client; on another line: make connect L=4.1.
# More kills: make connect ARGS="--kills 100"; --kill-seed repeats some. Kills in a process of their own: a client that
# has lost a server asks the dead one again where PySpark takes the session that was active.
connect: $(STAMP) java
ifdef L
	@$(BIN)/python scripts/lines.py $(L) --connect $(ARGS)
else
	$(BIN)/pytest -m "connect and not kill" integration/connect $(ARGS)
	$(BIN)/pytest -m "connect and kill" integration/connect $(ARGS)
endif

# format("onceonly"): on a classic session, its kills, on Spark Connect and in a pipeline. SOURCE_SEED=7 draws the same kills.
source: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m source $(ARGS)

# The figures of Streaming 102 on real queries into Postgres, two drivers killed in each epoch; ARGS="--cases 2 --seed 7"
# draws two of them, --controls replays by the time of day as well, which must differ.
streaming102: $(STAMP) java
	@$(BIN)/python -m integration.figures $(ARGS)

streaming102-sample:
	@$(MAKE) streaming102 ARGS="--cases 2"

# What `make test` leaves out: a claim once more on another variant, chains of kills, every code, every example. Hours.
slow: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m slow $(ARGS)

# Slow suites that fit into ten minutes, drawn by the commit; ARGS="--minutes 20 --seed 1f3" draws others.
drawn: $(STAMP) java
	@$(BIN)/python scripts/suites.py draw $(ARGS)

# Every suite that `make test` leaves out, the stalest first; records what it saw for `make check` and the docs. ARGS="--only
# connect" runs one, ARGS="--minutes 60" begins none after an hour.
nightly: $(STAMP) java
	@$(BIN)/python scripts/suites.py nightly $(ARGS)

# Sinks that commit rows and marker in two transactions, each judged by the conformance suite twenty times: certified never.
torn: $(STAMP)
	$(BIN)/pytest -m "not browser" tests/sinks/test_conformance_kills.py $(ARGS)

# Every way out that a refusal prints, followed on real stores; writes docs/ways-out.md. ARGS="--sample 8 --ways-out
# .cache/ways-out" walks a few, drawn by a seed that is printed, and leaves the page alone: the last folder named counts.
ways-out: $(STAMP) java
	$(BIN)/pytest -m waysout --ways-out docs $(ARGS)

ways-out-sample:
	@$(MAKE) ways-out ARGS="--sample 8 --ways-out .cache/ways-out"

# A few of both, drawn by seeds that are printed.
connect-sample: $(STAMP) java
	$(BIN)/pytest -m "connect and not kill" integration/connect --sample 5
	$(BIN)/pytest -m "connect and kill" integration/connect --sample 3 --kills 6

source-sample: $(STAMP) java
	$(BIN)/pytest -m source --sample 3

# What CI takes a part of, and what it waits for: each uses one core, so two at a time, the longest first.
sampled: $(STAMP) java
	@$(MAKE) --jobs 2 --output-sync=target line rules-off mutants containers connect-sample ways-out-sample source-sample browser pooler streaming102-sample

# The product in a simulated world: every interleaving within two bounds, side by side; many random schedules; every
# fault point struck by every action; random runs of several writers of one dataset; each condition of exactness dropped.
# No server, no Java. What has one process goes two at a time.
lab: $(STAMP)
	$(BIN)/onceonly lab run --bound merged
	@$(MAKE) --jobs 2 --output-sync=target lab-schedules lab-points lab-tests

# Searches by tests, which take longer than `make test` can wait.
lab-tests: $(STAMP)
	$(BIN)/pytest -m lab $(ARGS)

lab-schedules: $(STAMP)
	$(BIN)/onceonly lab run

lab-points: $(STAMP)
	$(BIN)/onceonly lab points
	$(BIN)/onceonly lab writers --runs 2000
	$(BIN)/onceonly lab necessity

# Rules of the product that have changed, and five drawn by a seed that is printed, switched off in its source where each was
# noticed last: it must be noticed again. make rules-off ARGS="--seed 7"; all of them: onceonly lab rules-off.
rules-off: $(STAMP)
	$(BIN)/onceonly lab rules-off --quick --changed --count 5 --seed $$(date +%j) $(ARGS)

# Sinks on servers in containers. Where no engine can be had, it says so and passes.
containers: $(STAMP)
	@scripts/containers.sh $(ARGS)

# The audit page, the lab's report and the documentation site in a Chromium, which is fetched where none is here; where
# none can be had, it says so and passes.
browser: $(STAMP)
	@scripts/browser.sh $(ARGS)

# The recipe for PgBouncer before one, which is fetched where none is here; where none can be had, it says so and passes.
pooler: $(STAMP)
	@scripts/pooler.sh $(ARGS)

# 300 random schedules on a real Postgres, a real Delta log and a real broker, without Spark; make stores ARGS="--seed 7".
stores: $(STAMP) java
	$(BIN)/onceonly lab run --level L2 $(ARGS)

# Sinks, runners and readers broken on purpose: the checker must call each by its name.
mutants: $(STAMP) java
	$(BIN)/onceonly lab mutants $(ARGS)

# Nightly: the checker with one line changed, again and again; its tests must notice nine in ten.
mutants-of-checker: $(STAMP)
	@$(BIN)/pip install --quiet --group mutants >&2
	$(BIN)/mutmut run $(ARGS)
	$(BIN)/python scripts/mutants_killed.py 90

# The product with one line changed, again and again: tests without Spark and servers must notice nine in ten. A sample by
# a seed, which is printed: ARGS="--count 60 --seed 7". Ways of a commit need tests on their stores: ARGS="--of delta
# --count 20 -- tests/sinks/test_delta_sink.py". Which test reaches which line is learnt once, in .cache/reached.json.
mutants-of-product: $(STAMP)
	$(BIN)/python scripts/mutants.py $(ARGS)

# Each rule of onceonly lab rules-off switched off: which quick test fails? make noticed ARGS="--only rewind._step#1";
# --record --page writes docs/how-it-is-proven/noticed.md.
noticed: $(STAMP)
	$(BIN)/python scripts/noticed.py $(ARGS)

# The import layers with sizes, from the top; ARGS="--picture docs/images/layers.svg" draws them.
layers: $(STAMP)
	@$(BIN)/python scripts/layers.py $(ARGS)

# Two at a time: the two type checkers are most of it, and each uses one core.
check: $(STAMP)
	@$(MAKE) --jobs 2 --output-sync=target pyright mypy lint package compose suites house

# No suite has been forgotten: each has run within the last fifty commits.
suites:
	@$(BIN)/python scripts/suites.py check

# Names, prose, rooms and what a query carries, against scripts/house/limits: a figure may only improve. ARGS=--lower writes
# better figures down.
house: $(STAMP)
	@$(BIN)/python scripts/house/ratchet.py $(ARGS)

pyright:
	$(BIN)/pyright

mypy:
	$(BIN)/mypy

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

package:
	$(BIN)/python scripts/wheel_contents.py

compose:
	@if docker compose version >/dev/null 2>&1; then docker compose --profile metrics config -q && echo "compose: the file is valid"; \
	elif command -v docker-compose >/dev/null; then docker-compose --profile metrics config -q && echo "compose: the file is valid"; \
	else echo "compose: docker-compose.yml was not checked (neither docker compose nor docker-compose is here)"; fi

# The site and the words: pages, help texts, catalogues and printed commands against the code, and the code on the pages.
docs: docs-site docs-tests

# In site/; any warning is an error, and nothing in it is fetched from elsewhere when it is read.
docs-site: $(STAMP)
	@$(BIN)/pip install --quiet --group docs >&2
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --site-dir site

docs-tests: $(STAMP) java
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m docs $(ARGS)

bench: $(STAMP) java
	$(BIN)/python -m benchmarks $(ARGS)

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

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
