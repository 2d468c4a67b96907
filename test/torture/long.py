"""The long campaign: all campaigns by turns, in pieces with a seed each, until it has been long enough.

    python3 test/torture/long.py --records DIRECTORY --hours 12

Each piece is one run of test/run.sh, and leaves its record in the directory, which records.py adds up, and its output
beside it.  Started again with the same directory, it goes on with the next seed.  The checkout should be one that nobody
works in meanwhile: each piece builds what is there.  Most of a piece is waiting, so several may run at once: --lanes.

It ends when the hours are over, the IDs or faults that were asked for are reached, or a file named "stop" is in the
directory; after the pieces that run.  SIGINT or SIGTERM ends these too.  A piece that fails keeps its evidence, and the
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
from records import Damaged, failures, faults_in, read_records

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
MOST_FAILED = 3
POLL_S = 0.2

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


class Piece:
    """One campaign that runs, and the files that it leaves."""

    def __init__(self, options, campaign, minutes, seed):
        self.campaign, self.minutes, self.seed = campaign, minutes, seed
        self.path = os.path.join(options.records, f'{seed:06}-{campaign.replace(" ", "-")}.json')
        self.began = datetime.datetime.now(datetime.timezone.utc)
        with open(self.path.replace('.json', '.log'), 'w', encoding='utf-8') as log:
            self.process = subprocess.Popen(['nice', *command(campaign, seed, minutes, options.rate, self.path)], cwd=ROOT,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def record(self, told_to_end):
        """What it came to, now that it has ended."""
        if not os.path.exists(self.path):
            # it died before it could write one, which is to be seen in the sums
            took = datetime.datetime.now(datetime.timezone.utc) - self.began
            with open(self.path, 'w', encoding='utf-8') as file:
                json.dump({'record': form.FORM, 'campaign': self.campaign, 'commit': 'unknown', 'code': 'unknown',
                           'server': 'unknown', 'began': self.began.isoformat(timespec='seconds'),
                           'seconds': round(took.total_seconds(), 1), 'seed': self.seed, 'minutes': self.minutes, 'ids': 0,
                           'duplicates': 0, 'disorder': 0, 'interrupted': told_to_end,
                           'failed': [f'it ended with status {self.process.returncode}, without a record'],
                           'faults': {}}, file)
                file.write('\n')
        return read_records([self.path])[0]


class Long:
    def __init__(self, options):
        self.options = options
        self.running = []
        self.records = []
        self.failed = 0
        self.told_to_end = False
        os.makedirs(options.records, exist_ok=True)

    def end(self, *_):
        self.told_to_end = True
        for piece in self.running:
            piece.process.terminate()

    def next_seed(self):
        numbers = [int(found.group(1)) for found in (re.match(r'(\d+)-', name) for name in os.listdir(self.options.records))
                   if found]
        return max(numbers, default=self.options.seed - 1) + 1

    def why_over(self, began):
        """Why no other piece begins, or None."""
        if self.told_to_end or os.path.exists(os.path.join(self.options.records, 'stop')):
            return 'told to end'
        if self.failed >= MOST_FAILED:
            return f'{self.failed} pieces failed'
        if time.monotonic() - began > self.options.hours * 3600:
            return 'the hours are over'
        for wanted, count in ((self.options.ids, sum(record['ids'] for record in self.records)),
                              (self.options.faults, faults_in(self.records))):
            if wanted and count < wanted:
                return None
        return 'all that was asked for is reached' if self.options.ids or self.options.faults else None

    def finish(self, piece):
        record = piece.record(self.told_to_end)
        found = failures([record])
        self.failed += bool(found)
        self.records.append(record)
        print(f'{record["began"]} {piece.campaign}, seed {piece.seed}: {faults_in([record])} faults, {record["ids"]:,} IDs,'
              f' {record["duplicates"]} twice, {record["disorder"]} out of order;'
              f' of all {faults_in(self.records):,} faults, {sum(r["ids"] for r in self.records):,} IDs', flush=True)
        for text in found:
            print(f'  FAILED: {text}', flush=True)

    def run(self):
        began = time.monotonic()
        pieces = [piece for piece in PIECES if not self.options.only or piece[0] in self.options.only]
        self.records = read_records([self.options.records])
        while True:
            for piece in [piece for piece in self.running if piece.process.poll() is not None]:
                self.running.remove(piece)
                self.finish(piece)
            why = self.why_over(began)
            if why and not self.running:
                break
            if not why and len(self.running) < self.options.lanes:
                campaign, minutes = pieces[(len(self.records) + len(self.running)) % len(pieces)]
                self.running.append(Piece(self.options, campaign, self.options.minutes or minutes, self.next_seed()))
            else:
                time.sleep(POLL_S)
        print(f'{why}: {len(self.records)} records in {self.options.records}')
        return 1 if failures(self.records) else 0


def main():
    names = sorted({piece[0] for piece in PIECES})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--records', required=True, type=os.path.abspath, help='the directory')
    parser.add_argument('--hours', type=float, default=float('inf'))
    parser.add_argument('--ids', type=int, help='as many IDs, and')
    parser.add_argument('--faults', type=int, help='as many faults, in all records of the directory')
    parser.add_argument('--seed', type=int, default=1, help='of the first piece in a new directory')
    parser.add_argument('--minutes', type=float, help='of each piece')
    parser.add_argument('--lanes', type=int, default=1, help='how many pieces run at once')
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
