"""The fault campaign.  Started by ../python.sh, which prepares the private installation and the small file systems."""

import argparse
import glob
import json
import multiprocessing
import os
import random
import signal
import statistics
import sys
import time
import traceback

import clients
import faults
from servers import Down, Site
from history import write_history
import record
from verdict import Verdict

# What a campaign of half an hour has to reach on two cores.  A shorter one is held to half of its share: its standby
# and its first round of faults weigh more.
FAULTS_IN_30_MINUTES = 200
IDS_IN_30_MINUTES = 10000000

# Once a fault is over, that is, the server serves and its clock is right, how long it may take until the next ID: at the
# median of all faults, and after each.  A busy machine has as much more as it has processes for a processor.  A disk that
# was full is tried again once a second.
MEDIAN_BOUND_S = 0.3
BOUND_S = 2
BOUNDLESS = ('full disk of reservation', 'keeper held by a full disk')


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument('--work', required=True)
    parser.add_argument('--bindir', required=True)
    parser.add_argument('--generator', choices=['snowflake', 'naive'], default='snowflake')
    parser.add_argument('--minutes', type=float, default=2)
    parser.add_argument('--seed', type=int, default=None)
    parser.add_argument('--rate', type=float, default=16000, help='IDs per second asked for while nothing is wrong')
    parser.add_argument('--clients', type=int, default=6)
    parser.add_argument('--only', type=lambda s: [k.strip() for k in s.split(',')])
    parser.add_argument('--fsync', action='store_true')
    parser.add_argument('--small-disks', action='store_true')
    parser.add_argument('--history', help='file for all that was recorded, compressed')
    record.add_arguments(parser)
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    return options


def least(options):
    """The fewest faults and IDs that make a campaign."""
    share = options.minutes / 30
    if share < 1:
        share /= 2
    return int(FAULTS_IN_30_MINUTES * share), int(IDS_IN_30_MINUTES * share)


def inject(injector, options, site, shared, workers):
    """Run the faults; return what broke the campaign off, if anything did."""
    broken = None
    try:
        injector.set_up()
        for worker in workers:
            worker.start()
        injector.run()
    except Down as error:
        broken = str(error)
    except Exception as error:      # the verdict on what was recorded is still wanted
        traceback.print_exc()
        broken = repr(error)
    finally:
        shared.stop.value = 1
        for worker in workers:
            if worker.pid:
                worker.join(clients.HUNG_AFTER_S + 10)
                if worker.is_alive():
                    worker.kill()
                    broken = broken or 'a client does not end'
        site.stop_all()
    return broken


def table(rows, heads):
    widths = [max(len(str(row[i])) for row in rows + [heads]) for i in range(len(heads))]
    for row in [heads] + rows:
        print('  ' + str(row[0]).ljust(widths[0]) + ''.join(f'  {str(c).rjust(w)}' for c, w in zip(row[1:], widths[1:])))


def late(verdict, events, until, fault_at):
    """Did the next ID come too late after faults?"""
    waits = [((until - event['over'] if first is None else first) / 1e9, event)
             for event, _, first in verdict.waits(events, until) if 'over' in event and event['kind'] not in BOUNDLESS]
    median = statistics.median(wait for wait, _ in waits) if waits else 0
    busy = statistics.median(event['busy'] for _, event in waits) if waits else 1
    too_late = [(wait, event) for wait, event in waits if wait > BOUND_S * event['busy']]
    print(f'until the next ID: {median:.3f} s at the median of {len(waits)} faults, later than {BOUND_S} s on an idle machine:'
          f' {len(too_late)}; processes for a processor: {busy:.1f}')
    for wait, event in too_late:
        print(f'  {wait:.3f} s, {event["busy"]:.1f} processes for a processor: {fault_at(event["over"])}')
    return bool(too_late) or median > MEDIAN_BOUND_S * busy


def report(options, injector, broken, seconds, until):
    events = [event for event in injector.events if event['applied']]

    def fault_at(ns):
        before = [event for event in events if event['at'] <= ns]
        if not before:
            return 'before the first fault'
        event = before[-1]
        return f'{(ns - event["at"]) / 1e9:.3f} s after "{event["kind"]}" ({", ".join(event["detail"])})'

    began = time.monotonic()
    paths = sorted(glob.glob(os.path.join(options.work, 'client*.ids')))
    verdict = Verdict(paths)
    verdict.judge()

    print(f'\nseed {options.seed}, generator {options.generator}, {seconds:.0f} s,'
          f' fsync {"on" if options.fsync else "off (the machine itself does not crash)"}')
    if not options.small_disks:
        print('full disk: left out')
    print(f'faults: {len(events)}')
    gaps = verdict.gaps(injector.events, until)
    table([(kind, count, f'{gap / 1e9:.2f} s', f'{first / 1e9:.3f} s')
           for kind, (count, gap, first) in sorted(gaps.items())],
          ('kind', 'count', 'longest without an ID', 'slowest first ID once over'))
    print(f'IDs recorded: {verdict.ids} in {len(verdict.calls)} calls of {len(verdict.sessions)} sessions')
    print('  ' + ', '.join(f'{kind} {count}' for kind, count in zip(clients.KINDS, verdict.by_kind)))
    errors, samples = {}, {}
    for path in glob.glob(os.path.join(options.work, 'client*.json')):
        with open(path) as f:
            seen = json.load(f)
        for code, count in seen['errors'].items():
            errors[code] = errors.get(code, 0) + count
            samples.setdefault(code, seen['samples'][code])
    print('errors met by clients, by SQLSTATE')
    for code, count in sorted(errors.items(), key=lambda item: -item[1]):
        print(f'  {code}  {count:7}  {samples[code][:120]}')
    print(f'duplicates: {verdict.duplicates}')
    if verdict.duplicates:
        print(f'  the first came {verdict.first_duplicate() / 1e9 - injector.began:.0f} s after the beginning')
    for one, sources in verdict.duplicate_sources(fault_at).items() if verdict.duplicates else ():
        print(f'  {one}')
        for source in sources:
            print(f'    {source}')
    print(f'order violations inside sessions: {verdict.session_violations}')
    for sample in verdict.session_samples:
        print(f'  {sample}')
    print(f'order violations across sessions: {verdict.order_violations}')
    for sample in verdict.order_samples:
        print(f'  {sample}')
    print(f'unique violations met by clients: {errors.get("23505", 0)}')
    print(f'checked in {time.monotonic() - began:.0f} s')

    failed = ['violations'] if verdict.failed() or '23505' in errors else []
    if options.generator == 'snowflake' and late(verdict, events, until, fault_at):
        failed.append('LATE')
    if broken:
        failed.append(f'BROKEN OFF: {broken}')
    need_faults, need_ids = least(options)
    if not options.only and len(events) < need_faults:
        failed.append(f'TOO FEW FAULTS: {len(events)}, at least {need_faults} make a campaign')
    if verdict.ids < need_ids:
        failed.append(f'TOO FEW IDS: {verdict.ids}, at least {need_ids} make a campaign')
    for text in failed:
        print(text)
    record.write_record(options, 'torture' if options.generator == 'snowflake' else options.generator,
                        seconds=seconds, ids=verdict.ids, duplicates=verdict.duplicates + errors.get('23505', 0),
                        disorder=verdict.session_violations + verdict.order_violations, failed=failed,
                        faults=record.faults_of(verdict.waits(injector.events, until)),
                        interrupted=options.interrupted())
    print('not ok' if failed else 'ok', '- never twice, always in order\n1..1')
    return 1 if failed else 0


def main():
    options = arguments()
    stopped = []
    options.interrupted = lambda: bool(stopped)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    print(f'seed {options.seed}, {options.minutes:g} minutes', flush=True)

    site = Site(options.work, options.bindir, options.generator, options.small_disks, options.fsync)
    context = multiprocessing.get_context('fork')
    shared = clients.Shared(context, options.clients)
    function = 'naive_next()' if options.generator == 'naive' else 'snowflake_next()'
    workers = [context.Process(target=clients.main, args=(i, options, shared, function), daemon=True)
               for i in range(options.clients)]
    try:
        injector = faults.Injector(site, options, shared)
    except Down as error:
        print(f'torture: {error}', file=sys.stderr)
        return 2
    began = time.monotonic()
    broken = inject(injector, options, site, shared, workers)
    until = time.monotonic_ns()
    with open(os.path.join(options.work, 'events.jsonl'), 'w') as f:
        for event in injector.events:
            f.write(json.dumps(event) + '\n')
    if options.history:
        write_history(options.history, sorted(glob.glob(os.path.join(options.work, 'client*.ids'))), injector.events,
                      lambda _: 'server')
    if stopped:
        broken = broken or 'interrupted'
    return report(options, injector, broken, time.monotonic() - began, until)


if __name__ == '__main__':
    sys.exit(main())
