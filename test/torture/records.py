"""Add up what campaigns came to: tables in Markdown, for doc/promises.md.

    python3 test/torture/records.py RECORD ...                        files that --record wrote, or directories of them
    python3 test/torture/records.py --page doc/promises.md RECORD ... puts the tables there, in place of those that are
    python3 test/torture/records.py --add FILE.jsonl RECORD ...       adds the records that the file does not have to it

A file may have several records, one a line.

Campaigns that were told to end early count as far as they came.  The exit status is 1 if an ID came twice or out of
order, or a campaign failed; each of them is named.
"""

import argparse
import json
import os
import statistics
import sys

from record import FORM

BEGIN, END = '<!-- records.py: begin -->', '<!-- records.py: end -->'


class Damaged(Exception):
    """This is not a record."""


def read_file(path):
    """The records of a file, and the line of each."""
    found = []
    with open(path, encoding='utf-8') as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError as error:
                raise Damaged(f'{path}: {error}') from None
            if not isinstance(record, dict) or record.get('record') != FORM:
                raise Damaged(f'{path}: not a record of the form {FORM}')
            record['path'] = path
            found.append((record, line))
    return found


def files_of(paths):
    """These files, and those in these directories."""
    for path in paths:
        if os.path.isdir(path):
            yield from (os.path.join(path, name) for name in os.listdir(path) if name.endswith('.json'))
        else:
            yield path


def run_of(record):
    """What no two runs share."""
    return record['campaign'], record['began'], record['seed']


def read_records(paths):
    """All records of these files and directories, oldest first."""
    records = [record for path in files_of(paths) for record, _ in read_file(path)]
    seen = {}
    for record in records:
        run = run_of(record)
        if run in seen:
            raise Damaged(f'{record["path"]} and {seen[run]} are of one run')
        seen[run] = record['path']
    return sorted(records, key=lambda record: record['began'])


def add_to(path, paths):
    """Add the records of these files and directories to a file, but for those that it has."""
    known = {run_of(record) for record, _ in read_file(path)} if os.path.exists(path) else set()
    found = [pair for one in files_of(paths) for pair in read_file(one)]
    with open(path, 'a', encoding='utf-8') as file:
        file.writelines(line for record, line in sorted(found, key=lambda pair: pair[0]['began'])
                        if run_of(record) not in known)


def faults_in(records):
    """How many faults these records have."""
    return sum(len(times) for record in records for times in record['faults'].values())


def seconds(value):
    if value < 0.9995:
        return f'{value * 1000:.0f} ms'
    return f'{value:.2f} s' if value < 9.995 else f'{value:.0f} s'


def hours(records):
    return f'{sum(record["seconds"] for record in records) / 3600:.1f}'


def seeds(records):
    """1-4, 7"""
    spans = []
    for seed in sorted({record['seed'] for record in records}):
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ', '.join(f'{a}' if a == b else f'{a}-{b}' for a, b in spans)


def total(records, field):
    return sum(record[field] for record in records)


def table(heads, rows):
    return ['| ' + ' | '.join(map(str, row)) + ' |' for row in [heads, ['---'] * len(heads), *rows]] + ['']


def grouped(items, key):
    groups = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return sorted(groups.items())


def campaigns_table(records):
    def row(name, some):
        return (name, len(some), seeds(some) if name != '**all**' else '', hours(some),
                f'{faults_in(some):,}', f'{total(some, "ids"):,}',
                f'{total(some, "duplicates"):,}', f'{total(some, "disorder"):,}')

    return table(('campaign', 'runs', 'seeds', 'hours', 'faults', 'IDs', 'twice', 'out of order'),
                 [row(name, some) for name, some in grouped(records, lambda record: record['campaign'])] +
                 [row('**all**', records)])


def trees_table(records):
    rows = []
    for (code, server), some in grouped(records, lambda record: (record['code'], record['server'])):
        rows.append((f'`{code}`', server, some[0]['began'][:10], some[-1]['began'][:10], len(some), hours(some),
                     f'{total(some, "ids"):,}'))
    return table(('digest of the code', 'PostgreSQL', 'from', 'to', 'runs', 'hours', 'IDs'), rows)


def faults_table(records):
    """The fleet's faults are the same with each coordinator."""
    faults = {}
    for record in records:
        for kind, times in record['faults'].items():
            faults.setdefault((record['campaign'].split()[0], kind), []).extend(times)

    def columns(times):
        known = [time for time in times if time is not None]
        return (seconds(statistics.median(known)), seconds(max(known))) if known else ('', '')

    rows = [(campaign, kind, f'{len(pairs):,}', *columns([pair[0] for pair in pairs]), *columns([pair[1] for pair in pairs]))
            for (campaign, kind), pairs in sorted(faults.items())]
    return table(('campaign', 'fault', 'times', 'next ID: p50', 'worst', 'no ID: p50', 'worst'), rows)


def failures(records):
    found = []
    for record in records:
        texts = [text for text in record['failed'] if not record['interrupted']]
        if record['duplicates'] or record['disorder']:
            texts.append(f'{record["duplicates"]} twice, {record["disorder"]} out of order')
        found += [f'{record["path"]}: {record["campaign"]}, seed {record["seed"]}: {text}' for text in texts]
    return found


def report(records):
    """The lines of the page."""
    failed = failures(records)
    lines = campaigns_table(records) + trees_table(records) + faults_table(records)
    if failed:
        lines += ['Failed:', '', *(f'- {text}' for text in failed), '']
    return lines


def put_into(page, lines):
    with open(page, encoding='utf-8') as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise Damaged(f'{page}: {BEGIN} and {END} have to be there once each, in this order')
    before, after = text[:text.index(BEGIN) + len(BEGIN)], text[text.index(END):]
    with open(page, 'w', encoding='utf-8') as file:
        file.write('\n'.join([before, '', *lines, '']) + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--page', help='the page that has the tables')
    parser.add_argument('--add', metavar='FILE', help='a file to add the records to')
    parser.add_argument('records', nargs='+', metavar='RECORD')
    options = parser.parse_args()
    try:
        records = read_records(options.records)
        if not records:
            raise Damaged('there is no record')
        if options.add:
            add_to(options.add, options.records)
        lines = report(records)
        if options.page:
            put_into(options.page, lines)
    except (Damaged, OSError) as error:
        print(f'records.py: {error}', file=sys.stderr)
        return 2
    if not options.page and not options.add:
        print('\n'.join(lines[:-1]))
    failed = failures(records)
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
