"""What campaigns came to: a row of a table for each run.

    python3 test/campaign/results.py TABLE      adds up those of one version of the code: that of the last run

The exit status is 1 if an ID came twice or out of order in one of these runs, or if one failed.
"""

import datetime
import os
import re
import statistics
import subprocess
import sys

FIELDS = ('campaign', 'day', 'PostgreSQL', 'code', 'seed', 'minutes', 'faults', 'IDs', 'twice', 'out of order',
          'next ID after, p50', 'worst', 'failed')


def row(cells):
    return f'| {" | ".join(map(str, cells))} |\n'


def write(campaign, *, seconds, ids, twice, disorder, waits, failed):
    """waits: of each fault the seconds from its end to the next ID."""
    options = campaign.options
    said = subprocess.run([os.path.join(options.bindir, 'postgres'), '--version'], capture_output=True, text=True, check=True)
    times = [f'{f(waits) * 1000:.0f} ms' if waits else '' for f in (statistics.median, max)]
    with open(campaign.site.path('result'), 'w', encoding='utf-8') as file:
        file.write(row((campaign.name, datetime.date.today(), re.search(r'[\d.]+\w*', said.stdout).group(), options.code,
                        options.seed, f'{seconds / 60:.1f}', sum(event['applied'] for event in campaign.events), ids, twice,
                        disorder, *times, 'interrupted' if campaign.interrupted else len(failed) or '')))


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        runs = [dict(zip(FIELDS, (cell.strip() for cell in line.split('|')[1:-1]))) for line in file]
    runs = [run for run in runs if run['code'] == runs[-1]['code']]
    counts = ('minutes', 'faults', 'IDs', 'twice', 'out of order')
    print(row(('campaign', 'runs', *counts, 'worst')), row(['---'] * (len(counts) + 3)), sep='', end='')
    for name in [*sorted({run['campaign'] for run in runs}), 'all']:
        some = [run for run in runs if name in ('all', run['campaign'])]
        sums = [f'{sum(float(run[count]) for run in some):,.0f}' for count in counts]
        print(row((name, len(some), *sums, max((run['worst'] for run in some), key=lambda text: int(text.split()[0] if text else 0)))),
              end='')
    print(f'\ncode {runs[-1]["code"]}, {runs[0]["day"]} to {runs[-1]["day"]}')
    return int(any(run['failed'] not in ('', 'interrupted') or int(run['twice']) or int(run['out of order']) for run in runs))


if __name__ == '__main__':
    sys.exit(main())
