"""The long campaign: all campaigns by turns, in pieces with a seed each, until it has been long enough.

    python3 test/torture/long.py --records DIRECTORY --hours 12

Each piece is one run of test/run.sh, and leaves its record in the directory, which records.py adds up, and its output
beside it.  Started again with the same directory, it goes on with the next seed.  The checkout should be one that nobody
works in meanwhile: each piece builds what is there.

It ends when the hours are over, the IDs or faults that were asked for are reached, or a file named "stop" is in the
directory; after the piece that runs.  SIGINT or SIGTERM ends that piece too.  A piece that fails keeps its evidence, and the
next one follows; after three that failed it gives up.
"""

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time

import record as form
from records import Damaged, failures, read_records

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
MOST_FAILED = 3

# In the order of a round, and for how many minutes; the IDs come from the first, and so it comes again.
TORTURE = 'torture', 30
PIECES = (TORTURE, ('fleet etcd', 15), ('frontier', 10), TORTURE, ('fleet postgresql', 15), ('patroni', 10),
          TORTURE, ('fleet zookeeper', 15), ('frontier', 10), TORTURE, ('fleet consul', 15), ('patroni', 10))
PATRONI_FAULTS_A_MINUTE = 2


def command(campaign, seed, minutes, rate, path):
    """The arguments of run.sh."""
    kind, _, which = campaign.partition(' ')
    arguments = {'frontier': ['torture', 'tail'], 'fleet': ['fleet', '--coordinator', which]}.get(kind, [kind])
    if kind == 'patroni':
        arguments += ['--faults', str(max(round(PATRONI_FAULTS_A_MINUTE * minutes), 2))]
    else:
        arguments += ['--minutes', f'{minutes:g}']
    if kind == 'torture' and rate:
        arguments += ['--rate', str(rate)]
    return ['bash', os.path.join(ROOT, 'test', 'run.sh'), *arguments, '--seed', str(seed), '--record', path]


class Long:
    def __init__(self, options):
        self.options = options
        self.running = None
        self.told_to_end = False
        os.makedirs(options.records, exist_ok=True)

    def end(self, *_):
        self.told_to_end = True
        if self.running is not None and self.running.poll() is None:
            self.running.terminate()

    def next_seed(self):
        numbers = [int(found.group(1)) for found in (re.match(r'(\d+)-', name) for name in os.listdir(self.options.records))
                   if found]
        return max(numbers, default=self.options.seed - 1) + 1

    def is_over(self, began, records, failed):
        if self.told_to_end or os.path.exists(os.path.join(self.options.records, 'stop')):
            return 'told to end'
        if failed >= MOST_FAILED:
            return f'{failed} pieces failed'
        if time.monotonic() - began > self.options.hours * 3600:
            return 'the hours are over'
        for what, wanted, count in (('IDs', self.options.ids, sum(record['ids'] for record in records)),
                                    ('faults', self.options.faults, sum(len(record['faults']) for record in records))):
            if wanted and count < wanted:
                return None
        return 'all that was asked for is reached' if self.options.ids or self.options.faults else None

    def piece(self, campaign, minutes, seed):
        """Run one, and return its record."""
        path = os.path.join(self.options.records, f'{seed:06}-{campaign.replace(" ", "-")}.json')
        began = datetime.datetime.now(datetime.timezone.utc)
        with open(path.replace('.json', '.log'), 'w', encoding='utf-8') as log:
            self.running = subprocess.Popen(['nice', *command(campaign, seed, minutes, self.options.rate, path)], cwd=ROOT,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            status = self.running.wait()
            self.running = None
        if not os.path.exists(path):
            # it died before it could write one, which is to be seen in the sums
            took = datetime.datetime.now(datetime.timezone.utc) - began
            with open(path, 'w', encoding='utf-8') as file:
                json.dump({'record': form.FORM, 'campaign': campaign, 'commit': 'unknown', 'code': 'unknown',
                           'server': 'unknown', 'began': began.isoformat(timespec='seconds'),
                           'seconds': round(took.total_seconds(), 1), 'seed': seed, 'minutes': minutes, 'ids': 0,
                           'duplicates': 0, 'disorder': 0, 'interrupted': self.told_to_end,
                           'failed': [f'it ended with status {status}, without a record'], 'faults': []}, file)
        return read_records([path])[0]

    def run(self):
        began = time.monotonic()
        failed = 0
        pieces = [piece for piece in PIECES if not self.options.only or piece[0] in self.options.only]
        while True:
            records = read_records([self.options.records])
            why = self.is_over(began, records, failed)
            if why:
                break
            campaign, minutes = pieces[len(records) % len(pieces)]
            record = self.piece(campaign, self.options.minutes or minutes, self.next_seed())
            found = failures([record])
            failed += bool(found)
            records.append(record)
            print(f'{record["began"]} {campaign}, seed {record["seed"]}: {len(record["faults"])} faults, {record["ids"]:,} IDs,'
                  f' {record["duplicates"]} twice, {record["disorder"]} out of order;'
                  f' of all {sum(len(r["faults"]) for r in records):,} faults, {sum(r["ids"] for r in records):,} IDs', flush=True)
            for text in found:
                print(f'  FAILED: {text}', flush=True)
        print(f'{why}: {len(records)} records in {self.options.records}')
        return 1 if failures(records) else 0


def main():
    names = sorted({piece[0] for piece in PIECES})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--records', required=True, type=os.path.abspath, help='the directory')
    parser.add_argument('--hours', type=float, default=float('inf'))
    parser.add_argument('--ids', type=int, help='as many IDs, and')
    parser.add_argument('--faults', type=int, help='as many faults, in all records of the directory')
    parser.add_argument('--seed', type=int, default=1, help='of the first piece in a new directory')
    parser.add_argument('--minutes', type=float, help='of each piece')
    parser.add_argument('--rate', type=int, help='IDs a second that the clients of torture ask for')
    parser.add_argument('--only', type=lambda text: text.split(','), help=f'of {", ".join(names)}')
    options = parser.parse_args()
    unknown = set(options.only or ()).difference(names)
    if unknown:
        parser.error(f'no such campaign: {", ".join(sorted(unknown))}')
    if options.hours == float('inf') and not (options.ids or options.faults):
        parser.error('say for how many hours, or how many IDs or faults')
    campaign = Long(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, campaign.end)
    try:
        return campaign.run()
    except Damaged as error:
        print(f'long.py: {error}', file=sys.stderr)
        return 2


if __name__ == '__main__':
    sys.exit(main())
