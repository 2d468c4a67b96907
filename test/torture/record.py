"""Write what a campaign's run came to, as JSON, for records.py to add up with others.

The fields of a record:

    record        1, the form
    campaign      torture, frontier, fleet etcd, ..., patroni
    commit, code  the tree: its commit, and a digest of all that is built and installed
    server        the version of PostgreSQL
    began         in UTC
    seconds       how long it ran
    seed, minutes as asked for; a campaign that goes by the number of its faults has no minutes
    ids           that clients received; in the campaign of the frontier, rows
    duplicates    IDs that came twice, or that a unique index refused
    disorder      IDs out of order; in the campaign of the frontier, readers that did not deliver each row once, in order
    interrupted   it was told to end early
    failed        texts that say why it failed; none if it passed
    faults        by kind, a pair of seconds for each fault.  The first is from its end to the next ID that was asked for
                  since, or, in a fleet, to the last server's next ID.  The second is the longest time without an ID
                  from its beginning to the beginning of the next fault, which contains what the fault itself takes.
                  null if it was not measured
"""

import datetime
import json
import os
import re
import subprocess

FORM = 1


def add_arguments(parser):
    parser.add_argument('--record', help='file for what the run came to')
    parser.add_argument('--commit', default='unknown', help='that of the tree, for the record')
    parser.add_argument('--code', default='unknown', help='a digest of what is installed, for the record')


def server_version(bindir):
    said = subprocess.run([os.path.join(bindir, 'postgres'), '--version'], capture_output=True, text=True, check=True)
    return re.search(r'[\d.]+\w*', said.stdout).group()


def by_kind(times):
    """times: of each fault its kind and the two times, in seconds."""
    faults = {}
    for kind, *pair in times:
        faults.setdefault(kind, []).append([None if time is None else round(time, 4) for time in pair])
    return faults


def faults_of(waits):
    """waits: what Verdict.waits() yields."""
    return by_kind((event['kind'], None if first is None else first / 1e9, gap / 1e9) for event, gap, first in waits)


def write_record(options, campaign, *, seconds, ids, duplicates, disorder, failed, faults, interrupted=False):
    """Write it if one is wanted."""
    if not options.record:
        return
    began = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)
    with open(options.record, 'w', encoding='utf-8') as file:
        json.dump({'record': FORM, 'campaign': campaign, 'commit': options.commit, 'code': options.code,
                   'server': server_version(options.bindir), 'began': began.isoformat(timespec='seconds'),
                   'seconds': round(seconds, 1), 'seed': options.seed, 'minutes': getattr(options, 'minutes', None),
                   'ids': ids, 'duplicates': duplicates, 'disorder': disorder, 'interrupted': interrupted,
                   'failed': failed, 'faults': faults}, file)
        file.write('\n')
