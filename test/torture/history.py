"""Write what a campaign's clients recorded as one history, in the form that doc/promises.md describes."""

import gzip

from verdict import read_calls


def write_history(path, recorded, events, line_of):
    """recorded: the clients' files; line_of: what a call has as its database to the line that its IDs ascend in.

    A session that goes on with another server, in another line, is another session to the reader.
    """
    with gzip.open(path, 'wt', compresslevel=1, encoding='ascii') as file:
        file.write('# snowflake history 1\n# line\tsession\tasked\tgot\tid\n')
        for client in recorded:
            for session, asked, got, _, place, ids in read_calls(client):
                head = f'{line_of(place)}\t{session}\t{asked}\t{got}\t'
                file.writelines(f'{head}{one}\n' for one in ids)
        for event in events:
            if event['applied'] and 'over' in event:
                file.write(f'!\t{event["kind"]}\t{event["at"]}\t{event["over"]}\n')
