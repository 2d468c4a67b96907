"""Does the extension change what PostgreSQL does with anything else, and does its
type do what bigint does?  Core's own regression files, which nobody here wrote,
are run and what they give is compared, statement by statement: results, plans
and errors.

  presence   as they are, in a server without the extension and in one with the
             library loaded and the extension in the database
  type       with all integer columns of tables as bigint, and as snowflake

As they are, these files have few columns of bigint, and none in most of those
about partitions, joins and foreign keys; so "type" makes them all bigint first.
For it the type is without its refusal of negative numbers, of which core's
files have many.

  bash test/run.sh differ                    "type", the files that matter most
  bash test/run.sh differ --comparison presence --comparison type
                                             all of them, all files, about 6 minutes
  bash test/run.sh differ --comparison type join window
                                             one of them, some files, with what these need
  bash test/run.sh differ --quick --damage "UPDATE pg_cast SET castcontext = 'a'
      WHERE castsource = 'snowflake'::regtype AND casttarget = 'bigint'::regtype"
                                             can it fail?  It should, in most files

A difference is shown unless explained.txt has a reason for it, or it follows
from one that has.  One result for each file.  ../python.sh starts this, with the
source that Debian has of the server's major version.
"""

import argparse
import concurrent.futures
import dataclasses
import difflib
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "bench"))
from server import Server       # noqa: E402

# What is compared in CI, and what these files need of others.
QUICK = {"type": """int8 btree_index hash_index brin brin_multi partition_prune partition_join join equivclass foreign_key
    insert_conflict merge aggregates select_distinct window incremental_sort""".split()}
NEEDED = ["test_setup", "create_index", "create_misc", "create_aggregate"]

SETTINGS = {"fsync": "off", "autovacuum": "off", "max_prepared_transactions": 2, "max_wal_size": "4GB"}
WITH_LIBRARY = {"shared_preload_libraries": "snowflake", "snowflake.node_id": 1}

# The type without its refusals: core's numbers are negative here and there, and
# one that is refused would hide all that comes after it.  What the type refuses
# is tested elsewhere; what is compared here is how it is resolved and planned.
WITHOUT_REFUSALS = "".join(
    f"CREATE OR REPLACE FUNCTION {function} RETURNS snowflake AS '{core}' "
    "LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;"
    for function, core in {"snowflake_in(cstring)": "int8in", "snowflake(bigint)": "int8up",
                           "snowflake(integer)": "int48", "snowflake(smallint)": "int28"}.items())


# Types of columns, as they are written
INTEGER = r"(int2|int4|int8|smallint|integer|int|bigint)\b(?!\s*[\[(]|\s+array\b)"


@dataclasses.dataclass(frozen=True)
class Subject:
    """What core's files are run with."""
    name: str
    settings: dict
    prepare: str                # SQL
    columns_of: str = ""        # pattern of the types of columns that get another one
    column_type: str = ""

    def __hash__(self):
        return hash(self.name)


COMPARISONS = {
    "presence": (Subject("without", {}, ""),
                 Subject("present", WITH_LIBRARY, "CREATE EXTENSION snowflake")),
    "type": (Subject("bigint", WITH_LIBRARY, "CREATE EXTENSION snowflake", INTEGER, "bigint"),
             Subject("snowflake", WITH_LIBRARY, "CREATE EXTENSION snowflake;" + WITHOUT_REFUSALS, INTEGER,
                     "public.snowflake"))}


# Columns get another type

CREATE_TABLE = re.compile(r"\bcreate\s+(?:(?:global\s+|local\s+)?temp(?:orary)?\s+|unlogged\s+|foreign\s+)?table\s+"
                          r"(?:if\s+not\s+exists\s+)?[\w.\"]+\s*\(", re.I)
COLUMN = r"(?:\s|--[^\n]*\n)*(?:\"[^\"]+\"|[a-z_]\w*)\s+"
ALTER_COLUMN = (r"(?:\badd\s+(?:column\s+)?(?:if\s+not\s+exists\s+)?\w+\s+"
                r"|\balter\s+(?:column\s+)?\w+\s+(?:set\s+data\s+)?type\s+)")
SKIPPED = re.compile(r"'[^']*'|--[^\n]*")


def parts(text, start):
    """(begin, end) of each part of a list in parentheses that begins at start."""
    depth, begin, i = 1, start, start
    while i < len(text):
        skipped = SKIPPED.match(text, i)
        if skipped:
            i = skipped.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0 or depth == 1 and text[i] == ",":
            yield begin, i
            begin = i + 1
        if depth == 0:
            return
        i += 1


def retype(text, columns_of, column_type):
    """Give the columns of tables that are of some type another one.  An identity column has to keep its own.

    What makes sequences is a bigserial, so that the columns that reference it are of a type that compares with it.
    """
    if columns_of == INTEGER:
        text = re.sub(r"\bserial\b", "bigserial", text, flags=re.I)
    column = re.compile(COLUMN + columns_of, re.I)
    columns = list(re.finditer(ALTER_COLUMN + columns_of, text, re.I))
    for table in CREATE_TABLE.finditer(text):
        for begin, end in parts(text, table.end()):
            if not re.search(r"\bas\s+identity\b", text[begin:end], re.I):
                columns += filter(None, [column.match(text, begin, end)])
    for begin, end in sorted({column.span(1) for column in columns}, reverse=True):
        text = text[:begin] + column_type + text[end:]
    return text


# Running

def read(path):
    # some files are in no encoding at all
    return path.read_text(encoding="latin-1")


def schedule(source, files):
    """core's order, and what it runs at the same time"""
    lines = []
    for line in (source / "parallel_schedule").read_text(encoding="ascii").splitlines():
        if line.startswith("test:"):
            names = [name for name in line.split()[1:] if not files or name in files + NEEDED]
            lines += ["test: " + " ".join(names)] if names else []
    return "\n".join(lines) + "\n"


def run(options, subject, damage):
    """Run the files with a subject; what they gave is in results/ of its directory."""
    directory = options.work / subject.name
    (directory / "sql").mkdir(parents=True)
    for name in ("data", "expected"):
        (directory / name).symlink_to(options.source / name)
    for path in (options.source / "sql").glob("*.sql"):
        text = read(path)
        (directory / "sql" / path.name).write_text(retype(text, subject.columns_of, subject.column_type)
                                                   if subject.columns_of else text,
                                                   encoding="latin-1")
    (directory / "schedule").write_text(schedule(options.source, options.files), encoding="ascii")
    with Server(options.bindir, options.work / f"{subject.name}-server", {**SETTINGS, **subject.settings}) as server:
        server.psql("CREATE DATABASE regression TEMPLATE template0")
        server.environment["PGDATABASE"] = "regression"
        server.psql(subject.prepare + ";" + damage)
        # what it expects is of no interest, and so is what it says
        with open(directory / "log", "w", encoding="utf-8") as log:
            subprocess.run([options.pg_regress, "--inputdir", directory, "--outputdir", directory,
                            "--bindir", options.bindir, "--dlpath", options.libraries,
                            "--schedule", directory / "schedule", "--use-existing", "--dbname", "regression",
                            "--host", server.directory, "--port", "5432", "--user", "postgres"],
                           env=server.environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    shutil.rmtree(options.work / f"{subject.name}-server")
    return directory


# Comparing

def statements(sql, output):
    """{number of the last line: (number of the first line, lines that it gave)} of what gave something.

    psql echoes what it reads, so what stands between two lines of the input was given by what ends with the first
    of them.  It does not echo every empty line, nor the data of COPY, nor what \\if leaves out: what is echoed again
    after that is recognized if it is long enough.
    """
    lines = [(n, line) for n, line in enumerate(sql.split("\n"), 1) if line.strip()]
    result, given, at, begin = {}, [], 0, 0
    for line in filter(str.strip, output.split("\n")):
        ahead = lines[at:at + (200 if len(line) > 10 else 1)]
        found = next((i for i, (_, text) in enumerate(ahead, at) if text == line), None)
        if found is None:
            given.append(line)
            continue
        if given:
            result[lines[at - 1][0]] = (lines[begin][0], given)
            begin, given = found, []
        at = found + 1
    if given:
        result[lines[at - 1][0]] = (lines[begin][0], given)
    return result


# In which form lines are compared: where an error is and how wide a column is,
# casts and parentheses do not count, either type is a bigint, and to JSON a
# snowflake is a string.
NORMAL = [(re.compile(pattern), replacement) for pattern, replacement in (
    (r"^(LINE \d+: .*|\s*\^|[-+ ]+)$", ""),
    (r"::bigint\b|::(public\.)?snowflake\b", ""),
    (r"OPERATOR\(pg_catalog\.([<>=@]+)\)", r"\1"),
    (r"\b(public\.)?snowflake\b", "bigint"),
    (r"'(-?\d+)'", r"\1"),
    (r"(\"\w+\":)\"(-?\d+)\"", r"\1\2"),
    (r"[()]", ""),
    (r"\s*\+?$", ""),
    (r"\s+", " "),
    (r"^ ", ""))]


def normal(lines):
    result = []
    for line in lines:
        for pattern, replacement in NORMAL:
            line = pattern.sub(replacement, line)
        if line:
            result.append(line)
    return result


@dataclasses.dataclass
class Difference:
    file: str
    line: int
    statement: str
    changes: list               # lines with - or + before them
    explained: bool = False

    def __str__(self):
        shown = self.changes[:30] + ["..."] * (len(self.changes) > 30)
        return f"--- {self.file}, line {self.line}\n{self.statement}\n" + "\n".join(shown)

    @property
    def text(self):
        return self.statement + "\n" + "\n".join(self.changes)

    def fails(self):
        """Does this statement fail, where the other one has not?"""
        return any(change.startswith("+ERROR") for change in self.changes)


def differences(file, one, other):
    """Of one file, in the order of the file; how many statements there were."""
    sql = read(one / "sql" / f"{file}.sql")
    before = statements(sql, read(one / "results" / f"{file}.out"))
    after = statements(read(other / "sql" / f"{file}.sql"), read(other / "results" / f"{file}.out"))
    lines = sql.split("\n")
    found = []
    for line in sorted({*before, *after}):
        begin, was = before.get(line, after.get(line, (0, []))[:1] + ([],))
        given = after.get(line, (0, []))[1]
        if normal(was) != normal(given):
            # of several statements, the last one has given something
            text = "\n".join(x for x in lines[begin - 1:line] if x.strip() and not x.lstrip().startswith("--"))
            text = re.split(r";[^\n;]*\n", text)[-1]
            changes = [x for x in difflib.unified_diff(normal(was), normal(given), lineterm="", n=0)
                       if not x.startswith(("---", "+++", "@@"))]
            found.append(Difference(file, line, text, changes))
    return found, len({*before, *after})


# Explaining

@dataclasses.dataclass
class Rule:
    file: str
    pattern: re.Pattern
    used: int = 0


def read_rules(comparison):
    rules, section = [], ""
    for line in (HERE / "explained.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line.startswith("\t") and section == comparison:
            file, pattern = line.strip().split(None, 1)
            rules.append(Rule(file, re.compile(pattern, re.M)))
    return rules


NAME = r"(?:if\s+(?:not\s+)?exists\s+)?(?:only\s+)?(?:\w+\.)?([a-z_]\w*)"
CHANGED = [re.compile(r"\s*" + pattern, re.I | re.S) for pattern in (
    r"(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:\w+\s+){0,2}?(?:table|view|index|function|procedure|aggregate|type|"
    r"domain|publication|statistics|schema|sequence|trigger)\s+" + NAME,
    r"create\s+(?:unique\s+)?(?:index|trigger|policy|statistics)\s.*?\son\s+" + NAME,
    r"(?:alter|drop)\s+table\s.*?(?:partition|,)\s*" + NAME,
    r"(?:insert\s+into|merge\s+into|delete\s+from|update|copy|truncate(?:\s+table)?|prepare)\s+" + NAME,
    r"with\s.*?\b(?:insert\s+into|delete\s+from|update)\s+" + NAME)]


def explain(found, rules):
    """Mark what has a reason: a rule, or that a statement before it has failed for one."""
    unchanged = set()
    for difference in found:
        rule = next((rule for rule in rules
                     if rule.file in ("*", difference.file) and rule.pattern.search(difference.text)), None)
        if rule:
            rule.used += 1
        names = set(re.findall(r"[a-z_]\w*", difference.text.lower()))
        difference.explained = bool(rule or names & unchanged) or \
            difference.changes[-1].startswith("+ERROR: current transaction is aborted")
        if difference.explained and difference.fails():
            unchanged |= {match[1].lower() for match in (x.match(difference.statement) for x in CHANGED) if match}


def compare(options, comparison, directories):
    """(files without an unexplained difference, files with one)"""
    rules = read_rules(comparison)
    good, bad, total, explained = 0, 0, 0, 0
    # all that were to run, so that none is missing unseen
    names = [name for line in (directories[0] / "schedule").read_text(encoding="ascii").splitlines()
             for name in line.split()[1:]]
    for name in sorted(options.files or names):
        found, count = differences(name, *directories)
        explain(found, rules)
        unexplained = [difference for difference in found if not difference.explained]
        total += count
        explained += len(found) - len(unexplained)
        good += not unexplained
        bad += bool(unexplained)
        print(f"{'not ' * bool(unexplained)}ok - {comparison}: {name}")
        for difference in unexplained:
            print(difference)
    for rule in rules:
        # an explanation of nothing misleads the reader
        if not rule.used and not options.files:
            print(f"not ok - explained.txt: nothing is explained by: {rule.file} {rule.pattern.pattern}")
            bad += 1
    print(f"{comparison}: {total} statements of {good + bad} files, {explained} differences explained", flush=True)
    return good, bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True, help="has core's src/test/regress, and regress.so")
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--pg-regress", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--comparison", choices=COMPARISONS, action="append")
    parser.add_argument("--damage", default="", help="SQL for the second server")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    options.source, options.libraries = options.work / "regress", options.work / "libraries"
    options.work /= "runs"
    if options.quick:
        options.comparison = options.comparison or list(QUICK)

    started = time.monotonic()
    good = bad = 0
    asked = options.files
    for comparison in options.comparison or COMPARISONS:
        options.files = asked or (QUICK.get(comparison, QUICK["type"]) if options.quick else [])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            directories = list(pool.map(lambda x: run(options, *x), zip(COMPARISONS[comparison], ("", options.damage))))
        more_good, more_bad = compare(options, comparison, directories)
        good, bad = good + more_good, bad + more_bad
    print(f"{time.monotonic() - started:.0f} s\n1..{good + bad}")
    return bad > 0 or good == 0


if __name__ == "__main__":
    sys.exit(main())
